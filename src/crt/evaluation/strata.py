"""Intervals of macro averages: problems are redrawn within each data set, sets weigh the same."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from crt.algorithm.batch import Array
from crt.algorithm.statistics import Interval

RESAMPLES = 2000
LEVEL = 0.95
SEED = 0  # of the bootstrap: the same rollouts give the same interval everywhere

Ratio = tuple[Array, Array]  # (P,) numerator and denominator: the figure is Σ num / Σ den
Stratum = Sequence[Ratio]  # the ratios of one data set, all over the same problems


def interval(
    statistic: Callable[..., Array], strata: Sequence[Stratum], seed: int = SEED
) -> Interval:
    """A function of macro averages of ratios, with its interval.

    Each ratio is taken within a data set, then averaged over the data sets; `statistic` takes
    these averages and works element by element. With one data set and denominators of 1 it is
    `crt.algorithm.intervals.bootstrap`. The interval is NaN where some resample has no value.
    """
    problems = sum(len(stratum[0][0]) for stratum in strata)
    value, drawn = resampled(statistic, strata, seed)
    if not np.isfinite(drawn).all() or not np.isfinite(value):
        return Interval(value, float("nan"), float("nan"), problems)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, min(float(low), value), max(float(high), value), problems)


def resampled(
    statistic: Callable[..., Array], strata: Sequence[Stratum], seed: int = SEED
) -> tuple[float, Array]:
    """The figure, and (R,) what it is in each resample; draws depend on sizes and seed alone."""
    drawn = [_drawn(stratum, _counts(len(stratum[0][0]), seed + i)) for i, stratum in _of(strata)]
    value = float(statistic(*np.mean([_whole(stratum) for stratum in strata], axis=0)))
    return value, np.asarray(statistic(*np.mean(drawn, axis=0)))


def same(value: Array) -> Array:
    """The average itself."""
    return value


def minus(value: Array, base: Array) -> Array:
    """What was gained over the base."""
    return value - base


def _of(strata: Sequence[Stratum]) -> list[tuple[int, Stratum]]:
    return list(enumerate(strata))


def _whole(stratum: Stratum) -> Array:
    """(K,) the ratios as measured."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.array([num.sum() / den.sum() for num, den in stratum])


def _drawn(stratum: Stratum, counts: Array) -> Array:
    """(K, R) the ratios in each resample."""
    values = np.array([[num, den] for num, den in stratum])  # (K, 2, P)
    sums = values @ counts.T  # (K, 2, R)
    with np.errstate(divide="ignore", invalid="ignore"):
        return sums[:, 0] / sums[:, 1]


@lru_cache(maxsize=24)
def _counts(problems: int, seed: int) -> Array:
    """(R, P): how often each problem is drawn; kept, for drawing takes longer than all the rest."""
    rng = np.random.default_rng(seed)
    shares = np.full(problems, 1.0 / problems)
    return rng.multinomial(problems, shares, size=RESAMPLES).astype(float)
