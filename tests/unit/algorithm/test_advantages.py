import numpy as np
import pytest

from crt.algorithm.advantages import (
    advantages,
    batch_whitened,
    centred,
    group_standardised,
    whitened,
)
from crt.algorithm.objectives import Decision, Term

ALL = np.ones((1, 4), dtype=bool)


def test_group_standardised_divides_by_the_population_spread():
    # mean 0.25, spread sqrt(0.25 · 0.75) = 0.4330
    values = group_standardised(np.array([[1.0, 0, 0, 0]]), ALL)[0]
    assert values == pytest.approx([1.7320, -0.5774, -0.5774, -0.5774], abs=1e-4)


def test_centred_only_takes_off_the_mean():
    assert centred(np.array([[1.0, 0, 0, 0]]), ALL)[0].tolist() == [0.75, -0.25, -0.25, -0.25]


def test_batch_whitened_divides_by_the_spread_of_all_rewards():
    # rewards 0, 1 and 0, 3: spread of the four = 1.2247; deviations ±0.5 and ±1.5
    values = batch_whitened(np.array([[0.0, 1.0], [0.0, 3.0]]), np.ones((2, 2), dtype=bool))
    assert values == pytest.approx(np.array([[-0.5, 0.5], [-1.5, 1.5]]) / 1.2247, abs=1e-4)


@pytest.mark.parametrize("estimate", [centred, group_standardised, batch_whitened])
def test_no_spread_no_advantage(estimate):
    thirds = np.full((1, 4), 1 / 3)  # a mean of thirds is not exactly a third
    assert not estimate(thirds, ALL).any()


@pytest.mark.parametrize("estimate", [centred, group_standardised, batch_whitened])
def test_a_group_of_one_has_no_advantage_not_its_reward(estimate):
    assert estimate(np.array([[0.7]]), np.ones((1, 1), dtype=bool)).tolist() == [[0.0]]


@pytest.mark.parametrize("estimate", [centred, group_standardised, batch_whitened])
def test_those_who_take_no_part_change_nothing(estimate):
    among = np.array([[True, True, False]])
    one = estimate(np.array([[1.0, 0.0, 50.0]]), among)
    other = estimate(np.array([[1.0, 0.0, -3.0]]), among)
    assert one.tolist() == other.tolist() and one[0, 2] == 0
    assert not estimate(np.array([[1.0, 0.0, 5.0]]), np.zeros((1, 3), dtype=bool)).any()


def test_muted_rollouts_carry_no_gradient():
    decision = Decision("accuracy", (Term(np.array([[1.0, 0.0, 0.0]]), ALL[:, :3]),), 0.0)
    values = advantages(decision, muted=np.array([[False, False, True]]))
    assert values[0] == pytest.approx([1, -1, 0], abs=1e-5)


def test_nan_is_refused():
    decision = Decision("length", (Term(np.array([[np.nan, 1.0]]), ALL[:, :2]),), 0.0)
    with pytest.raises(ValueError, match="finite"):
        advantages(decision)


def test_whitened_compares_with_the_whole_batch():
    # rewards 1, 1 and 0, 2: mean 1, spread √0.5 = 0.7071; the first problem gains nothing, and
    # in the second it is ±1/0.7071
    reward = np.array([[1.0, 1.0], [0.0, 2.0]])
    found = whitened(reward, np.ones((2, 2), bool))
    assert found == pytest.approx(np.array([[0, 0], [-1.4142, 1.4142]]), abs=1e-4)
    # a problem that is good throughout is above the mean, which a group's own mean cannot say
    assert whitened(np.array([[3.0, 3.0], [1.0, 1.0]]), np.ones((2, 2), bool)) == pytest.approx(
        np.array([[1, 1], [-1, -1]]), abs=1e-4
    )


def test_whitened_leaves_out_who_takes_no_part():
    among = np.array([[True, True], [True, False]])
    # 1, 3 and 2 take part: mean 2, spread 0.8165
    found = whitened(np.array([[1.0, 3.0], [2.0, 99.0]]), among)
    assert found == pytest.approx(np.array([[-1.2247, 1.2247], [0, 0]]), abs=1e-3)
    assert not whitened(np.array([[5.0, 5.0], [5.0, 99.0]]), among).any()


def test_an_estimator_the_decision_names_comes_first():
    reward = np.array([[0.0, 1.0], [0.0, 3.0]])
    among = np.ones((2, 2), dtype=bool)
    own = Decision("mixed", (Term(reward, among),), 0.0, estimator="centred")
    assert advantages(own, "group_std").tolist() == [[-0.5, 0.5], [-1.5, 1.5]]
