"""Levels are feasible, certified unless asked otherwise, on the front, and spread by length."""

from crt.levels.build import (
    SeriesPoint,
    choose_levels,
    level_names,
    merge_similar,
    pareto_front,
    spread_by_length,
)
from tests.support.levels import certificate, interval


def point(name, accuracy, length, lower_bound=None, base=0.90):
    difference = accuracy - base
    bound = difference - 0.005 if lower_bound is None else lower_bound
    return SeriesPoint(
        name=name,
        step=10,
        folder=name,
        acc=interval(100 * accuracy),
        len=interval(length),
        certificate=certificate(bound, difference, problems=10_000),
    )


def names(points):
    return [each.name for each in points]


def test_the_front_is_what_no_shorter_one_equals():
    points = [
        point("a", 0.90, 50),
        point("b", 0.90, 60),
        point("c", 0.92, 80),
        point("d", 0.91, 90),
    ]
    assert names(pareto_front(points)) == ["a", "c"]


def test_without_certificate_not_offered_unless_asked_for():
    points = [point("sure", 0.90, 60, lower_bound=-0.009), point("unsure", 0.90, 50, -0.02)]
    how = {"levels": 4, "tolerance": 0.01}
    assert choose_levels(points, 100, **how) == [points[0]]
    both = choose_levels(points, 100, **how, uncertified=True)
    assert names(both) == ["unsure", "sure"]


def test_what_lost_accuracy_is_never_a_level():
    lost = point("lost", 0.88, 50)  # two points below the base; one is allowed
    assert choose_levels([lost], 100, levels=4, tolerance=0.01, uncertified=True) == []


def test_what_is_longer_than_the_base_is_no_level():
    assert choose_levels([point("long", 0.95, 120)], 100, levels=4, tolerance=0.01) == []


def test_the_front_alone_when_asked_for():
    points = [point("a", 0.90, 50), point("b", 0.90, 60)]
    chosen = choose_levels(points, 100, levels=4, tolerance=0.01, front_only=True)
    assert names(chosen) == ["a"]


def test_levels_differ_in_length_or_clearly_in_accuracy():
    lengths = {"short": 50, "same": 54, "longer": 56}  # 1.08 and 1.12 times 50
    points = [point(name, 0.90, length) for name, length in lengths.items()]
    assert names(merge_similar(points, 0.01)) == ["short", "longer"]
    better = [point("a", 0.90, 50), point("b", 0.905, 54), point("c", 0.92, 54.5)]
    assert names(merge_similar(better, 0.01)) == ["a", "c"]  # half a point is not worth a level
    chosen = choose_levels([*points, *better[1:]], 100, levels=4, tolerance=0.01)
    assert names(chosen) == ["short", "c"]


def test_of_those_equally_short_the_most_accurate():
    points = [point("a", 0.90, 50), point("b", 0.92, 51), point("c", 0.91, 52.5)]
    assert names(merge_similar(points, 0.01)) == ["b"]
    # 52.6 is more than a twentieth longer than the shortest: clearly better, so a level of its own.
    assert names(merge_similar([*points, point("d", 0.94, 52.6)], 0.01)) == ["b", "d"]


def test_longer_ones_only_fill_places_the_front_leaves():
    points = [point("a", 0.90, 50), point("beside", 0.90, 55), point("b", 0.92, 80)]
    chosen = choose_levels(points, 100, levels=3, tolerance=0.01)
    assert names(chosen) == ["a", "b"]


def test_spread_keeps_the_shortest_and_equal_ratios():
    front = [point(str(n), 0.9 + n / 10_000, n) for n in (50, 55, 100, 190, 380)]
    # 50 first; 190 is 3.8 times that and 400 2.1 times 190; 100 then is farther from all than 55
    assert names(spread_by_length(front, 3, 400)) == ["50", "100", "190"]
    assert names(spread_by_length(front, 1, 400)) == ["50"]
    assert spread_by_length([], 3, 400) == []


def test_names_by_length():
    assert level_names(1) == ["concise"]
    assert level_names(3) == ["concise", "balanced", "detailed"]
    assert level_names(4) == ["level-1", "level-2", "level-3", "level-4"]
