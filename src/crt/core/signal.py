"""The one call every engine makes: a graded batch in, advantages and a row for the log out."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from crt.core.advantage import Estimator, advantages
from crt.core.batch import Array, Batch
from crt.core.guard import paired_gap
from crt.core.objectives import Decision, Objective

AnyObjective = TypeVar("AnyObjective", bound=Objective)

Row = dict[str, float | int | str | None]
QUARTILES = 4


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
        "short_wrong_rewarded": float((~batch.correct & (advantages > 0)).mean()),
        "silent_groups": float(np.all(advantages == 0, axis=1).mean()),
        "multiplier": decision.multiplier,
        "budget": float(batch.budget.mean()) if batch.budget.size else None,
        "problems": len(batch.problem_ids),
        "rollouts": int(batch.correct.size),
    }


def weight_by_length(weights: ArrayLike | None, lengths: ArrayLike) -> list[float] | None:
    """The mean importance weight of each quartile of response length, the shortest first.

    `weights` holds each rollout's mean effective weight, (N,); `lengths` its tokens, (N,). None
    without weights, or with fewer than four rollouts. Four equal numbers mean that the correction
    favours no length.
    """
    if weights is None or np.size(lengths) < QUARTILES:
        return None
    by_length = np.asarray(weights, dtype=float)[np.argsort(lengths, kind="stable")]
    return [float(quartile.mean()) for quartile in np.array_split(by_length, QUARTILES)]
