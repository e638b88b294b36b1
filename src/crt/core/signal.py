"""The one call every engine makes: a graded batch in, advantages and a row for the log out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from crt.core.advantage import Estimator, advantages
from crt.core.batch import Array, Batch
from crt.core.guard import paired_gap
from crt.core.objectives import Decision, Objective

AnyObjective = TypeVar("AnyObjective", bound=Objective)

Row = dict[str, float | int | str | list[float] | None]


@dataclass(frozen=True, eq=False)
class Signal:
    """What a step trains on."""

    decision: Decision
    advantages: Array  # (P, G)
    row: Row


def signal(
    objective: AnyObjective, batch: Batch, reference: Batch, estimator: Estimator = "group_std"
) -> tuple[Signal, AnyObjective]:
    """Decide, estimate, describe; and the objective of the next step.

    `reference` may hold more problems than the batch, in any order.
    """
    reference = reference.select(batch.problem_ids)
    decision, after = objective.step(batch, reference)
    values = advantages(decision, estimator, batch.muted)
    return Signal(decision, values, step_row(batch, reference, decision, values)), after


def step_row(batch: Batch, reference: Batch, decision: Decision, advantages: Array) -> Row:
    """The figures of one step; docs/metrics.md says what each key means."""
    return {
        "goal": decision.goal,
        "rectified": decision.rectified,
        "accuracy": batch.accuracy,
        "reference_accuracy": reference.accuracy,
        "standard_error": paired_gap(batch, reference).standard_error,
        "slack": decision.slack,
        "margin": decision.margin,
        "tokens": batch.mean_length,
        "reference_tokens": reference.mean_length,
        "truncated": float(batch.truncated.mean()),
        "gap_untruncated": gap_untruncated(batch, reference),
        "short_wrong_rewarded": float((~batch.correct & (advantages > 0)).mean()),
        "silent_groups": float(np.all(advantages == 0, axis=1).mean()),
        "multiplier": decision.multiplier,
        "budget": float(batch.budget.mean()) if batch.budget.size else None,
        "problems": len(batch.problem_ids),
        "rollouts": int(batch.correct.size),
    }


def gap_untruncated(batch: Batch, reference: Batch) -> float | None:
    """Â_ref − Â on the problems that neither policy was cut off on; None if there is none.

    A truncated response counts as wrong, so shortening alone narrows the gap of the others.
    """
    whole = ~(batch.truncated.any(axis=1) | reference.truncated.any(axis=1))
    if not whole.any():
        return None
    return float((reference.accuracy_by_problem - batch.accuracy_by_problem)[whole].mean())


def weight_by_length(weights: Array, lengths: Array) -> list[float] | None:
    """Mean importance weight of the responses in each quartile of length, shortest first.

    Both are (N,); None for fewer than four responses. Unequal numbers are a length bias.
    """
    if len(weights) < 4:
        return None
    order = np.argsort(lengths, kind="stable")
    return [float(quarter.mean()) for quarter in np.array_split(weights[order], 4)]


def logged_metrics(row: Mapping[str, Any], stage: int) -> dict[str, float]:
    """A step's row as numbers for wandb, tensorboard and trackio; absent is left out, not 0."""
    numbers: dict[str, float] = {"crt/stage": float(stage)}
    for name, value in row.items():
        if name == "goal":
            numbers |= {f"crt/goal_{goal}": float(goal == value) for goal in ("length", "accuracy")}
        elif name == "weight_by_length" and value is not None:
            numbers |= {f"crt/weight_q{i}": weight for i, weight in enumerate(value, 1)}
        elif isinstance(value, int | float):
            numbers[f"crt/{name}"] = float(value)
    return numbers
