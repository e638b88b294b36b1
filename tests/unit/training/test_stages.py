import numpy as np
import pytest

from crt.algorithm.batch import Batch
from crt.algorithm.objectives import AccuracyOnly, PrimalDual, Shorten
from crt.algorithm.registry import TwoStage
from crt.training.validation import against, guard_of


def batch(*right: int, rollouts: int = 10) -> Batch:
    """A problem for each number of right answers out of ten."""
    rows = [[i < n for i in range(rollouts)] for n in right]
    return Batch(tuple(map(str, range(len(right)))), rows, np.full((len(right), rollouts), 5.0))


def test_a_checkpoint_is_judged_by_the_methods_own_guard():
    guard = Shorten(tolerance=0.05)
    assert guard_of(TwoStage(shorten=guard)) is guard
    assert guard_of(guard) is guard
    assert guard_of(PrimalDual(tolerance=0.1)) == Shorten(0.1)
    assert guard_of(AccuracyOnly()) == Shorten()


def test_margin_and_feasibility_by_hand():
    # reference 0.8, policy 0.7 on both problems: the gap is 0.1 without spread
    stands = against(batch(8, 8), Shorten(tolerance=0.0, slack=0.1))(batch(7, 7))
    assert stands["margin"] == pytest.approx(0.0) and stands["feasible"]  # exactly at the floor
    stands = against(batch(8, 8), Shorten(slack=0.09))(batch(7, 7))
    assert stands["margin"] == pytest.approx(-0.01) and not stands["feasible"]


def test_noise_does_not_widen_what_a_checkpoint_may_lose():
    # differences 0.2 and 0: deviation 0.1414, over sqrt(2) problems 0.1, as is the gap
    stands = against(batch(8, 8), Shorten())(batch(6, 8))
    assert stands["standard_error"] == pytest.approx(0.1)
    assert stands["margin"] == pytest.approx(0.01 - 0.1) and not stands["feasible"]


def test_a_checkpoint_is_feasible_by_more_than_its_noise():
    # better by 0.2 and 0: the margin is 0.01 + 0.1, its standard error 0.1
    assert against(batch(6, 8), Shorten())(batch(8, 8))["feasible"]
    # better by 0.2 and worse by 0.1: 0.01 + 0.05 with a standard error of 0.15
    assert not against(batch(6, 8), Shorten())(batch(8, 7))["feasible"]


def test_problems_the_reference_lacks_are_left_out():
    stands = against(batch(8), Shorten())(batch(8, 0))
    assert stands["margin"] == pytest.approx(0.01)
    assert against(None, Shorten())(batch(8)) == {"margin": None, "feasible": False}
