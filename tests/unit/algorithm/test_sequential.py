"""The sequential test: its wealth by hand, and how often it errs when it is looked at always."""

import math

import numpy as np
import pytest

from crt.algorithm.sequential import BETS, log_wealth, lower_bound, sequential_test


def test_the_wealth_is_the_average_of_seven_bets():
    # bound 0: a value of 1 doubles what is at stake, a value of −1 loses it
    shares = [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64]
    assert BETS.tolist() == shares
    once = [1 + share for share in shares]
    both = [(1 + share) * (1 - share) for share in shares]
    wealth = np.exp(log_wealth([1.0, -1.0], bound=0.0))
    assert wealth == pytest.approx([sum(once) / 7, sum(both) / 7])
    # a value at the bound moves nothing
    assert log_wealth([-0.01] * 3, bound=-0.01) == pytest.approx([0, 0, 0])


def test_nobody_gains_on_average_at_the_bound():
    # 1 with chance 3/4 and −1 with 1/4 has the mean 1/2
    up, down = (math.exp(log_wealth([value], bound=0.5)[0]) for value in (1.0, -1.0))
    assert 0.75 * up + 0.25 * down == pytest.approx(1)


def test_without_any_difference_it_takes_some_hundred_problems():
    # all is at stake: 1/0.99 a problem, so 20 · 7 is passed after ln 140 / −ln 0.99 = 491.7, less
    # what the smaller stakes bring
    look = sequential_test(np.zeros(1000), floor=-0.01)
    assert look.state == "accepted" and 400 < look.problems < 492
    assert sequential_test(np.zeros(300), floor=-0.01).state == "undecided"


def test_it_stops_at_the_first_problem_that_allows_it():
    better = np.full(100, 0.5)
    look = sequential_test(better, floor=-0.01)
    assert look.state == "accepted"
    before = sequential_test(better[: look.problems - 1], floor=-0.01)
    assert before.state == "undecided" and before.problems == look.problems - 1
    assert look.lower_bound >= -0.01 > before.lower_bound
    # nothing that comes later takes it back
    assert sequential_test([*better, *np.full(500, -1.0)], floor=-0.01) == look


def test_a_model_that_fails_is_rejected_by_the_same_rule():
    look = sequential_test(np.full(100, -0.5), floor=-0.01)
    assert look.state == "rejected" and look.upper_bound <= -0.01


def test_the_bound_is_where_the_wealth_is_twenty():
    values = np.array([0.0, 0.5, 0.25, 1.0] * 10)
    bound = lower_bound(values)
    assert log_wealth(values, bound)[-1] == pytest.approx(math.log(20), abs=1e-3)
    assert lower_bound(np.array([-1.0])) == -1


@pytest.mark.parametrize("values", [[], [0.0, 1.5], [math.nan], [[0.0]]])
def test_values_are_between_minus_one_and_one(values):
    with pytest.raises(ValueError, match="from −1 to 1"):
        sequential_test(values, floor=0.0)


def policies(rng, runs, problems, loss, rollouts, spread=True, lost=0.0):
    """(runs, problems) differences of two made-up policies, of which one is worse by `loss`.

    `lost` is the share of the problems on which it always fails; elsewhere it is worse everywhere.
    """
    base = rng.beta(2, 0.5, (runs, problems)) if spread else np.full((runs, problems), 0.8)
    share = base.mean()
    ours = np.clip(base - loss, 0, 1)
    ours = np.where(rng.random((runs, problems)) < lost / share, 0.0, ours)
    return (rng.binomial(rollouts, ours) - rng.binomial(rollouts, base)) / rollouts


@pytest.mark.parametrize(
    ("name", "settings"),
    {
        "worse everywhere": {"loss": 0.06, "rollouts": 4, "spread": False},
        "worse by one rollout": {"loss": 0.06, "rollouts": 1, "spread": False},
        "lost for good on few": {"loss": 0.0, "rollouts": 4, "lost": 0.06},
        "lost for good without noise": {"loss": 0.0, "rollouts": 64, "lost": 0.06},
    }.items(),
)
def test_a_policy_that_is_too_bad_is_seldom_accepted_though_every_problem_is_looked_at(
    name, settings
):
    rng = np.random.default_rng(1)
    differences = policies(rng, runs=300, problems=600, **settings)
    assert -0.07 < differences.mean() < -0.05
    looks = [sequential_test(run, floor=-0.05) for run in differences]
    wrong = np.mean([look.state == "accepted" for look in looks])
    assert wrong <= 0.05, name  # the true mean is a point below the floor


def test_an_equal_policy_is_seldom_rejected_and_mostly_accepted():
    rng = np.random.default_rng(2)
    looks = [
        sequential_test(run, floor=-0.05)
        for run in policies(rng, runs=200, problems=1000, loss=0.0, rollouts=4)
    ]
    states = [look.state for look in looks]
    assert states.count("rejected") / len(states) <= 0.05
    assert states.count("accepted") / len(states) >= 0.9
    assert np.median([look.problems for look in looks]) < 500


def test_at_the_floor_both_errors_together_stay_small():
    # exactly at the floor both verdicts are wrong, each with a chance of at most 5 %
    rng = np.random.default_rng(3)
    values = np.where(rng.random((300, 800)) < 0.475, 1.0, -1.0)  # mean −0.05
    states = [sequential_test(run, floor=-0.05).state for run in values]
    for state in ("accepted", "rejected"):
        assert states.count(state) / len(states) <= 0.05 + 0.025  # and two standard errors


def test_the_bounds_hold_for_whoever_stops_when_it_suits_him():
    rng = np.random.default_rng(4)
    values = rng.choice([-1.0, 0.0, 0.5], p=[0.1, 0.5, 0.4], size=(60, 200))  # mean 0.1
    highest = [max(lower_bound(run[:n]) for n in range(10, 201, 10)) for run in values]
    assert np.mean(np.array(highest) > 0.1) <= 0.05 + 0.03
