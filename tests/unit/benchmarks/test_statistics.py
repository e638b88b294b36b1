import pytest
from harness.statistics import exponent, ratio_of_medians


def test_the_ratio_is_that_of_the_medians():
    # medians 6 and 2; the outlier of 100 moves a mean, not a median
    found = ratio_of_medians([6.0, 5.0, 100.0], [2.0, 1.0, 3.0])
    assert found.value == 3.0


def test_without_noise_the_interval_is_a_point():
    assert ratio_of_medians([8.0] * 5, [2.0] * 5) == (4.0, 4.0, 4.0)


def test_what_slows_both_of_a_pair_leaves_the_ratio_alone():
    # each pair has the ratio 2, whatever the machine did meanwhile
    found = ratio_of_medians([2.0, 20.0, 6.0, 8.0], [1.0, 10.0, 3.0, 4.0])
    assert found == pytest.approx((2.0, 2.0, 2.0))


def test_more_repeats_make_it_surer():
    above = [4.0, 5.0, 6.0, 3.0, 5.5, 4.5, 5.2]
    few, many = (ratio_of_medians(above * n, [1.0] * 7 * n) for n in (1, 20))
    assert few.value == many.value == 5.0
    assert many.high - many.low < few.high - few.low


def test_the_same_repeats_give_the_same_interval():
    above, below = [4.0, 5.0, 6.0], [1.0, 2.0, 1.5]
    assert ratio_of_medians(above, below) == ratio_of_medians(above, below)


@pytest.mark.parametrize("above, below", [([], []), ([1.0, 0.0], [1.0, 1.0])])
def test_a_ratio_of_nothing_is_refused(above, below):
    with pytest.raises(ValueError, match="positive"):
        ratio_of_medians(above, below)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_that_power(power):
    sizes = [1.0, 2.0, 4.0, 8.0]
    assert exponent(sizes, [3 * size**power for size in sizes]) == pytest.approx((power,) * 3)


def test_a_cost_at_any_size_makes_the_exponent_smaller():
    # 10 + x from 10 to 40 grows 2.5 times while x grows 4 times: log 2.5 / log 4 = 0.66
    assert exponent([10.0, 40.0], [20.0, 50.0]).value == pytest.approx(0.66, abs=0.01)


def test_one_size_is_no_growth():
    with pytest.raises(ValueError, match="two sizes"):
        exponent([4.0, 4.0], [1.0, 2.0])
