"""Intervals of macro averages: problems are redrawn within each data set, sets weigh the same."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from crt.algorithm.batch import Array
from crt.algorithm.statistics import Interval

RESAMPLES = 2000
LEVEL = 0.95
SEED = 0  # of the bootstrap: the same rollouts give the same interval everywhere

Ratio = tuple[Array, Array]  # (P,) numerator and denominator: the metric is Σ num / Σ den
Stratum = Sequence[Ratio]  # the ratios of one data set, all over the same problems


def interval(
    statistic: Callable[..., Array], strata: Sequence[Stratum], seed: int = SEED
) -> Interval:
    """A function of macro averages of ratios, with its interval.

    Each ratio is taken within a data set, then averaged over the data sets; `statistic` takes
    these averages and works element by element. With one data set and denominators of 1 it is
    `crt.algorithm.statistics.bootstrap`. The interval is NaN where some resample has no value.
    """
    problems = sum(len(stratum[0][0]) for stratum in strata)
    value, resamples = resample(statistic, strata, seed)
    if not np.isfinite(resamples).all() or not np.isfinite(value):
        return Interval(value, float("nan"), float("nan"), problems)
    low, high = np.quantile(resamples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, min(float(low), value), max(float(high), value), problems)


def resample(
    statistic: Callable[..., Array], strata: Sequence[Stratum], seed: int = SEED
) -> tuple[float, Array]:
    """The value, and (R,) what it is in each resample; draws depend on sizes and seed alone."""
    values = [np.array([[num, den] for num, den in stratum]) for stratum in strata]  # (K, 2, P)
    sums = [v @ _draws(v.shape[2], seed + i).T for i, v in enumerate(values)]  # (K, 2, R)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.mean([np.divide(*v.sum(axis=2).T) for v in values], axis=0)  # (K,)
        resampled = np.mean([s[:, 0] / s[:, 1] for s in sums], axis=0)  # (K, R)
    return float(statistic(*whole)), np.asarray(statistic(*resampled))


def same(value: Array) -> Array:
    """The average itself."""
    return value


def minus(value: Array, base: Array) -> Array:
    """What was gained over the base."""
    return value - base


@lru_cache(maxsize=24)
def _draws(problems: int, seed: int) -> Array:
    """(R, P): how often each problem is drawn; kept, for drawing takes longer than all the rest."""
    rng = np.random.default_rng(seed)
    shares = np.full(problems, 1.0 / problems)
    return rng.multinomial(problems, shares, size=RESAMPLES).astype(float)
