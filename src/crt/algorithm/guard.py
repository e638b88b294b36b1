"""The reference guard: how far the policy's accuracy is below the reference's, and how surely."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from crt.algorithm.batch import Array, Batch

Slack = float | Literal["auto"]

LEAST_AUTO_SLACK = 0.01
EDGE = 1e-9  # 0.80 - 0.10 is above 0.70 by 1e-16: at exactly the floor, floats must not decide


@dataclass(frozen=True, eq=False)
class Gap:
    """Â_ref − Â on the same problems, for the batch and for each problem, with standard errors."""

    mean: float
    standard_error: float
    by_problem: Array  # (P,)
    standard_error_by_problem: Array  # (P,)


def paired_gap(batch: Batch, reference: Batch) -> Gap:
    """Problem by problem, so that hard and easy problems cancel out of the comparison."""
    if batch.problem_ids != reference.problem_ids:
        raise ValueError("The gap is paired: batch and reference must hold the same problems.")
    by_problem = reference.accuracy_by_problem - batch.accuracy_by_problem
    error_by_problem = np.sqrt(_variance_of_mean(batch) + _variance_of_mean(reference))
    return Gap(
        mean=float(by_problem.mean()),
        standard_error=_standard_error(by_problem, error_by_problem),
        by_problem=by_problem,
        standard_error_by_problem=error_by_problem,
    )


def slack_of(slack: Slack, standard_error: float) -> float:
    """η: a number as it is; `auto` is one standard error of the gap, at least one point."""
    return max(LEAST_AUTO_SLACK, standard_error) if slack == "auto" else slack


def _variance_of_mean(batch: Batch) -> Array:
    """(P,) p(1 − p)/G: how much a problem's accuracy would vary over other G rollouts."""
    share = batch.accuracy_by_problem
    return share * (1.0 - share) / batch.correct.shape[1]


def _standard_error(by_problem: Array, error_by_problem: Array) -> float:
    """From the differences' own spread, which holds the choice of problems and of rollouts."""
    if len(by_problem) < 2:
        return float(error_by_problem[0])
    return float(by_problem.std(ddof=1) / np.sqrt(len(by_problem)))
