"""The guards: how far accuracy is below the reference's, length above it, and how surely."""

from dataclasses import dataclass

import numpy as np

from crt.algorithm.batch import Array, Batch
from crt.algorithm.length import normalised_length

EDGE = 1e-9  # 0.80 - 0.10 is above 0.70 by 1e-16: at exactly the floor, floats must not decide


@dataclass(frozen=True, eq=False)
class Gap:
    """How far a metric is below what is wanted of it, and the standard error of that."""

    mean: float
    standard_error: float


def paired_gap(batch: Batch, reference: Batch) -> Gap:
    """Problem by problem, so that hard and easy problems cancel out of the comparison."""
    if batch.problem_ids != reference.problem_ids:
        raise ValueError("The gap is paired: batch and reference must hold the same problems.")
    return gap_between(reference.correct.astype(float), batch.correct.astype(float))


def gap_between(wanted: Array, found: Array) -> Gap:
    """Mean `wanted` less mean `found`, problem by problem: (P, G) each, of any two G."""
    by_problem = wanted.mean(axis=1) - found.mean(axis=1)
    return Gap(float(by_problem.mean()), _standard_error(by_problem, wanted, found))


def excess_length(batch: Batch, reference: Batch) -> Gap:
    """How far mean ℓ_norm is above the reference's own, both by its frozen statistics."""
    if batch.problem_ids != reference.problem_ids:
        raise ValueError("Stage II compares the same problems in batch and reference.")
    level = normalised_length(batch.length, reference.length, frozen=True)
    limit = normalised_length(reference.length, reference.length, frozen=True)
    return gap_between(level, limit)


def _variance_of_mean(values: Array) -> Array:
    """(P,) How much a problem's mean would vary over other G rollouts: p(1 − p)/G of 0 and 1."""
    return values.var(axis=1) / values.shape[1]


def _standard_error(by_problem: Array, wanted: Array, found: Array) -> float:
    """From the differences' own spread, which holds the choice of problems and of rollouts."""
    if len(by_problem) < 2:
        return float(np.sqrt(_variance_of_mean(wanted) + _variance_of_mean(found))[0])
    return float(by_problem.std(ddof=1) / np.sqrt(len(by_problem)))
