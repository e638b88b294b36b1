"""Which checkpoints become levels: feasible in accuracy, on the front, spread over the lengths."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from crt.algorithm.guard import EDGE
from crt.algorithm.two_stage import EQUALLY_SHORT

FULL = "full"
WORDS = ("concise", "balanced", "detailed")  # by length; the base is `full`
MOST_LEVELS = 16
APART = 1.1  # ratio of lengths below which nobody would notice another level


@dataclass(frozen=True)
class Measured:
    """A checkpoint as it was measured; `difference` and `lower_bound` are against the base."""

    name: str
    accuracy: float  # in [0, 1], as are the two below
    length: float
    difference: float
    lower_bound: float

    def feasible(self, tolerance: float) -> bool:
        """Its accuracy is within the tolerance of the base's, as measured."""
        return self.difference >= -tolerance - EDGE

    def certified(self, tolerance: float) -> bool:
        """The same with confidence."""
        return self.lower_bound >= -tolerance - EDGE


def pareto_front(points: Sequence[Measured]) -> list[Measured]:
    """Those that no other beats in accuracy and length, shortest first."""
    front: list[Measured] = []
    for point in _shortest_first(points):
        if not front or point.accuracy > front[-1].accuracy + EDGE:
            front.append(point)
    return front


def told_apart(points: Sequence[Measured], tolerance: float) -> list[Measured]:
    """Of those equally short the most accurate; longer ones if noticeably so or clearly better."""
    kept: list[Measured] = []
    shortest = 0.0  # of those that the last one kept stands for
    for point in _shortest_first(points):
        if kept and point.length <= (1 + EQUALLY_SHORT) * shortest:
            if point.accuracy > kept[-1].accuracy + EDGE:
                kept[-1] = point
            continue
        longer = not kept or point.length >= APART * kept[-1].length
        if longer or point.accuracy > kept[-1].accuracy + tolerance + EDGE:
            kept.append(point)
            shortest = point.length
    return kept


def _shortest_first(points: Sequence[Measured]) -> list[Measured]:
    return sorted(points, key=lambda p: (p.length, -p.accuracy, p.name))


def spread(
    points: Sequence[Measured], count: int, longest: float, begun: Sequence[Measured] = ()
) -> list[Measured]:
    """At most `count`, those begun with among them: each the farthest in ratio from all before.

    `longest` stands before all, so the first is the shortest.
    """
    chosen = list(begun)
    while len(chosen) < count and (left := [p for p in points if p not in chosen]):
        taken = [longest, *(p.length for p in chosen)]
        chosen.append(max(left, key=lambda p: min(abs(math.log(p.length / t)) for t in taken)))
    return sorted(chosen, key=lambda p: p.length)


def level_names(count: int) -> list[str]:
    """Names for checkpoints, shortest first: words for up to three, numbers for more."""
    if count <= len(WORDS):
        return list(WORDS[:count])
    return [f"level-{number}" for number in range(1, count + 1)]


def choose(
    points: Sequence[Measured],
    base_length: float,
    *,
    levels: int,
    tolerance: float,
    uncertified: bool = False,
    strict: bool = False,
) -> list[tuple[str, Measured]]:
    """Names and checkpoints of the levels below `full`, shortest first.

    Without `uncertified` only those that hold the certificate are looked at. The front comes first;
    places it leaves go to longer ones, for who wants more words, unless `strict`.
    """
    fit = [p for p in points if 0 < p.length < base_length and p.feasible(tolerance)]
    if not uncertified:
        fit = [point for point in fit if point.certified(tolerance)]
    fit = told_apart(fit, tolerance)
    chosen = spread(pareto_front(fit), levels - 1, base_length)
    if not strict:
        chosen = spread(fit, levels - 1, base_length, chosen)
    return list(zip(level_names(len(chosen)), chosen, strict=True))
