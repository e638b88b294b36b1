from math import comb

import numpy as np
import pytest

from crt.algorithm.metrics import AES1, aes
from crt.algorithm.statistics import (
    bootstrap,
    dirichlet_mean_cdf,
    equal_policies_spread,
    gaffke_bound,
    highest_bound,
    macro_non_inferiority,
    mean_interval,
    non_inferiority,
    problems_needed,
    shortfall,
    two_level,
)


def test_the_interval_of_equal_values_is_the_value():
    assert mean_interval([0.5] * 20, seed=0) == (0.5, 0.5, 0.5, 20)


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(0).random(50)
    assert mean_interval(values, seed=3) == mean_interval(values, seed=3)
    assert mean_interval(values, seed=3) != mean_interval(values, seed=4)


def test_the_interval_has_the_width_of_the_standard_error():
    values = np.random.default_rng(0).normal(0.5, 0.2, 400)
    interval = mean_interval(values, seed=0)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * 0.2 / 20, rel=0.1)


@pytest.mark.parametrize("problems", [30, 200])
def test_the_interval_covers_the_truth_as_often_as_it_says(problems):
    # problems solved with chance 0 to 1, 16 rollouts each; the true mean is 0.5
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(300):
        chance = rng.random(problems)
        accuracy = rng.binomial(16, chance) / 16
        interval = mean_interval(accuracy, seed=trial)
        covered += interval.low <= 0.5 <= interval.high
    assert covered / 300 == pytest.approx(0.95, abs=0.035)


def test_paired_arrays_are_resampled_together():
    # a model that saves exactly half on every problem saves half in every resample
    length = np.random.default_rng(0).uniform(100, 1000, 60)
    saved = bootstrap(lambda new, old: 1 - new / old, length / 2, length, seed=0)
    assert (saved.value, saved.low, saved.high) == pytest.approx((0.5, 0.5, 0.5))


def test_aes_has_an_interval():
    rng = np.random.default_rng(0)
    base, base_length = rng.random(100), rng.uniform(500, 1500, 100)
    accuracy, length = np.clip(base + rng.normal(0, 0.1, 100), 0, 1), base_length * 0.6
    score = bootstrap(
        lambda a, n, b, m: aes(a, n, b, m, AES1), accuracy, length, base, base_length, seed=0
    )
    assert score.low < score.value < score.high


@pytest.mark.parametrize("bad", [[], [np.nan, 1.0]])
def test_no_interval_without_numbers(bad):
    with pytest.raises(ValueError):
        mean_interval(bad, seed=0)


def test_without_any_difference_the_bound_is_the_binomial_one():
    # n problems, none worse: with confidence 95 % the share of worse ones is below 1 − 0.05^(1/n)
    for problems in (10, 299, 10_000):
        bound = gaffke_bound([np.zeros(problems)], 0.95)
        assert bound == pytest.approx(0.05 ** (1 / problems) - 1, abs=2e-9)


@pytest.mark.parametrize(("problems", "lost"), [(20, 3), (500, 20), (1319, 1)])
def test_with_some_problems_lost_it_is_the_exact_binomial_bound_too(problems, lost):
    # Clopper-Pearson: of n problems k or fewer are lost with chance 5 % if the bound were true
    share = -gaffke_bound([np.repeat([-1.0, 0.0], [lost, problems - lost])], 0.95)
    chances = [
        comb(problems, k) * share**k * (1 - share) ** (problems - k) for k in range(lost + 1)
    ]
    assert sum(chances) == pytest.approx(0.05, abs=1e-7)


def test_the_distribution_of_a_weighted_mean_by_hand():
    # weights (w, 1 − w) with w uniform: the mean of −1 and 1 is 1 − 2w, uniform from −1 to 1
    assert dirichlet_mean_cdf(np.array([-1.0, 1.0]), [1, 1], 0.5) == pytest.approx(0.75)
    # three points −1, 0, 1 with equal counts: the mean is symmetric around 0
    assert dirichlet_mean_cdf(np.array([-1.0, 0.0, 1.0]), [4, 2, 4], 0.0) == pytest.approx(0.5)
    assert dirichlet_mean_cdf(np.array([-1.0, 1.0]), [1, 1], -1.0) == 0
    assert dirichlet_mean_cdf(np.array([-1.0, 1.0]), [1, 1], 1.0) == 1


def test_the_bound_is_the_quantile_of_drawn_weights():
    values = np.array([-1.0, -0.25, 0.0, 0.02, 0.75, 1.0])
    counts = np.array([3, 40, 200, 100, 35, 6])
    weights = np.random.default_rng(0).dirichlet(counts + np.array([1, 0, 0, 0, 0, 0]), 200_000)
    drawn = np.quantile(weights @ values, 0.05)
    # 384 problems with a deviation of 0.27: an error of 0.014, of which the draws leave 0.5 %
    assert gaffke_bound([np.repeat(values, counts)], 0.95) == pytest.approx(drawn, abs=2e-4)


def test_a_certificate_by_hand():
    # 400 differences of +0.1 and −0.1 in turn: mean 0, error 0.005; the point more at −1 moves the
    # mean to −1/401 and the error to √(400 · 0.01 + 1)/401 = 0.0056: −0.0025 − 1.645 · 0.0056
    certificate = non_inferiority(np.tile([0.6, 0.4], 200), np.full(400, 0.5), tolerance=0.015)
    assert certificate.difference == pytest.approx(0.0)
    assert certificate.lower_bound == pytest.approx(-0.0117, abs=5e-4)
    assert certificate.passed and certificate.problems == 400
    assert not non_inferiority(np.tile([0.6, 0.4], 200), np.full(400, 0.5), 0.01).passed


def test_equal_answers_are_certified_from_299_problems_on():
    # 0.99^298 = 0.05002, 0.99^299 = 0.0495
    assert not non_inferiority(np.ones(298), np.ones(298), tolerance=0.01).passed
    assert non_inferiority(np.ones(299), np.ones(299), tolerance=0.01).passed
    assert problems_needed(0.01) == 299
    assert problems_needed(0.05) == 59 and problems_needed(0.01, level=0.99) == 459
    assert problems_needed(0.0) is None and problems_needed(1.0) == 1


NOISE = 3 * (0.05 * 0.95 / 600) ** 0.5  # of a share of 5 % in 600 trials, three times


@pytest.mark.parametrize("problems", [10, 50, 100, 400, 1319])
@pytest.mark.parametrize(("broken", "accuracy"), [(0.02, 0.6), (0.02, 1.0), (0.01, 1.0)])
def test_a_policy_that_fails_for_good_on_few_problems_is_seldom_certified(
    problems, broken, accuracy
):
    # it loses 1.2, 2 and exactly 1 point; elsewhere it answers as the base does
    lost = np.random.default_rng(problems).binomial(problems, broken * accuracy, 600)
    passed = {
        k: non_inferiority(np.repeat([0.0, 1.0], [k, problems - k]), np.ones(problems), 0.01).passed
        for k in set(lost)
    }
    assert np.mean([passed[k] for k in lost]) <= 0.05 + NOISE


def share_passed(draw, problems, trials=600, tolerance=0.01):
    """How often the certificate passes; `draw` makes the differences of so many problems."""
    rng = np.random.default_rng(problems)
    passed = 0
    for _ in range(trials):
        values, counts = np.unique(np.append(draw(rng, problems), -1.0), return_counts=True)
        passed += dirichlet_mean_cdf(values, counts, -tolerance) <= 0.05
    return passed / trials


@pytest.mark.parametrize("problems", [30, 200, 1319])
@pytest.mark.parametrize("rollouts", [1, 4, 16])
def test_a_policy_that_is_worse_by_the_tolerance_is_seldom_certified(problems, rollouts):
    def draw(rng, count):
        chance = rng.uniform(0.6, 1.0, count)
        base = rng.binomial(rollouts, chance, count)
        return (rng.binomial(rollouts, chance - 0.01, count) - base) / rollouts

    assert share_passed(draw, problems) <= 0.05 + NOISE


def test_an_average_is_seldom_certified_if_one_of_its_sets_is_broken():
    # 3 % of one set of two: the average loses 1.5 points; each set has a point of its own at −1
    rng, passed = np.random.default_rng(0), 0
    for _ in range(40):
        broken = -(rng.random(400) < 0.03).astype(float)
        passed += macro_non_inferiority([broken, np.zeros(400)], 0.01).passed
    assert passed <= 5


def test_an_average_of_two_equal_sets_by_hand():
    # no difference on 2 × 300: the average is −(E₁ + E₂)/600 with two exponentials, whose sum is
    # below 4.744 with chance 95 %: (1 + x)·exp(−x) = 0.05
    found = macro_non_inferiority([np.zeros(300), np.zeros(300)], 0.01)
    assert found.lower_bound == pytest.approx(-4.744 / 600, rel=0.02)
    assert found.passed and found.problems == 600


def test_an_equal_policy_is_certified_as_often_as_promised():
    # accuracy 0.8, 16 rollouts: differences of √(2 · 0.8 · 0.2 / 16) = 0.1414
    spread = equal_policies_spread(0.8, 16)
    assert spread == pytest.approx(0.1414, abs=1e-4)
    needed = problems_needed(0.01, spread)
    assert needed is not None and 1237 < needed < 1700  # (1.645 + 0.842)² · 0.02 / 0.01² and more

    def draw(rng, count):
        return (rng.binomial(16, 0.8, count) - rng.binomial(16, 0.8, count)) / 16

    assert share_passed(draw, needed) == pytest.approx(0.8, abs=0.05)
    assert non_inferiority(draw(np.random.default_rng(0), 400), np.zeros(400), 0.01).needed == (
        pytest.approx(needed, rel=0.15)
    )


def test_how_many_problems_are_missing_in_a_sentence():
    assert shortfall(0.01, 400, 1450) == (
        "To certify an equally good policy within 1 point needs about 1,450 problems (80 % power); "
        "this evaluation has 400."
    )
    assert shortfall(0.01, 1500, 1450) == ""
    assert "within 0 points" in shortfall(0.0, 400, None)


def test_no_bound_is_higher_than_that_of_equal_differences():
    # all +0.1 on 300 problems: (0.1 + 1) · 0.05^(1/300) − 1
    assert highest_bound(0.1, 300, 0.95) == pytest.approx(1.1 * 0.05 ** (1 / 300) - 1)
    assert gaffke_bound([np.full(300, 0.1)], 0.95) == pytest.approx(highest_bound(0.1, 300, 0.95))
    spread = np.tile([0.2, 0.0], 150)
    assert gaffke_bound([spread], 0.95) < highest_bound(0.1, 300, 0.95)


@pytest.mark.parametrize("bad", [[], [np.nan], [1.5]])
def test_no_certificate_without_accuracies(bad):
    with pytest.raises(ValueError):
        non_inferiority(bad, np.zeros(len(bad)), 0.01)


def test_two_seeds_without_noise_of_problems_are_drawn_alone():
    # of seeds 0 and 1 the drawn means are 0, 0.5 and 1 with chances 1/4, 1/2 and 1/4
    drawn = np.repeat([[0.0], [1.0]], 2000, axis=1)
    assert two_level([0.0, 1.0], drawn, problems=50, seed=0) == (0.5, 0.0, 1.0, 50)
    wide = two_level([0.0, 1.0], drawn, problems=50, seed=0, level=0.4)  # the middle half
    assert (wide.low, wide.high) == (0.5, 0.5)


def test_equal_seeds_leave_the_interval_over_problems():
    values = np.random.default_rng(0).random(80)
    alone = mean_interval(values, seed=0)
    counts = np.random.default_rng(0).multinomial(80, np.full(80, 1 / 80), size=2000)
    drawn = np.tile(counts @ values / 80, (3, 1))  # what each of three equal seeds gives
    both = two_level([values.mean()] * 3, drawn, problems=80, seed=1)
    assert both == pytest.approx(alone)


def test_both_levels_add_up():
    # three seeds with means spread by 0.1 and problems that move them all by 0.1: the seeds' part
    # of the variance of the mean is 0.1² · (2/3) / 3, the problems' 0.1²
    shift = 0.1 * np.random.default_rng(0).standard_normal(200_000)
    values = np.array([-0.1, 0.0, 0.1])
    found = two_level(values, values[:, None] + shift, problems=50, seed=2, level=0.6827)
    assert (found.high - found.low) / 2 == pytest.approx((0.01 * 2 / 9 + 0.01) ** 0.5, rel=0.02)


def test_a_resample_without_value_leaves_no_interval():
    found = two_level([0.0, 1.0], [[0.0, np.nan], [1.0, 1.0]], problems=5, seed=0)
    assert found.value == 0.5 and np.isnan(found.low) and np.isnan(found.high)
