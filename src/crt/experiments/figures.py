"""A method's figures over its seeds: the mean, and an interval over seeds and problems."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crt.algorithm.batch import Array, BoolArray
from crt.algorithm.metrics import AES1, AES2, AesWeights, aes
from crt.algorithm.statistics import Interval, two_level
from crt.evaluation.bootstrap import Ratio, resample, same
from crt.evaluation.metrics import MEASURES, accuracy, lengths
from crt.evaluation.paired import Pair, pair
from crt.evaluation.store import Evaluation

SEED = 0  # of the bootstrap over seeds
PLAIN = ("acc", "len", "r_zip")
SCORES: dict[str, AesWeights] = {"aes1": AES1, "aes2": AES2}
MOVES: dict[str, Callable[[Array], BoolArray]] = {
    "ad": lambda change: change < -1e-9,
    "ap": lambda change: np.abs(change) <= 1e-9,
    "ai": lambda change: change > 1e-9,
}
KEYS = (*PLAIN, *SCORES, *MOVES)


@dataclass(frozen=True, eq=False)
class Figure:
    """One seed's figure, and (R,) what it is when the problems are drawn anew."""

    value: float
    drawn: Array

    def __sub__(self, other: "Figure") -> "Figure":
        return Figure(self.value - other.value, self.drawn - other.drawn)


def figures_of(evaluation: Evaluation, base: Evaluation) -> dict[str, Figure]:
    """Every figure of one seed against its base, averaged over the data sets (macro)."""
    pairs = [pair(tally, base.counts[name]) for name, tally in evaluation.counts.items()]
    found = {key: plain(key, [tally for tally, _ in pairs]) for key in PLAIN}
    found |= {key: _score(weights, pairs) for key, weights in SCORES.items()}
    return found | {key: _moved(kind, pairs) for key, kind in MOVES.items()}


def base_figures(base: Evaluation) -> dict[str, Figure]:
    """What is known of the base alone."""
    return {key: plain(key, list(base.counts.values())) for key in PLAIN}


def plain(key: str, tallies: Sequence[Any]) -> Figure:
    """Acc, Len or R_zip."""
    return _figure(same, [[MEASURES[key](tally)] for tally in tallies])


def mean_of(figures: Sequence[Figure], problems: int) -> Interval | None:
    """Over seeds; None when there is no seed."""
    if not figures:
        return None
    values = [each.value for each in figures]
    return two_level(values, np.array([each.drawn for each in figures]), problems, SEED)


def as_row(figures: Mapping[str, Figure]) -> dict[str, float | None]:
    """Values for JSON, which has no NaN."""
    return {key: figures[key].value if np.isfinite(figures[key].value) else None for key in figures}


def _score(weights: AesWeights, pairs: Sequence[Pair]) -> Figure:
    def score(acc: Array, length: Array, base_acc: Array, base_length: Array) -> Array:
        usable = (base_acc > 0) & (base_length > 0)  # AES is relative to both
        safe = (np.where(usable, base_acc, 1.0), np.where(usable, base_length, 1.0))
        return np.where(usable, aes(acc, length, *safe, weights), np.nan)

    strata = [[accuracy(t), lengths(t), accuracy(b), lengths(b)] for t, b in pairs]
    return _figure(score, strata)


def _moved(kind: Callable[[Array], BoolArray], pairs: Sequence[Pair]) -> Figure:
    """% of the problems that got shorter, all sets as one."""
    shares: list[Array] = []
    shorter: list[Array] = []
    for tally, base in pairs:
        (acc, known), (base_acc, base_known) = accuracy(tally), accuracy(base)
        less = lengths(tally)[0] < lengths(base)[0]
        counted = less & (known > 0) & (base_known > 0)
        shorter.append(counted.astype(float))
        shares.append(np.where(counted & kind(acc - base_acc), 100.0, 0.0))
    return _figure(same, [[(np.concatenate(shares), np.concatenate(shorter))]])


def _figure(statistic: Callable[..., Array], strata: Sequence[Sequence[Ratio]]) -> Figure:
    with np.errstate(divide="ignore", invalid="ignore"):
        return Figure(*resample(statistic, strata))
