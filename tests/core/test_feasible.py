import pytest

from crt.core.feasible import Candidate, shortest_feasible, shortest_plausible


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
