"""From a step's graded rollouts to its advantages: the same call in every engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

import numpy as np

from crt.core.advantage import Estimator
from crt.core.batch import Array, Batch, TruncatedAs, batch_of
from crt.core.objectives import Objective
from crt.core.signal import Signal, signal
from crt.types import Rollout

ReferenceFor = Callable[[Sequence[str]], Batch | None]

AnyObjective = TypeVar("AnyObjective", bound=Objective)


@dataclass(frozen=True, eq=False)
class Step:
    """What one training step was: its signal, and the problems that could not be graded."""

    signal: Signal | None  # None when no problem could be graded
    left_out: tuple[str, ...]


def decide(
    objective: AnyObjective,
    rollouts: Sequence[Rollout],
    reference_for: ReferenceFor,
    estimator: Estimator = "group_std",
    truncated_as: TruncatedAs = "wrong",
) -> tuple[Array, Step, AnyObjective]:
    """(P, G) advantages, 0 for problems left out; the step; and the objective of the next one.

    The rollouts of a problem stand together, equally many of each.
    """
    batch, _ = batch_of(rollouts, truncated_as)
    reference = reference_for(batch.problem_ids) if batch else None
    asked = [problem_id for problem_id, _ in groupby(rollouts, lambda one: one.problem_id)]
    both = _problems(batch) & _problems(reference)
    graded = [problem_id for problem_id in asked if problem_id in both]
    left_out = tuple(problem_id for problem_id in asked if problem_id not in both)
    advantages = np.zeros((len(asked), len(rollouts) // max(1, len(asked))))
    if batch is None or reference is None or not graded:
        return advantages, Step(None, left_out), objective
    found, after = signal(objective, batch.select(graded), reference, estimator)
    advantages[[asked.index(problem_id) for problem_id in graded]] = found.advantages
    return advantages, Step(found, left_out), after


def _problems(batch: Batch | None) -> frozenset[str]:
    return frozenset(batch.problem_ids if batch else ())
