"""Which verifier grades a response, where the answer stands, and who may choose."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crt.config import GradingConfig
from crt.data.formats import read_plain, select_fields
from crt.errors import ConfigError
from crt.grading.grader import GRADER_VERSION, Grader, Item, grader_identity, make_grader
from crt.grading.verifiers import check_place, check_verifier, registered
from crt.types import Problem


def verdict(text: str, answer: str, verifier: str, place: str | None = None, **fields) -> str:
    problem = Problem("", "", answer, **fields)
    with Grader(workers=1, verifier=verifier, place=place) as grader:
        return str(grader.grade_problem(text, problem).verdict)


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("3 + 4 = 7", "7", "correct"),
        ("The answer is 1,234.50 dollars.", "1234.5", "correct"),
        ("#### 12", "12", "correct"),
        ("It is 10-3", "3", "correct"),  # a minus between two numbers is no sign
        ("It is -3.", "-3", "correct"),
        ("first 7, then 8", "7", "wrong"),  # the last one
        ("It is seven.", "7", "no_answer"),
        ("<think> 7", "7", "no_answer"),
        ("7", "a few", "ungraded"),  # the gold is no number
    ],
)
def test_number_is_the_last_number(text: str, answer: str, expected: str) -> None:
    assert verdict(text, answer, "number") == expected


def test_a_number_may_be_off_by_the_tolerance_and_no_more() -> None:
    assert verdict("1.1", "1", "number", tolerance=0.1) == "correct"
    assert verdict("1.1001", "1", "number", tolerance=0.1) == "wrong"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{Shakespeare}", "correct"),
        (r"\boxed{ william  SHAKESPEARE. }", "correct"),
        (r"\boxed{\text{Shakespeare}}", "correct"),
        (r"\boxed{Marlowe}", "wrong"),
        ("Shakespeare", "no_answer"),  # no box
    ],
)
def test_exact_takes_any_accepted_answer(text: str, expected: str) -> None:
    accepted = ("Shakespeare", "The Bard")
    assert verdict(text, "William Shakespeare", "exact", accepted=accepted) == expected


def test_mathematics_takes_any_accepted_answer_too() -> None:
    assert verdict(r"\boxed{0.5}", "7", "math", accepted=(r"\frac12",)) == "correct"
    assert verdict(r"\boxed{0.6}", "7", "math", accepted=(r"\frac12",)) == "wrong"
    assert verdict(r"\boxed{\sin^2 x+\cos^2 x}", "7", "math", accepted=("1",)) == "correct"


def test_choice_needs_a_letter() -> None:
    options = ("Paris", "Rome")
    place = "after:Answer:"
    assert verdict("Hm. Answer: B", "B", "choice", place, options=options) == "correct"
    assert verdict("Answer: **(B) Rome**", "B", "choice", place, options=options) == "correct"
    assert verdict("Answer: A", "B", "choice", place, options=options) == "wrong"
    assert verdict("Answer: Rome", "B", "choice", place, options=options) == "correct"
    assert verdict("It is B", "B", "choice", place, options=options) == "no_answer"
    assert verdict("Answer: B", "Rome", "choice", place, options=options) == "ungraded"


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("Answer: 5", "after:Answer:", "correct"),
        ("answer: 4 … ANSWER: $5$.", "after:Answer:", "correct"),  # the last, in any case
        ("**Answer:** 5", "after:Answer:", "correct"),
        ("Answer:\n\n5\nthat is it", "after:Answer:", "correct"),
        (r"Answer: \boxed{5}", "after:Answer:", "correct"),
        ("Answer:", "after:Answer:", "no_answer"),
        ("5", "after:Answer:", "no_answer"),
        ("I say 4, no, 5", "last_number", "correct"),
        ("<answer>4</answer><answer>10/2</answer>", r"<answer>(.*?)</answer>", "correct"),
        ("5", r"<answer>(.*?)</answer>", "no_answer"),
    ],
)
def test_where_the_answer_stands(text: str, place: str, expected: str) -> None:
    assert verdict(text, "5", "math", place) == expected


def test_a_regular_expression_is_searched_in_the_reply() -> None:
    assert verdict("colour", r"\bcolou?r\b", "regex") == "correct"
    assert verdict("discolour", r"\bcolou?r\b", "regex") == "wrong"
    assert verdict("x", "(", "regex") == "ungraded"  # broken: nothing is known


@pytest.mark.parametrize("verifier", ["regex", "math"])
def test_a_regular_expression_that_does_not_end_costs_one_item(verifier: str) -> None:
    place = r"^(a|a)*$" if verifier == "math" else None
    with Grader(1, 1.0, verifier=verifier, place=place) as grader:
        grade = grader.grade("a" * 60 + "b", r"^(a|a)*$")
        assert (grade.verdict, grade.reason) == ("ungraded", "no verdict within 1 seconds")


def test_math_verify_is_the_library_as_it_is() -> None:
    letters = Problem("", "", "B", options=("x", "y"))
    with Grader(1, 60.0, verifier="math_verify") as grader:
        assert grader.grade("The answer is $0.5$.", r"\frac12").verdict == "correct"  # in prose
        assert grader.grade("It is 3.14159265", r"\pi").verdict == "correct"  # it rounds
        assert grader.grade("It is 4", "5").verdict == "wrong"
        assert grader.grade_problem("So B.", letters).verdict == "correct"
    assert verdict("It is 3.14159265", r"\pi", "math", "last_number") == "wrong"  # ours does not


OWN = """
from crt import Problem

calls = 0

def verify(response: str, problem: Problem) -> bool | None:
    return response.strip() == problem.answer

def noted(response, problem):
    return response == problem.answer, f"{len(response)} characters"

def unknown(response, problem):
    return None

def partial(response, problem):
    return 0.7

def broken(response, problem):
    raise KeyError("no such thing")

def endless(response, problem):
    while True:
        pass

def crash(response, problem):
    import os
    os._exit(0)

def options(response, problem):
    return problem.options == ("a", "b") and problem.accepted == ("y",)
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


@pytest.mark.parametrize(
    ("function", "expected", "reason"),
    [
        ("verify", "correct", "own verifier"),
        ("noted", "correct", "5 characters"),
        ("unknown", "ungraded", "own verifier"),
        ("partial", "ungraded", "returned 0.7, not True, False or None"),
        ("broken", "ungraded", "KeyError in the verifier"),
        ("endless", "ungraded", "no verdict within 1 seconds"),
        ("crash", "ungraded", "the grading worker died"),
    ],
)
def test_a_function_of_a_file(own: Path, function: str, expected: str, reason: str) -> None:
    with Grader(1, 1.0, verifier=f"{own}:{function}") as grader:
        grade = grader.grade("<think>hm</think>right", "right")
        assert grade.verdict == expected
        assert reason in grade.reason
        assert grader.grade(r"\boxed{7}", "7").verdict in ("wrong", "ungraded", "correct")


def test_a_function_gets_the_whole_problem(own: Path) -> None:
    problem = Problem("1", "Q?", "x", options=("a", "b"), accepted=("y",))
    with Grader(1, verifier=f"{own}:options") as grader:
        assert grader.grade_problem("any", problem).verdict == "correct"


def test_a_function_of_a_module_and_of_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "owned"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "grading.py").write_text(OWN)
    about = tmp_path / "owned-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: owned\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[crt.verifiers]\nours = owned.grading:verify\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    registered.cache_clear()
    try:
        for name in ("owned.grading:verify", "ours"):
            assert verdict("right", "right", name) == "correct"
            assert verdict("left", "right", name) == "wrong"
    finally:
        registered.cache_clear()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mathh", "'mathh' is no verifier. Did you mean `math`"),
        ("nowhere.py:verify", "the file nowhere.py cannot be found"),
        ("no_such_package.grading:verify", "the module no_such_package.grading cannot be found"),
        ("crt.types:", "names no function"),
    ],
)
def test_a_wrong_name_is_one_sentence(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_verifier(name)


def test_a_function_that_cannot_be_loaded_stops_the_run_before_it_begins(own: Path) -> None:
    with (
        Grader(1, verifier=f"{own}:nothing") as grader,
        pytest.raises(ConfigError, match="cannot be loaded: AttributeError"),
    ):
        grader.check()


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("last_numbr", "is no place. Did you mean `last_number`"),
        ("(", "is not a regular expression"),
        ("after:", "names nothing"),
    ],
)
def test_a_wrong_place_is_one_sentence(place: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_place(place)


# ---- The data choose


@pytest.fixture(scope="module")
def mixed() -> Iterator[Grader]:
    with Grader(1) as grader:
        yield grader


def test_a_mixture_is_graded_problem_by_problem(mixed: Grader) -> None:
    problems = [
        Problem("m", "", r"\frac12"),
        Problem("n", "", "7", verifier="number"),
        Problem("c", "", "B", options=("x", "y"), verifier="choice"),
    ]
    mixed.check(problems)
    texts = [r"\boxed{0.5}", "so 7", r"\boxed{b}"]
    items = [Item(text, problem) for text, problem in zip(texts, problems, strict=True)]
    assert [grade.verdict for grade in mixed.grade_many(items)] == ["correct"] * 3


@pytest.mark.parametrize("name", ["code", "judge", "own.py:verify", "os.path:exists"])
def test_data_cannot_choose_what_runs_code_or_asks_a_server(
    mixed: Grader, own: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(own.parent)
    problem = Problem("p7", "", "1", verifier=name)
    with pytest.raises(ConfigError, match=r"'p7' asks for the verifier .* --allow"):
        mixed.check([problem])
    with pytest.raises(ConfigError, match="--allow"):  # unchecked, it is refused as well
        mixed.grade_problem("1", problem)


def test_what_the_user_allows_data_may_choose(own: Path) -> None:
    name = f"{own}:verify"
    with Grader(1, allow=(name,)) as grader:
        problem = Problem("p", "", "right", verifier=name)
        grader.check([problem])
        assert grader.grade_problem("right", problem).verdict == "correct"
        assert grader.grade(r"\boxed{0.5}", "1/2").verdict == "correct"  # others by mathematics


def test_a_row_says_how_it_is_graded() -> None:
    row = {"question": "Who?", "answer": ["William Shakespeare", "Shakespeare"]}
    problem = read_plain(select_fields({**row, "verifier": "exact"}))
    assert (problem.answer, problem.accepted) == ("William Shakespeare", ("Shakespeare",))
    assert problem.verifier == "exact"
    table = read_plain(select_fields({"question": "Q?", "answer": {"b": 1}, "verifier": "own"}))
    assert table.answer == '{"b": 1}'
    pattern = read_plain(select_fields({"question": "Q?", "answer": "$5$", "verifier": "regex"}))
    assert pattern.answer == "$5$"  # nothing is taken off


# ---- One grader for a recipe, and its name in manifests


def test_the_defaults_are_those_of_before() -> None:
    settings = GradingConfig()
    assert grader_identity(settings) == GRADER_VERSION
    with make_grader(settings) as grader:
        assert (grader.verifier, grader.place, grader.workers) == ("math", None, 2)


def test_verdicts_of_two_verifiers_have_two_names(own: Path) -> None:
    def identity(**settings) -> str:
        return grader_identity(GradingConfig(**settings))

    name = f"{own}:verify"
    judge = {"url": "http://localhost/v1", "model": "m"}
    names = {
        identity(),
        identity(verifier="number"),
        identity(verifier="number", answer="boxed"),
        identity(allow=("code",)),
        identity(verifier=name),
        identity(verifier="judge", judge=judge),
        identity(verifier="judge", judge=judge | {"rubric": "Be kind."}),
    }
    assert len(names) == 7
    before = identity(verifier=name)
    own.write_text(OWN + "\n# changed\n")
    assert identity(verifier=name) != before
    assert identity(verifier="judge", judge=judge) == identity(
        verifier="judge", judge=judge | {"url": "http://elsewhere/v1"}
    )
