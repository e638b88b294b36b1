"""Which checkpoints become levels: accurate enough, on the Pareto front, spread by length."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from crt.algorithm.guard import EDGE
from crt.algorithm.two_stage import EQUALLY_SHORT

FULL = "full"
LEVEL_NAMES = ("concise", "balanced", "detailed")  # by length; the base is `full`
MOST_LEVELS = 16
NOTICEABLE = 1.1  # ratio of lengths below which nobody would notice another level


@dataclass(frozen=True)
class Candidate:
    """A measured checkpoint; `difference` and `lower_bound` are against the base's accuracy."""

    name: str
    accuracy: float  # in [0, 1], as are the two below
    length: float
    difference: float
    lower_bound: float

    def feasible(self, tolerance: float) -> bool:
        """The measured accuracy is within the tolerance of the base's."""
        return self.difference >= -tolerance - EDGE

    def certified(self, tolerance: float) -> bool:
        """The same with confidence."""
        return self.lower_bound >= -tolerance - EDGE


def choose_levels(
    candidates: Sequence[Candidate],
    base_length: float,
    *,
    levels: int,
    tolerance: float,
    uncertified: bool = False,
    front_only: bool = False,
) -> list[tuple[str, Candidate]]:
    """Names and checkpoints of the levels below `full`, shortest first.

    Only certified checkpoints count, unless `uncertified`. The Pareto front comes first. Places
    that it leaves go to longer checkpoints, unless `front_only`.
    """
    usable = [
        c
        for c in candidates
        if 0 < c.length < base_length
        and c.feasible(tolerance)
        and (uncertified or c.certified(tolerance))
    ]
    distinct = merge_similar(usable, tolerance)
    chosen = spread_by_length(pareto_front(distinct), levels - 1, base_length)
    if not front_only:
        chosen = spread_by_length(distinct, levels - 1, base_length, chosen)
    return list(zip(level_names(len(chosen)), chosen, strict=True))


def pareto_front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other beats in accuracy and length, shortest first."""
    front: list[Candidate] = []
    for candidate in _shortest_first(candidates):
        if not front or candidate.accuracy > front[-1].accuracy + EDGE:
            front.append(candidate)
    return front


def merge_similar(candidates: Sequence[Candidate], tolerance: float) -> list[Candidate]:
    """Of equally short ones the most accurate; a longer one if noticeably so or clearly better."""
    kept: list[Candidate] = []
    shortest = 0.0  # of those that the last one kept represents
    for candidate in _shortest_first(candidates):
        if kept and candidate.length <= (1 + EQUALLY_SHORT) * shortest:
            if candidate.accuracy > kept[-1].accuracy + EDGE:
                kept[-1] = candidate
            continue
        longer = not kept or candidate.length >= NOTICEABLE * kept[-1].length
        if longer or candidate.accuracy > kept[-1].accuracy + tolerance + EDGE:
            kept.append(candidate)
            shortest = candidate.length
    return kept


def spread_by_length(
    candidates: Sequence[Candidate],
    count: int,
    longest: float,
    chosen: Sequence[Candidate] = (),
) -> list[Candidate]:
    """At most `count`, `chosen` included; each next one is the farthest in ratio from all others.

    `longest` counts as taken, so the first one is the shortest.
    """
    picked = list(chosen)
    while len(picked) < count and (left := [c for c in candidates if c not in picked]):
        taken = [longest, *(c.length for c in picked)]
        picked.append(max(left, key=lambda c: min(abs(math.log(c.length / t)) for t in taken)))
    return sorted(picked, key=lambda c: c.length)


def level_names(count: int) -> list[str]:
    """Names for checkpoints, shortest first: words for up to three, numbers for more."""
    if count <= len(LEVEL_NAMES):
        return list(LEVEL_NAMES[:count])
    return [f"level-{number}" for number in range(1, count + 1)]


def _shortest_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda c: (c.length, -c.accuracy, c.name))
