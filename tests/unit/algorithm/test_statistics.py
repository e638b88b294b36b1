import numpy as np
import pytest

from crt.algorithm.metrics import AES1, aes
from crt.algorithm.statistics import (
    bootstrap,
    mean_interval,
    non_inferiority,
    student_quantile,
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


@pytest.mark.parametrize(
    ("degrees", "quantile"),  # tables of Student's t, one-sided 95 %
    [(1, 6.3138), (2, 2.9200), (4, 2.1318), (9, 1.8331), (29, 1.6991), (499, 1.6479)],
)
def test_student_quantile(degrees, quantile):
    assert student_quantile(0.95, degrees) == pytest.approx(quantile, abs=2e-3)


def test_a_certificate_by_hand():
    # differences +0.1 and −0.1 in turn, 16 problems: mean 0, deviation 0.1033, error 0.0258
    accuracy = np.tile([0.6, 0.4], 8)
    certificate = non_inferiority(accuracy, np.full(16, 0.5), tolerance=0.05)
    assert certificate.difference == pytest.approx(0.0)
    assert certificate.lower_bound == pytest.approx(-1.7531 * 0.0258, abs=1e-3)  # t, 15 degrees
    assert certificate.held
    assert not non_inferiority(accuracy, np.full(16, 0.5), tolerance=0.04).held


def test_a_certificate_needs_problems_enough():
    assert not non_inferiority([1.0] * 9, [1.0] * 9, tolerance=0.0).held
    assert non_inferiority([1.0] * 10, [1.0] * 10, tolerance=0.0).held


@pytest.mark.parametrize("problems", [30, 200])
def test_a_policy_that_is_worse_by_the_tolerance_is_seldom_certified(problems):
    # the true difference is exactly −ε: at most one certificate in twenty may be wrong
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(1000):
        chance = rng.uniform(0.1, 0.9, problems)
        policy = rng.binomial(16, chance - 0.05) / 16
        reference = rng.binomial(16, chance) / 16
        wrong += non_inferiority(policy, reference, tolerance=0.05).held
    assert wrong / 1000 <= 0.07


def test_an_equal_policy_is_certified_when_there_is_enough_data():
    rng = np.random.default_rng(1)
    chance = rng.random(1319)
    policy, reference = rng.binomial(16, chance) / 16, rng.binomial(16, chance) / 16
    assert non_inferiority(policy, reference, tolerance=0.01).held


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
