"""How sure a figure is: bootstrap intervals over problems and the non-inferiority certificate."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crt.algorithm.batch import Array
from crt.algorithm.guard import EDGE

LEAST_PROBLEMS = 10  # below this a certificate would rest on nothing


class Interval(NamedTuple):
    """A figure with its 95 % interval and the number of problems it rests on."""

    value: float
    low: float
    high: float
    problems: int


def bootstrap(
    statistic: Callable[..., Array],
    *by_problem: ArrayLike,
    seed: int,
    resamples: int = 2000,
    level: float = 0.95,
) -> Interval:
    """A function of means over problems, resampled over problems, all arrays alike.

    `by_problem` are (P,) arrays of the same problems; `statistic` takes the mean of each and must
    work element by element. Problems are drawn, not rollouts: those of a problem depend on it.
    """
    values = np.array([np.asarray(a, dtype=float) for a in by_problem])  # (K, P)
    if values.ndim != 2 or values.shape[1] == 0 or not np.isfinite(values).all():
        raise ValueError("A bootstrap needs one finite number for each of at least one problem.")
    problems = values.shape[1]
    counts = np.random.default_rng(seed).multinomial(
        problems, np.full(problems, 1.0 / problems), size=resamples
    )  # (R, P): how often each problem is drawn
    drawn = statistic(*(values @ counts.T / problems))
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    value = float(statistic(*values.mean(axis=1)))
    return Interval(value, min(float(low), value), max(float(high), value), problems)


def mean_interval(by_problem: ArrayLike, seed: int) -> Interval:
    """The mean over problems, with its interval."""
    return bootstrap(np.asarray, by_problem, seed=seed)


def two_level(
    values: ArrayLike, drawn: ArrayLike, problems: int, seed: int, level: float = 0.95
) -> Interval:
    """The mean of a figure over training seeds, with an interval over seeds and problems.

    `values` (S,) is the figure of each seed; `drawn` (S, R) the same with the problems of each
    seed's evaluation drawn anew, the same problems for all seeds in a resample because all of
    them were asked the same. Every resample then draws S seeds too, with replacement.
    """
    figure, resampled = np.asarray(values, dtype=float), np.asarray(drawn, dtype=float)
    seeds = figure.size
    if figure.ndim != 1 or not seeds or resampled.ndim != 2 or resampled.shape[0] != seeds:
        raise ValueError("A two-level bootstrap needs (S,) values and (S, R) resamples of them.")
    value = float(figure.mean())
    if not np.isfinite(resampled).all() or not np.isfinite(value):
        return Interval(value, float("nan"), float("nan"), problems)
    counts = np.random.default_rng(seed).multinomial(
        seeds, np.full(seeds, 1.0 / seeds), size=resampled.shape[1]
    )  # (R, S): how often each seed is drawn
    means: Array = np.sum(counts.T * resampled, axis=0) / seeds
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, min(float(low), value), max(float(high), value), problems)


@dataclass(frozen=True)
class Certificate:
    """Is the accuracy within `tolerance` of the reference's? Held only when the data show it."""

    difference: float  # accuracy − reference accuracy
    lower_bound: float  # one-sided, of the difference
    tolerance: float  # ε
    level: float
    problems: int

    @property
    def held(self) -> bool:
        """The lower bound is at −ε or above, on enough problems."""
        return self.problems >= LEAST_PROBLEMS and self.lower_bound >= -self.tolerance - EDGE


def non_inferiority(
    accuracy: ArrayLike, reference_accuracy: ArrayLike, tolerance: float, level: float = 0.95
) -> Certificate:
    """Paired over problems: each problem's mean accuracy under both policies, (P,) each.

    The one-sided lower bound is Student's, from the spread of the differences.
    """
    difference = np.asarray(accuracy, dtype=float) - np.asarray(reference_accuracy, dtype=float)
    if difference.ndim != 1 or difference.size < 2 or not np.isfinite(difference).all():
        raise ValueError("A certificate needs both accuracies for each of at least two problems.")
    problems = difference.size
    error = float(difference.std(ddof=1)) / problems**0.5
    mean = float(difference.mean())
    bound = mean - student_quantile(level, problems - 1) * error
    return Certificate(mean, bound, tolerance, level, problems)


def student_quantile(probability: float, degrees: int) -> float:
    """Student's t quantile by the Cornish-Fisher series; exact for 1 and 2 degrees of freedom."""
    if degrees == 1:
        return float(np.tan(np.pi * (probability - 0.5)))
    if degrees == 2:
        centre = 2 * probability - 1
        return float(centre * np.sqrt(2 / (1 - centre**2)))
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * degrees**4)
    )


def pass_at_k(correct: ArrayLike, rollouts: ArrayLike, k: int) -> Array:
    """1 − C(n−c, k)/C(n, k) for each problem with c of n correct: unbiased (Chen et al., 2021).

    (P,) each; NaN where a problem has fewer than k rollouts.
    """
    right = np.asarray(correct, dtype=float)[..., None]  # (P, 1)
    total = np.asarray(rollouts, dtype=float)[..., None]
    if k < 1 or not ((right >= 0) & (right <= total)).all():
        raise ValueError("pass@k needs k of 1 or more and 0 to n correct of n rollouts.")
    drawn = np.arange(k)  # the ratio of the binomials is Π (n−c−i)/(n−i)
    left = np.maximum(total - right - drawn, 0.0)
    all_wrong = np.prod(left / np.maximum(total - drawn, 1.0), axis=-1)
    return np.where(total[..., 0] >= k, 1.0 - all_wrong, np.nan)
