import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crt.algorithm.length import normalised_length

lengths = st.lists(st.integers(1, 32768), min_size=2, max_size=16).map(
    lambda row: np.array([row], dtype=float)
)


def test_known_answer():
    # mean 2, population spread sqrt(2/3) = 0.816: z = -1.2247, 0, 1.2247
    length = np.array([[1.0, 2.0, 3.0]])
    assert normalised_length(length, like=length)[0] == pytest.approx(
        [0.2271, 0.5, 0.7729], abs=1e-4
    )


def test_equal_lengths_are_all_one_half():
    length = np.full((1, 4), 7.0)
    assert normalised_length(length, like=length).tolist() == [[0.5] * 4]


def test_every_problem_has_its_own_scale():
    length = np.array([[1.0, 2.0, 3.0], [1000.0, 2000.0, 3000.0]])
    short, long = normalised_length(length, like=length)
    assert short == pytest.approx(long)


def test_frozen_statistics_show_a_level():
    # the reference answers in 90 and 110 tokens: mean 100, spread 10; 120 is two spreads above
    reference = np.array([[90.0, 110.0]])
    value = normalised_length(np.array([[120.0]]), like=reference, frozen=True)
    assert value[0, 0] == pytest.approx(1 / (1 + np.exp(-2)))


def test_own_statistics_show_no_level():
    # ten times as long, and the mean is the same: it ranks, it does not measure
    length = np.array([[10.0, 20.0, 60.0]])
    assert normalised_length(10 * length, like=10 * length).mean() == pytest.approx(
        normalised_length(length, like=length).mean()
    )


def test_a_frozen_reference_of_constant_length_is_no_cliff():
    # spread 0 counts as one token: one token more is sigmoid(1), not 1
    reference = np.array([[100.0, 100.0]])
    value = normalised_length(np.array([[101.0]]), like=reference, frozen=True)
    assert value[0, 0] == pytest.approx(1 / (1 + np.exp(-1)))


def test_the_floor_of_the_frozen_spread_grows_with_the_mean():
    # mean 20000: a thousandth is 20 tokens
    reference = np.array([[20000.0, 20000.0]])
    value = normalised_length(np.array([[20020.0]]), like=reference, frozen=True)
    assert value[0, 0] == pytest.approx(1 / (1 + np.exp(-1)))


@given(lengths, lengths, st.booleans())
def test_within_zero_and_one_and_in_the_order_of_length(length, like, frozen):
    value = normalised_length(length, like, frozen)[0]
    assert ((value >= 0) & (value <= 1)).all()
    order = np.argsort(length[0], kind="stable")
    assert (np.diff(value[order]) >= 0).all()
