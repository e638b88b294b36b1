import numpy as np
import pytest

from crt.algorithm.batch import Batch
from crt.algorithm.guard import excess_length, paired_gap


def batch(*correct) -> Batch:
    shape = np.shape(correct)
    return Batch(tuple(map(str, range(shape[0]))), correct, np.ones(shape))


def test_the_gap_is_positive_when_the_policy_is_worse():
    gap = paired_gap(batch([1, 0], [0, 0]), batch([1, 1], [1, 0]))
    assert gap.mean == 0.5  # 0.75 - 0.25


def test_standard_error_is_that_of_the_paired_differences():
    # differences 1 and 0: sample deviation 0.7071, over sqrt(2) problems = 0.5
    gap = paired_gap(batch([0, 0], [1, 1]), batch([1, 1], [1, 1]))
    assert gap.standard_error == pytest.approx(0.5)


def test_a_problem_by_itself_has_the_error_of_its_rollouts():
    # p = 1/2 of 4 and 1/4 of 4: sqrt(0.25/4 + 0.1875/4)
    gap = paired_gap(batch([1, 1, 0, 0]), batch([1, 0, 0, 0]))
    assert gap.standard_error == pytest.approx((0.0625 + 0.046875) ** 0.5)


def test_hard_and_easy_problems_cancel_out():
    # the same results on very different problems: no gap, and no doubt about it
    same = batch([1, 1], [0, 0], [1, 1], [0, 0])
    gap = paired_gap(same, same)
    assert (gap.mean, gap.standard_error) == (0.0, 0.0)


@pytest.mark.parametrize(("problems", "rollouts", "points"), [(128, 16, 1.0), (16, 8, 4.0)])
def test_spread_between_equal_policies_is_what_the_batch_size_says(problems, rollouts, points):
    # two samples of one policy, p(1 - p) = 0.1 a problem: sqrt(2 · 0.1 / G / P)
    rng = np.random.default_rng(0)
    chance = np.where(np.arange(problems) % 2, 0.5 + 0.15**0.5, 0.5 - 0.15**0.5)[:, None]
    draw = lambda: batch(*(rng.random((problems, rollouts)) < chance))  # noqa: E731
    gaps = [paired_gap(draw(), draw()) for _ in range(300)]
    spread = np.std([gap.mean for gap in gaps])
    assert 100 * spread == pytest.approx(points, rel=0.15)
    # and the standard error of a single batch says so without knowing the policy
    assert np.mean([gap.standard_error for gap in gaps]) == pytest.approx(spread, rel=0.15)


def test_the_same_problems_are_compared():
    with pytest.raises(ValueError, match="same problems"):
        paired_gap(Batch(("a",), [[1]], [[1]]), Batch(("b",), [[1]], [[1]]))


def test_excess_length_is_measured_with_the_references_statistics():
    # reference: mean 100, spread 10, its own level 0.5; ℓ_norm 0.5 and σ(2) = 0.8808
    reference = Batch(("p",), [[1, 1]], [[90, 110]])
    longer = Batch(("p",), [[1, 1]], [[100, 120]])
    assert excess_length(longer, reference).mean == pytest.approx(
        (0.5 + 0.8808) / 2 - 0.5, abs=1e-4
    )
    with pytest.raises(ValueError, match="same problems"):
        excess_length(Batch(("q",), [[1]], [[1]]), reference)
