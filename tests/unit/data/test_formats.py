import pytest

from crt.data.formats import (
    read_choices,
    read_gsm8k,
    read_item,
    read_multiple_choice,
    read_olympiad,
    read_plain,
    select_fields,
)
from crt.errors import DataError


def gold(read, **fields):
    return read({"question": "Q?", **fields}).answer


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
    assert gold(read_gsm8k, answer=stored) == answer


def test_gsm8k_without_anything_after_the_hashes_is_bad():
    with pytest.raises(DataError, match="empty answer"):
        gold(read_gsm8k, answer="So it is five.\n####")


def test_an_answer_column_wins_over_the_solution():
    assert gold(read_plain, answer="3", solution=r"\boxed{4}") == "3"
    assert gold(read_plain, solution=r"\boxed{4}") == "4"


@pytest.mark.parametrize(
    ("stored", "answer"), [("$5$", "5"), ("$1$ and $2$", "$1$ and $2$"), (r"\boxed{6}", "6")]
)
def test_outer_delimiters_go(stored, answer):
    assert gold(read_plain, answer=stored) == answer


@pytest.mark.parametrize(("stored", "answer"), [(204, "204"), (18.0, "18"), (0.5, "0.5")])
def test_numbers_are_written_out(stored, answer):
    assert gold(read_plain, answer=stored) == answer


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
        ({"solution": r"\boxed{}"}, "the box is empty"),
        ({"solution": "It is 5."}, "no box"),
        ({"solution": r"\boxed{1"}, "not closed"),
        ({"answer": "1", "tolerance": "-1"}, "tolerance '-1' is not a number from 0 up"),
        ({"answer": "1", "tolerance": "nan"}, "tolerance"),
        ({"answer": "1", "tolerance": 10**400}, "tolerance 1000"),
        ({"tests": True}, "test True is bool, not text"),
        ({"tests": ["assert f()"], "setup": {"import": "math"}}, "setup .* is dict, not text"),
        ({"answer": "1", "tolerance": "small"}, "tolerance 'small' is not a number from 0 up"),
        ({"answer": "1", "question": ""}, "empty question"),
        ({"answer": "1", "question": ["a"]}, "list, not text"),
    ],
)
def test_a_row_that_cannot_be_graded_says_why(fields, reason):
    with pytest.raises(DataError, match=reason):
        gold(read_plain, **fields)


@pytest.mark.parametrize(
    ("options", "letter"),
    [
        (["(A)2", "(B)4"], "B"),
        (["A) 2", "B) 4"], "(B)"),
        (["2", "4"], [1]),  # AGIEval on the hub: an index in a list
        (["2", "4"], 1),
        (["2", "4"], 1.0),
        ("A) 2 B) 4", "b"),
        (["2", "4"], "4"),  # the words of one option
        ("(A) 2, (B) 4", "B"),
    ],
)
def test_options_lose_their_labels_and_the_answer_is_a_letter(options, letter):
    problem = read_multiple_choice({"question": "Twice two?", "options": options, "answer": letter})
    assert (problem.options, problem.answer) == (("2", "4"), "B")
    assert problem.question == "Twice two?\n(A) 2\n(B) 4"


def test_agievals_wrapping_is_taken_off():
    query = "Q: Twice two? Answer Choices: (A)2 (B)4\nA: Among A through B, the answer is"
    problem = read_multiple_choice({"question": query, "options": ["(A)2", "(B)4"], "answer": [1]})
    assert problem.question == "Twice two?\n(A) 2\n(B) 4"


def test_options_already_shown_are_not_shown_again():
    first = read_multiple_choice({"question": "Twice two?", "options": ["2", "4"], "answer": "B"})
    again = read_multiple_choice({"question": first.question, "options": ["2", "4"], "answer": "B"})
    assert again == first


def test_a_capital_that_is_no_label_stays():
    assert read_choices(["A is right", "B is right"], "A")[0] == ("A is right", "B is right")
    assert read_choices("A) C is right B) A is right", "A")[0] == ("C is right", "A is right")


@pytest.mark.parametrize("options", ["2 or 4", "A) 2", ["2"], {"text": ["2", "4"]}, 4])
def test_options_that_are_no_list_are_bad(options):
    with pytest.raises(DataError, match=r"options .* are not a list of 2 to 26 texts"):
        read_choices(options, "A")


@pytest.mark.parametrize("letter", ["E", "AB", "", 4, [0, 1], None])
def test_an_answer_that_is_no_option_is_bad(letter):
    with pytest.raises(DataError, match="answer"):
        read_multiple_choice({"question": "Q?", "options": ["1", "2", "3", "4"], "answer": letter})


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
    assert gold(read_olympiad, answer=stored, multiple=multiple) == answer


def test_olympiad_tolerance_is_read_and_a_unit_stays_out():
    problem = read_olympiad({"question": "Q?", "answer": ["4.2"], "unit": "%", "tolerance": "1e-1"})
    assert (problem.answer, problem.tolerance) == ("4.2", 0.1)


@pytest.mark.parametrize(
    ("stored", "reason"),
    [([], "empty"), (None, "empty"), (["$$"], "empty"), (True, "bool, not text"), ({}, "dict")],
)
def test_an_olympiad_row_without_answer_is_bad(stored, reason):
    with pytest.raises(DataError, match=reason):
        gold(read_olympiad, answer=stored)


def test_a_response_line_gives_the_problem_that_a_data_row_gives():
    row = {"question": "Italy's capital?", "choices": ["Paris", "Rome"], "answer": 1}
    item = read_item({**row, "response": r"\boxed{B}", "thinking_opened": True})
    problem = read_plain(select_fields(row))
    assert (item.problem.answer, item.problem.options) == (problem.answer, problem.options)
    assert (item.text, item.thinking_opened) == (r"\boxed{B}", True)


def test_a_response_line_needs_no_question_and_may_have_an_empty_answer():
    item = read_item({"response": "5", "answer": "", "tolerance": 0})
    assert (item.problem.question, item.problem.answer, item.problem.tolerance) == ("", "", 0.0)
