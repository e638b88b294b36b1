"""The one call every engine makes: a graded batch in, advantages and a row for the log out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

import numpy as np

from crt.algorithm.advantages import Estimator, advantages
from crt.algorithm.batch import TOKENS, TOKENS_ALONE, Array, Batch, Measures, TruncatedAs, batch_of
from crt.algorithm.guard import paired_gap
from crt.algorithm.objectives import Decision, Objective
from crt.errors import DataError
from crt.types import Rollout

AnyObjective = TypeVar("AnyObjective", bound=Objective)

ReferenceFor = Callable[[Sequence[str]], Batch | None]

Row = dict[str, Any]


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
    """The figures of one step; docs/reference/steps.md says what each key means."""
    row: Row = {
        "goal": decision.goal,
        "rectified": decision.rectified,
        "accuracy": batch.accuracy,
        "reference_accuracy": reference.accuracy,
        "standard_error": paired_gap(batch, reference).standard_error,
        "slack": decision.slack,
        "margin": decision.margin,
        "tokens": batch.mean_tokens,
        "reference_tokens": reference.mean_tokens,
        "truncated": float(batch.truncated.mean()),
        "gap_untruncated": gap_untruncated(batch, reference),
        "short_wrong_rewarded": float((~batch.correct & (advantages > 0)).mean()),
        "zero_advantage_groups": float(np.all(advantages == 0, axis=1).mean()),
        "multiplier": decision.multiplier,
        "budget": float(batch.budget.mean()) if batch.budget.size else None,
        "problems": len(batch.problem_ids),
        "rollouts": int(batch.correct.size),
    }
    if batch.cost != TOKENS:
        row |= {"cost": batch.mean_length, "reference_cost": reference.mean_length}
    if decision.lines:
        row |= {"line": decision.line, "lines": decision.lines}
    return row


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
        elif name == "lines" and value is not None:
            for line, figures in value.items():
                numbers |= {
                    f"crt/{k}/{line}": float(v) for k, v in figures.items() if v is not None
                }
        elif isinstance(value, int | float):
            numbers[f"crt/{name}"] = float(value)
    return numbers


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
    measures: Measures = TOKENS_ALONE,
) -> tuple[Array, Step, AnyObjective]:
    """(P, G) advantages, 0 for problems left out; the step; and the objective of the next one.

    The rollouts of a problem stand together, equally many of each.
    """
    batch, _ = batch_of(rollouts, truncated_as, measures)
    reference = reference_for(batch.problem_ids) if batch else None
    asked = [problem_id for problem_id, _ in groupby(rollouts, lambda one: one.problem_id)]
    both = _problems(batch) & _problems(reference)
    graded = [problem_id for problem_id in asked if problem_id in both]
    left_out = tuple(problem_id for problem_id in asked if problem_id not in both)
    advantages = np.zeros((len(asked), len(rollouts) // max(1, len(asked))))
    if batch is None or reference is None or not graded:
        return advantages, Step(None, left_out), objective
    if reference.cost != batch.cost:
        raise DataError(
            f"the reference's cost is {reference.cost}, the policy's is {batch.cost}: give the "
            "contract's `measures` to the trainer and to the reference's `batch_of`."
        )
    found, after = signal(objective, batch.select(graded), reference, estimator)
    advantages[[asked.index(problem_id) for problem_id in graded]] = found.advantages
    return advantages, Step(found, left_out), after


def _problems(batch: Batch | None) -> frozenset[str]:
    return frozenset(batch.problem_ids if batch else ())
