"""Medians, their ratio and a growth's exponent, each with a bootstrap interval over repeats."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RESAMPLES = 2000
LEVEL = 0.95


class Estimate(NamedTuple):
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


def ratio_of_medians(above: Sequence[float], below: Sequence[float], seed: int = 0) -> Estimate:
    """Median by median; repeats are drawn in pairs, because those of a pair ran side by side."""
    pairs = np.array([above, below], dtype=float)  # (2, N)
    if pairs.ndim != 2 or pairs.shape[1] == 0 or not (pairs > 0).all():
        raise ValueError(f"A ratio needs as many times above as below, all positive: {pairs}")
    return _resampled(pairs, lambda drawn: np.median(drawn[0], -1) / np.median(drawn[1], -1), seed)


def exponent(size: Sequence[float], cost: Sequence[float], seed: int = 0) -> Estimate:
    """b of cost ∝ size^b by least squares on logarithms: 1 is linear, 2 quadratic."""
    points = np.log(np.array([size, cost], dtype=float))
    if not np.isfinite(points).all() or len(set(size)) < 2:
        raise ValueError(f"A growth needs positive costs of at least two sizes: {size}, {cost}")
    return _resampled(points, _slope, seed)


def _slope(points: Array) -> Array:
    """Of y over x; points (2, ..., N). A draw of one size alone says nothing: NaN."""
    x, y = points - points.mean(axis=-1, keepdims=True)
    spread = (x * x).sum(-1)
    return np.where(spread > 1e-12, (x * y).sum(-1) / np.where(spread > 1e-12, spread, 1.0), np.nan)


def _resampled(columns: Array, statistic: Callable[[Array], Array], seed: int) -> Estimate:
    """The statistic of (2, N) columns, drawn with replacement."""
    count = columns.shape[1]
    drawn = np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))
    low, high = np.nanquantile(statistic(columns[:, drawn]), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    value = float(statistic(columns))
    return Estimate(value, min(value, float(low)), max(value, float(high)))
