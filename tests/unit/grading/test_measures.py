"""A number of a rollout: what is shortened, and what a line of a contract is about."""

import sys

import pytest

from crt.errors import ConfigError, GradingError
from crt.grading.measures import check_measure, measure_of
from crt.types import Rollout, Verdict


def rollout(length=10, thinking=7, verdict=Verdict.CORRECT, stop="eos") -> Rollout:
    return Rollout("p", "text", length, stop, verdict, thinking=thinking)


def test_tokens_thinking_and_answer():
    found = {name: measure_of(name)(rollout()) for name in ("tokens", "thinking", "answer")}
    assert found == {"tokens": 10.0, "thinking": 7.0, "answer": 3.0}


def test_thinking_that_never_ends_is_no_short_answer():
    endless = rollout(thinking=10, verdict=Verdict.NO_ANSWER, stop="length")
    assert measure_of("answer")(endless) == 10.0


@pytest.mark.parametrize(
    ("verdict", "stop", "value"),
    [
        (Verdict.CORRECT, "eos", 1.0),
        (Verdict.WRONG, "eos", 1.0),
        (Verdict.NO_ANSWER, "eos", 0.0),
        (Verdict.CORRECT, "length", 0.0),
    ],
)
def test_format_is_about_the_answer_being_there_not_about_its_being_right(verdict, stop, value):
    assert measure_of("format")(rollout(verdict=verdict, stop=stop)) == value


def test_what_was_not_counted_is_unknown_not_0():
    for name in ("tokens", "answer"):
        with pytest.raises(GradingError, match=f"{name} of a response to problem 'p' is not known"):
            measure_of(name)(rollout(length=None))


def test_a_function_of_the_user(tmp_path):
    (tmp_path / "own.py").write_text(
        "def words(rollout): return len(rollout.text.split())\n"
        "def less(rollout): return -1\n"
        "def bad(rollout): return rollout.nothing\n"
        "def none(rollout): return None\n"
    )
    named = f"{tmp_path}/own.py:"
    assert measure_of(f"{named}words")(rollout()) == 1.0
    for name, why in (("less", "is -1, not a finite"), ("none", "is None, not a finite"),
                      ("bad", "raised AttributeError")):  # fmt: skip
        with pytest.raises(GradingError, match=why):
            measure_of(named + name)(rollout())
    with pytest.raises(ConfigError, match=r"cannot be loaded: AttributeError"):
        measure_of(f"{named}absent")


def test_a_users_file_takes_no_other_modules_place(tmp_path):
    import statistics

    (tmp_path / "statistics.py").write_text("def words(rollout): return 7\n")
    assert measure_of(f"{tmp_path}/statistics.py:words")(rollout()) == 7.0
    assert sys.modules["statistics"] is statistics


def test_what_measures_nothing_is_refused():
    check_measure("accuracy", "metric", ("accuracy",))
    with pytest.raises(ConfigError, match=r"'acuracy' is not known. Did you mean `accuracy`"):
        check_measure("acuracy", "metric", ("accuracy",))
    with pytest.raises(ConfigError, match=r"cost = 'no/file.py:f': the file no/file.py cannot be"):
        check_measure("no/file.py:f", "cost")
