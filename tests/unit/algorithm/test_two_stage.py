import numpy as np
import pytest

from crt.algorithm.two_stage import (
    Candidate,
    Saturation,
    shortest_feasible,
    shortest_plausible,
    smoothed,
)


def test_the_shortest_that_keeps_the_guard_not_the_last():
    long = Candidate(10, accuracy=0.80, length=900, margin=0.02)
    good = Candidate(20, accuracy=0.79, length=500, margin=0.01)
    broken = Candidate(30, accuracy=0.70, length=300, margin=-0.08)
    assert shortest_feasible([long, good, broken]) == good


def test_of_equally_short_ones_the_most_accurate():
    # 500 · 1.05 = 525: the first two are equally short, the third is not, however accurate.
    short, better = Candidate(10, 0.79, 500, 0.01), Candidate(20, 0.81, 524, 0.03)
    assert shortest_feasible([short, better, Candidate(30, 0.90, 526, 0.12)]) == better
    assert shortest_feasible([short, Candidate(20, 0.79, 524, 0.01)]) == short


def test_exactly_at_the_floor_is_feasible():
    assert Candidate(1, 0.7, 100, margin=0.8 - 0.1 - 0.7).feasible


def test_a_noisier_measurement_is_never_easier_to_pass():
    # A margin of one point: shown by 0.8 points of noise, not by 1.2.
    assert Candidate(1, 0.8, 100, 0.010, 0.008).feasible
    assert not Candidate(1, 0.8, 100, 0.010, 0.012).feasible
    for margin in (-0.02, 0.0, 0.01, 0.05):
        passed = [Candidate(1, 0.8, 100, margin, noise / 1000).feasible for noise in range(60)]
        assert passed == sorted(passed, reverse=True)


def test_if_none_keeps_it_the_one_that_breaks_it_least():
    bad, worse = Candidate(10, 0.70, 500, -0.05), Candidate(20, 0.60, 300, -0.15)
    assert shortest_feasible([worse, bad]) == bad


def test_if_none_keeps_it_the_shortest_that_is_not_surely_broken():
    # 20 misses by 0.014 with a standard error of 0.017, so it may be feasible; 30 is not.
    early = Candidate(10, 0.887, 91, -0.003, 0.012)
    short = Candidate(20, 0.871, 55, -0.014, 0.017)
    broken = Candidate(30, 0.840, 40, -0.040, 0.019)
    assert shortest_feasible([early, short, broken]) == short
    assert not short.feasible


def test_the_shortest_that_may_keep_it():
    early = Candidate(10, 0.892, 89, 0.015, 0.013)
    short = Candidate(36, 0.860, 54, -0.016, 0.019)
    broken = Candidate(30, 0.840, 40, -0.040, 0.019)
    assert shortest_plausible([early, short, broken]) == short
    assert shortest_feasible([early, short, broken]) == early
    assert early.plausible and not broken.plausible
    assert shortest_plausible([broken]) == broken


def test_nothing_to_choose_from():
    with pytest.raises(ValueError):
        shortest_feasible([])


WINDOW = Saturation(window=20)


def test_without_a_window_stage_one_ends_at_the_latest_alone():
    flat = [1000.0] * 200
    assert not Saturation().reached(flat[:139], total_steps=200)
    assert Saturation().reached(flat[:140], total_steps=200)
    assert Saturation().reached(flat[:1], total_steps=200, tokens_spent=0.7)


def falling(percent_per_step: float, steps: int) -> list[float]:
    return list(1000 * (1 - percent_per_step / 100) ** np.arange(steps))


def test_smoothed_starts_at_the_first_value():
    assert smoothed([10, 20], past=0.9) == [10, 11]


def test_goes_on_while_length_falls():
    # 0.5 % a step is 10 % over 20 steps
    assert not WINDOW.reached(falling(0.5, 60), total_steps=200)


def test_ends_when_length_stays():
    # 0.05 % a step is 1 % over 20 steps, less than 2 %
    assert WINDOW.reached(falling(0.05, 60), total_steps=200)


def test_ends_when_length_rises():
    assert WINDOW.reached(list(range(1000, 1060)), total_steps=200)


def test_not_before_at_least():
    flat = [1000.0] * 60
    assert not WINDOW.reached(flat[:39], total_steps=200)
    assert WINDOW.reached(flat[:40], total_steps=200)


def test_at_the_latest_at_seventy_percent():
    steep = falling(3, 200)
    assert not WINDOW.reached(steep[:139], total_steps=200)
    assert WINDOW.reached(steep[:140], total_steps=200)


def test_noise_of_a_few_percent_does_not_end_it():
    noise = 1 + 0.03 * np.random.default_rng(0).standard_normal(60)
    assert not WINDOW.reached(list(falling(0.5, 60) * noise), total_steps=200)


@pytest.mark.parametrize("wrong", [{"window": -1}, {"latest": 1.5}, {"smoothing": 1.0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError):
        Saturation(**wrong)
