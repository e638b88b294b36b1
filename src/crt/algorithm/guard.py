"""The guards: how far accuracy is below the reference's, length above it, and how surely."""

from dataclasses import dataclass

import numpy as np

from crt.algorithm.batch import Array, Batch
from crt.algorithm.length import normalised_length

EDGE = 1e-9  # 0.80 - 0.10 is above 0.70 by 1e-16: at exactly the floor, floats must not decide


@dataclass(frozen=True, eq=False)
class Gap:
    """Â_ref − Â on the same problems, and its standard error."""

    mean: float
    standard_error: float


def paired_gap(batch: Batch, reference: Batch) -> Gap:
    """Problem by problem, so that hard and easy problems cancel out of the comparison."""
    if batch.problem_ids != reference.problem_ids:
        raise ValueError("The gap is paired: batch and reference must hold the same problems.")
    by_problem = reference.accuracy_by_problem - batch.accuracy_by_problem
    return Gap(float(by_problem.mean()), _standard_error(by_problem, batch, reference))


def excess_length(batch: Batch, reference: Batch) -> float:
    """How far mean ℓ_norm is above the reference's own, both by its frozen statistics."""
    if batch.problem_ids != reference.problem_ids:
        raise ValueError("Stage II compares the same problems in batch and reference.")
    level = normalised_length(batch.length, reference.length, frozen=True).mean()
    limit = normalised_length(reference.length, reference.length, frozen=True).mean()
    return float(level - limit)


def _variance_of_mean(batch: Batch) -> Array:
    """(P,) p(1 − p)/G: how much a problem's accuracy would vary over other G rollouts."""
    share = batch.accuracy_by_problem
    return share * (1.0 - share) / batch.correct.shape[1]


def _standard_error(by_problem: Array, batch: Batch, reference: Batch) -> float:
    """From the differences' own spread, which holds the choice of problems and of rollouts."""
    if len(by_problem) < 2:
        return float(np.sqrt(_variance_of_mean(batch) + _variance_of_mean(reference))[0])
    return float(by_problem.std(ddof=1) / np.sqrt(len(by_problem)))
