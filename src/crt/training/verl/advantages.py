"""From the rollouts of verl's batch to advantages; needs no verl."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from crt.algorithm.advantages import Estimator
from crt.algorithm.batch import Batch, TruncatedAs
from crt.algorithm.objectives import Objective
from crt.algorithm.step import Step, decide
from crt.types import Rollout

REFERENCE = ("reference_correct", "reference_length", "reference_truncated")
ReferenceColumns = dict[str, list[int]]  # the frozen policy's results on one problem, by REFERENCE

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
    reference: Mapping[str, ReferenceColumns],
    group_size: int,
    estimator: Estimator = "group_std",
    truncated_as: TruncatedAs = "wrong",
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
        objective, ordered, lambda ids: reference_batch(reference, ids), estimator, truncated_as
    )
    values, masked = np.zeros(len(rollouts)), np.ones(len(rollouts), dtype=bool)
    for group, advantages in zip(groups.values(), by_group, strict=True):
        values[group], masked[group] = advantages, not advantages.any()
    if truncated_as == "mask":
        masked |= [rollout is None or rollout.stop == "length" for rollout in rollouts]
    lost = [name for name in places if name not in groups]
    step = Step(step.signal, (*step.left_out, *lost))
    return BatchAdvantages(values.tolist(), masked.tolist(), step), after


def reference_columns(reference: Batch | None, problem_id: str) -> ReferenceColumns:
    """What the data file says of the frozen policy on a problem; empty if it was not graded."""
    if reference is None or problem_id not in reference.problem_ids:
        return {name: [] for name in REFERENCE}
    at = reference.problem_ids.index(problem_id)
    values = (reference.correct[at], reference.length[at], reference.truncated[at])
    return {name: row.astype(int).tolist() for name, row in zip(REFERENCE, values, strict=True)}


def reference_batch(
    columns: Mapping[str, ReferenceColumns], problem_ids: Sequence[str]
) -> Batch | None:
    """The frozen policy's batch on these problems, without those that were not graded.

    Every rollout of it is there, so that mean, spread and accuracy are those of the core.
    """
    graded = [name for name in problem_ids if columns[name]["reference_correct"]]
    if not graded:
        return None
    return Batch(
        tuple(graded), *(np.array([columns[name][key] for name in graded]) for key in REFERENCE)
    )
