import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crt.algorithm.metrics import (
    AES1,
    AES2,
    AesWeights,
    aes,
    matched_zip_ratios,
    pareto_front,
    transitions,
    zip_ratio,
    zip_ratios,
)


def test_aes_by_hand():
    # half the tokens: ΔL = 0.5; accuracy 0.8 → 0.88: ΔA = 0.1; 0.5 + 3 · 0.1
    assert aes(0.88, 500, 0.8, 1000, AES1) == pytest.approx(0.8)
    # accuracy 0.8 → 0.72: ΔA = −0.1; 0.5 − 5 · 0.1 and 0.5 − 10 · 0.1
    assert aes(0.72, 500, 0.8, 1000, AES1) == pytest.approx(0.0)
    assert aes(0.72, 500, 0.8, 1000, AES2) == pytest.approx(-0.5)


def test_aes_of_the_base_is_zero_and_longer_is_negative():
    assert aes(0.8, 1000, 0.8, 1000) == 0
    assert aes(0.8, 1500, 0.8, 1000) == pytest.approx(-0.5)


def test_aes_takes_any_weights_and_any_unit_of_accuracy():
    assert aes(88, 500, 80, 1000, AesWeights(2, 1, 1)) == pytest.approx(2 * 0.5 + 0.1)


def test_aes_works_element_by_element():
    scores = aes([0.88, 0.72], [500, 500], 0.8, 1000, AES1)
    assert scores == pytest.approx([0.8, 0.0])


@pytest.mark.parametrize("base", [(0.0, 100), (0.5, 0), (float("nan"), 100)])
def test_a_base_that_solves_nothing_has_no_aes(base):
    with pytest.raises(ValueError, match="above 0"):
        aes(0.5, 100, *base)


def test_the_front_holds_who_nobody_beats():
    # the second is shorter and as accurate as the first, the third is the shortest
    front = pareto_front(length=[100, 60, 40, 70], accuracy=[90, 90, 80, 85])
    assert front.tolist() == [False, True, True, False]


def test_equal_points_are_both_on_the_front():
    assert pareto_front([50, 50], [90, 90]).tolist() == [True, True]
    assert pareto_front([], []).tolist() == []


def test_zip_ratio_by_hand():
    text = "the same again. " * 50
    packed = gzip.compress(text.encode(), 9, mtime=0)
    assert zip_ratio(text) == len(packed) / 800
    assert zip_ratio(text) < 0.1


def test_repetition_lowers_the_zip_ratio():
    once = "2 bolts of blue and half as much white make 2 + 1 = 3 bolts."
    assert zip_ratio(once + " Wait, let me check. " + once) < zip_ratio(once)


def test_zip_ratio_counts_bytes_not_characters():
    assert zip_ratio("é") == len(gzip.compress("é".encode(), 9, mtime=0)) / 2


def test_two_texts_at_equal_length_by_hand():
    # gzip has 18 bytes of head and tail, and two more: "abcd" packs to 24 bytes, "ab" to 22; é is
    # two bytes
    assert matched_zip_ratios("ab", "abcd") == (22 / 2, 22 / 2)
    assert matched_zip_ratios("abcd", "é") == (zip_ratio("ab"), zip_ratio("é"))
    assert matched_zip_ratios("abcd", "bcda") == (24 / 4, 24 / 4)
    assert np.isnan(matched_zip_ratios("abcd", "")).all()


def test_at_equal_length_only_content_is_left():
    text = "Wait, let me check that again. " * 20
    short, whole = matched_zip_ratios(text[:62], text)
    assert short == whole == zip_ratio(text[:62]) > 4 * zip_ratio(text)
    dense, loose = matched_zip_ratios("7 × 46 = 322, 322 − 21 = 301, so \\boxed{301}", "no, " * 99)
    assert dense > 1.5 * loose


def test_an_empty_response_has_no_ratio():
    assert np.isnan(zip_ratio(""))
    assert zip_ratios(["", "abc"], [True, True]).all == zip_ratio("abc")


def test_zip_ratios_by_verdict():
    texts, correct = ["aaaa" * 99, "abcd", "zzzz"], [True, True, False]
    ratios = zip_ratios(texts, correct)
    one, two, three = map(zip_ratio, texts)
    assert ratios == pytest.approx(((one + two + three) / 3, (one + two) / 2, three))
    assert np.isnan(zip_ratios(["a"], [True]).wrong)


@given(st.text())
def test_zip_ratio_never_fails(text):
    ratio = zip_ratio(text)
    assert np.isnan(ratio) if not text else ratio > 0


def test_transitions_look_only_at_problems_that_got_shorter():
    base_accuracy = [0.5, 0.5, 0.5, 0.5, 0.5]
    base_length = [100, 100, 100, 100, 100]
    accuracy = [0.4, 0.5, 0.6, 0.0, 1.0]
    length = [90, 90, 90, 100, 110]  # the last two did not get shorter
    result = transitions(accuracy, length, base_accuracy, base_length)
    assert (result.decreased, result.preserved, result.improved) == (1, 1, 1)
    assert result.shortened == 3
    assert result.percent == pytest.approx((100 / 3, 100 / 3, 100 / 3))


def test_equal_shares_of_other_group_sizes_are_equal():
    # 3 of 10 against 0.1 + 0.2: the same share in other floats
    assert transitions([0.1 + 0.2], [1], [3 / 10], [2]).preserved == 1


def test_nothing_got_shorter():
    assert all(np.isnan(transitions([1.0], [2], [1.0], [1]).percent))
