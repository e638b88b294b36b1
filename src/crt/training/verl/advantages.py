"""From the rollouts of verl's batch to advantages; needs no verl."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from crt.algorithm.advantages import Estimator
from crt.algorithm.batch import TOKENS_ALONE, Batch, Measures, TruncatedAs
from crt.algorithm.objectives import Objective
from crt.algorithm.step import Step, decide
from crt.types import Rollout

AnyObjective = TypeVar("AnyObjective", bound=Objective)


@dataclass(frozen=True)
class BatchAdvantages:
    """A step's advantages in the order of verl's batch, and what was decided."""

    values: list[float]
    masked: list[bool]  # rollouts without a gradient: of a problem without a signal, or muted
    step: Step


def decide_batch(
    objective: AnyObjective,
    rollouts: Sequence[Rollout | None],
    reference: Batch | None,
    group_size: int,
    estimator: Estimator = "group_std",
    truncated_as: TruncatedAs = "wrong",
    measures: Measures = TOKENS_ALONE,
) -> tuple[BatchAdvantages, AnyObjective]:
    """What the step trains on, and the objective of the next one.

    None is a row that verl added to fill its batch. A problem of which a rollout was lost is left
    out, as one that could not be graded is.
    """
    places: dict[str, list[int]] = {}
    for place, rollout in enumerate(rollouts):
        if rollout is not None:
            places.setdefault(rollout.problem_id, []).append(place)
    groups = {name: group for name, group in places.items() if len(group) == group_size}
    ordered = [rollout for group in groups.values() for at in group if (rollout := rollouts[at])]
    by_group, step, after = decide(
        objective, ordered, lambda _: reference, estimator, truncated_as, measures
    )
    values, masked = np.zeros(len(rollouts)), np.ones(len(rollouts), dtype=bool)
    for group, advantages in zip(groups.values(), by_group, strict=True):
        values[group], masked[group] = advantages, not advantages.any()
    if truncated_as == "mask":
        masked |= [rollout is None or rollout.stop == "length" for rollout in rollouts]
    lost = [name for name in places if name not in groups]
    step = Step(step.signal, (*step.left_out, *lost))
    return BatchAdvantages(values.tolist(), masked.tolist(), step), after
