"""The table of styles: shares, and the shortest mixture at an accuracy, by hand-made figures."""

import pytest

from tools.pocket.measure import Figures, best, check, envelope, front, spread

EVEN = dict.fromkeys((1, 2, 3, 4), 0.25)


def row(length: float, *right: float) -> Figures:
    by_level = dict(zip((1, 2, 3, 4), right, strict=True))
    lengths = dict.fromkeys(by_level, length)
    return Figures(0.0, 0.0, length, 0.0, 0.0, by_level, lengths, {}, 1)


STYLES = {
    "guess": row(10, 0, 0, 0, 0),
    "head": row(30, 100, 80, 0, 0),
    "steps": row(51, 100, 80, 0, 0),  # as right as in one go, and longer
    "broken": row(50, 100, 100, 100, 80),
    "redundant": row(120, 100, 100, 100, 80),
}


FRONT = front(STYLES, EVEN)


def test_the_front_leads_from_the_shortest_style_to_the_most_reliable():
    # Level 1 gains 100 points for 20 tokens, level 2 gains 80 for 20 and 20 for 20 more, level 3
    # 100 for 40, level 4 80 for 40; a level has a quarter of the weight.
    expected = [(0, 10), (25, 15), (45, 20), (70, 30), (90, 40), (95, 45)]
    assert [(corner.accuracy, corner.length) for corner in FRONT] == expected
    assert FRONT[0].shares == {n: {"guess": 1.0} for n in (1, 2, 3, 4)}
    assert FRONT[1].shares == {**FRONT[0].shares, 1: {"head": 1.0}}


def test_the_shortest_way_to_the_highest_accuracy():
    # level 1 in the head (30), the others broken down (50): 180 / 4 = 45
    found = best(FRONT, 95)
    assert (found.accuracy, found.length) == pytest.approx((95, 45))
    assert found.shares[1] == {"head": 1.0}
    assert found.shares[4] == {"broken": 1.0}


def test_what_is_not_needed_is_not_bought():
    # Steepest first: level 1 in the head (5 points a token), 2 in the head (4), 3 broken
    # down (2.5): 70 % at 30, 30, 50, 10. Level 4 (2 a token) then gives the last 10 points with
    # half of its answers broken down: 20 more tokens at a quarter of the weight.
    found = best(FRONT, 80)
    assert found.accuracy == pytest.approx(80)
    assert found.shares[4] == pytest.approx({"guess": 0.5, "broken": 0.5})
    assert found.length == pytest.approx((30 + 30 + 50 + 30) / 4)


def test_what_no_mixture_reaches_is_refused():
    with pytest.raises(ValueError, match="96"):
        best(FRONT, 96)


def test_dominated_and_mixed_points_leave_the_envelope():
    points = [(10, 0, "a"), (20, 10, "b"), (30, 60, "c"), (40, 55, "d")]
    # b lies under the line from a to c; d is longer and worse than c
    assert [style for _, _, style in envelope(points)] == ["a", "c"]


def test_a_check_allows_for_its_own_sample_and_for_what_was_measured():
    free = Figures(100.0, 80.0, 100.0, 40.0, 0.0, {}, {}, {}, 1600)
    found = check(free, measured=400, problems=100)
    # 1/100 + 1/400 = 1/80; 3.5 · √(80 · 20 / 80) = 15.65; 3.5 · 40 / √80 = 15.65
    assert found.accuracy == pytest.approx((64.35, 95.65), abs=0.01)
    assert found.length == pytest.approx((84.35, 115.65), abs=0.01)


def test_the_spread_is_the_standard_deviation():
    assert spread([1.0, 3.0]) == 1.0
