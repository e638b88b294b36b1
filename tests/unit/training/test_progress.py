import time

import pytest

from crt.training.progress import Progress, describe

ROW = {
    "stage": 1,
    "accuracy": 0.75,
    "reference_accuracy": 0.80,
    "slack": 0.02,
    "tokens": 60.0,
    "rollouts": 128,
    "seconds": {"sample": 1.0, "update": 1.0},
}


@pytest.mark.parametrize(
    "goal, margin, told",
    [
        ("length", -0.03 + 0.04, "shorten  acc 75.0 % (floor 74.0)"),  # tolerance 4 points
        ("length", 0.005, "shorten  acc 75.0 % (floor 74.5)"),  # smoothed: the average is higher
        ("accuracy", -0.03, "rectify  acc 75.0 % (floor 78.0)"),
    ],
)
def test_the_floor_is_the_one_that_decided(goal, margin, told):
    assert told in describe(ROW | {"goal": goal, "margin": margin})


def test_stage_two_has_no_floor_of_accuracy():
    told = describe(ROW | {"stage": 2, "goal": "accuracy", "margin": 0.1})
    assert "stage II  raise" in told and "floor" not in told


def test_a_step_that_could_not_be_graded_says_so():
    assert describe({"stage": 1}) == "stage 1  nothing could be graded"


def test_waiting_is_shown_from_its_beginning_and_then_seldom(capsys):
    progress = Progress()
    for done in (0, 32, 64):
        progress.count("reference", done, 200)
    assert capsys.readouterr().out == "reference, 0 of 200 problems\n"


def test_a_step_that_asks_for_a_few_problems_says_nothing(capsys, monkeypatch):
    progress = Progress()
    progress.count("reference", 0, 200)
    later = time.monotonic() + 60.0
    monkeypatch.setattr(time, "monotonic", lambda: later)
    progress.count("reference", 0, 16)
    progress.count("reference", 200, 200)
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["reference, 0 of 200 problems", "reference, 200 of 200 problems"]


def test_other_ranks_are_quiet(capsys):
    progress = Progress(shown=False)
    progress.count("reference", 0, 200)
    progress.say("Measuring.")
    assert capsys.readouterr().out == ""
