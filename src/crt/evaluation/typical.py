"""One question that shows what several models are: right answers, as long as is usual for each."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from crt.types import Rollout


def typical_responses(
    rollouts: Sequence[Iterable[Rollout]], means: Sequence[float]
) -> list[Rollout] | None:
    """Right responses to one question, each shorter than the next, nearest to the mean lengths.

    `rollouts` are those of every model, the shortest first.
    """
    right = [first_correct(of_model) for of_model in rollouts]
    shown: list[tuple[float, tuple[str, str]]] = []
    for key in set.intersection(*map(set, right)):
        lengths = [own[key].length or 0 for own in right]
        if all(shorter < longer for shorter, longer in pairwise([0, *lengths])):
            ratios = zip(lengths, means, strict=True)
            shown.append((sum(abs(math.log(length / mean)) for length, mean in ratios), key))
    return [own[min(shown)[1]] for own in right] if shown else None


def first_correct(rollouts: Iterable[Rollout]) -> dict[tuple[str, str], Rollout]:
    """Data set and problem → its first correct response."""
    first: dict[tuple[str, str], Rollout] = {}
    for rollout in rollouts:
        if rollout.verdict == "correct":
            first.setdefault((rollout.dataset, rollout.problem_id), rollout)
    return first
