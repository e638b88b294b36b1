import pytest

from crt.errors import DataError
from crt.tasks.answers import choice, gsm8k, last_box, olympiad, plain, split_options


def gold(normalise, **fields):
    return normalise({"question": "Q?", **fields}).answer


@pytest.mark.parametrize(
    ("stored", "answer"),
    [
        ("Half of 4 is <<4/2=2>>2.\n#### 2", "2"),
        ("#### 1,080", "1080"),
        ("#### -3", "-3"),
        ("#### $15", "15"),
        ("18", "18"),
    ],
)
def test_gsm8k_takes_what_follows_the_hashes(stored, answer):
    assert gold(gsm8k, answer=stored) == answer


def test_gsm8k_without_anything_after_the_hashes_is_bad():
    with pytest.raises(DataError, match="empty answer"):
        gold(gsm8k, answer="So it is five.\n####")


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"so $\boxed{7}$.", "7"),
        (r"\boxed{1} or rather \boxed{2}", "2"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),  # escaped braces do not count
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\fbox{3}", "3"),
        (r"thus \boxed 2.", "2"),
        (r"\boxed{}", ""),
        (r"\boxed{1", None),
        ("no box", None),
    ],
)
def test_last_box_matches_braces(text, box):
    assert last_box(text) == box


def test_an_answer_column_wins_over_the_solution():
    assert gold(plain, answer="3", solution=r"\boxed{4}") == "3"
    assert gold(plain, solution=r"\boxed{4}") == "4"


@pytest.mark.parametrize(
    ("stored", "answer"), [("$5$", "5"), ("$1$ and $2$", "$1$ and $2$"), (r"\boxed{6}", "6")]
)
def test_outer_delimiters_go(stored, answer):
    assert gold(plain, answer=stored) == answer


@pytest.mark.parametrize(("stored", "answer"), [(204, "204"), (18.0, "18"), (0.5, "0.5")])
def test_numbers_are_written_out(stored, answer):
    assert gold(plain, answer=stored) == answer


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"answer": ""}, "empty answer"),
        ({"answer": "  "}, "empty answer"),
        ({"answer": None}, "no answer"),
        ({"answer": float("nan")}, "no answer"),
        ({"answer": True}, "bool, not text"),
        ({"answer": {"value": 1}}, "dict, not text"),
        ({"answer": "1\0"}, "NUL"),
        ({"answer": "\udc80"}, "not valid UTF-8"),
        ({"solution": r"\boxed{}"}, "empty answer"),
        ({"solution": "no box"}, "no closed"),
        ({"answer": "1", "tolerance": "-1"}, "tolerance '-1' is not a number above 0"),
        ({"answer": "1", "tolerance": "nan"}, "tolerance"),
        ({"answer": "1", "question": ""}, "empty question"),
        ({"answer": "1", "question": ["a"]}, "list, not text"),
    ],
)
def test_a_row_that_cannot_be_graded_says_why(fields, reason):
    with pytest.raises(DataError, match=reason):
        gold(plain, **fields)


@pytest.mark.parametrize(
    ("options", "letter"),
    [
        (["(A)2", "(B)4"], "B"),
        (["A) 2", "B) 4"], "(B)"),
        (["2", "4"], [1]),  # AGIEval on the hub: an index in a list
        (["2", "4"], 1),
        ("A) 2 B) 4", "b"),
        ("(A) 2, (B) 4", "B"),
    ],
)
def test_options_lose_their_labels_and_the_answer_is_a_letter(options, letter):
    parts = choice({"question": "Twice two?", "options": options, "answer": letter})
    assert (parts.options, parts.answer) == (("2", "4"), "B")
    assert parts.question == "Twice two?\n(A) 2\n(B) 4"


def test_agievals_wrapping_is_taken_off():
    query = "Q: Twice two? Answer Choices: (A)2 (B)4\nA: Among A through B, the answer is"
    parts = choice({"question": query, "options": ["(A)2", "(B)4"], "answer": [1]})
    assert parts.question == "Twice two?\n(A) 2\n(B) 4"


def test_options_already_shown_are_not_shown_again():
    first = choice({"question": "Twice two?", "options": ["2", "4"], "answer": "B"})
    again = choice({"question": first.question, "options": ["2", "4"], "answer": "B"})
    assert again == first


def test_a_capital_that_is_no_label_stays():
    assert split_options(["A is right", "B is right"]) == ("A is right", "B is right")
    assert split_options("A) C is right B) A is right") == ("C is right", "A is right")


@pytest.mark.parametrize("letter", ["E", "AB", "", 4, [0, 1], None])
def test_an_answer_that_is_no_option_is_bad(letter):
    with pytest.raises(DataError, match="answer"):
        choice({"question": "Q?", "options": ["1", "2", "3", "4"], "answer": letter})


@pytest.mark.parametrize(
    ("stored", "multiple", "answer"),
    [
        (["$\\frac{41}{12}$"], False, "\\frac{41}{12}"),
        (["$69$,$84$"], True, "69, 84"),
        (["2500,7500"], True, "2500, 7500"),
        (["100,200"], True, "100, 200"),  # two answers, not a hundred thousand
        (["100,200"], False, "100200"),
        (["(3,2)"], False, "(3,2)"),
        (["$1$", "$2$"], True, "1, 2"),
        (["$221,$8$"], True, "221, 8"),
        (["$(-\\infty, 0) \\cup\\{1\\}$."], False, "(-\\infty, 0) \\cup\\{1\\}"),
        (["\\$5"], False, "\\$5"),  # money, not a delimiter
        ("7", False, "7"),
    ],
)
def test_olympiad_answers_lose_their_inner_dollars(stored, multiple, answer):
    assert gold(olympiad, answer=stored, multiple=multiple) == answer


def test_olympiad_tolerance_is_read_and_a_unit_stays_out():
    parts = olympiad({"question": "Q?", "answer": ["4.2"], "unit": "%", "tolerance": "1e-1"})
    assert (parts.answer, parts.tolerance) == ("4.2", 0.1)


@pytest.mark.parametrize("stored", [[], None, ["$$"]])
def test_an_olympiad_row_without_answer_is_bad(stored):
    with pytest.raises(DataError, match="empty answer"):
        gold(olympiad, answer=stored)
