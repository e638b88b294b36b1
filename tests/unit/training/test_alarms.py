import math

import pytest

from crt.training.alarms import alarm


def row(step: int = 1, **changes):
    values = {
        "step": step,
        "loss": 0.1,
        "grad_norm": 1.0,
        "kl": 0.01,
        "accuracy": 0.8,
        "reference_accuracy": 0.8,
        "slack": 0.01,
        "tokens": 100.0,
        "reference_tokens": 200.0,
    }
    return values | changes


def test_a_sound_run_raises_no_alarm():
    assert alarm([row(i) for i in range(50)], guarded=True) is None
    assert alarm([], guarded=True) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_loss_that_is_no_number(name, value):
    assert f"{name} is {value}" in str(alarm([row(7, **{name: value})], guarded=True))


def test_a_policy_that_runs_away():
    assert "run away" in str(alarm([row(kl=80.0)], guarded=False))


def test_collapse_needs_both_and_some_steps():
    # 9 of 200 tokens is below 5 %, accuracy 0.1 is below a fifth of 0.8
    bare = [row(i, tokens=9.0, accuracy=0.1) for i in range(5)]
    assert "collapsed to bare or empty answers" in str(alarm(bare, guarded=False))
    assert alarm(bare[:4], guarded=False) is None
    assert alarm([row(i, tokens=9.0) for i in range(5)], guarded=False) is None  # short and right
    assert alarm([row(i, accuracy=0.1) for i in range(5)], guarded=False) is None


def test_empty_answers_are_a_collapse_however_short_the_reference_is():
    # 1 token is half of the reference's 2, but it is the one that ends the response
    empty = [row(i, tokens=1.0, reference_tokens=2.0, accuracy=0.0) for i in range(5)]
    assert "collapsed" in str(alarm(empty, guarded=False))


def test_far_below_the_floor_for_long():
    # the floor is 0.8 − 0.01; more than 0.25 below it
    low = [row(i, accuracy=0.5) for i in range(30)]
    assert "under the floor for 30 steps" in str(alarm(low, guarded=True))
    assert alarm(low, guarded=False) is None
    assert alarm([*low[:29], row(30)], guarded=True) is None


def test_a_step_in_which_nothing_was_graded_is_no_alarm():
    bare = {"step": 3, "stage": 1, "left_out": 4, "loss": 0.0, "grad_norm": 0.0}
    assert alarm([row(1), *[bare] * 40], guarded=True) is None
