"""What stands in a column of a table: a figure of some data sets, of one evaluation of several."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from crt.algorithm.batch import Array
from crt.algorithm.metrics import AES1, AES2, aes
from crt.algorithm.statistics import Interval
from crt.evaluation.figures import MEASURES, accuracy, average, lengths
from crt.evaluation.strata import interval
from crt.evaluation.tally import Tally
from crt.evaluation.versus import TOLERANCE, Versus, change, paired, versus


@dataclass(frozen=True)
class Column:
    """A figure (`key`) of some data sets under a heading; `better` says which end is the best."""

    head: str
    title: str
    key: str
    members: tuple[str, ...]
    decimals: int
    better: Literal["higher", "lower"] | None = None


@dataclass(frozen=True)
class Entry:
    """One evaluation in a comparison, with the base that it is compared with."""

    name: str
    tallies: Mapping[str, Tally]
    base: Mapping[str, Tally]
    tolerance: float = TOLERANCE
    _versus: dict[tuple[str, ...], Versus] = field(default_factory=dict)

    @property
    def is_base(self) -> bool:
        """Whether it is compared with itself."""
        return self.tallies is self.base

    def against(self, members: tuple[str, ...]) -> Versus:
        """The comparison with the base over these sets; made once."""
        if members not in self._versus:
            pairs = [paired(self.tallies[name], self.base[name]) for name in members]
            self._versus[members] = versus(pairs, self.tolerance)
        return self._versus[members]

    def unsure(self, column: Column) -> bool:
        """Whether the interval of the difference to the base, or of a score, holds 0."""
        if column.key in ("aes1", "aes2", "saved", "acc_change"):
            found = figure(self, column)
        else:
            found = self.against(column.members).changes.get(column.key)
        if not isinstance(found, Interval):
            return False
        return not (found.low > 0 or found.high < 0)  # NaN: not supported either


def figure(entry: Entry, column: Column) -> Interval | str | None:
    """A cell's content: a figure, a word, or None where it is not known."""
    if column.key in MEASURES:
        return average(MEASURES[column.key], [entry.tallies[name] for name in column.members])
    if entry.is_base:
        zero = column.key in ("aes1", "aes2")
        return Interval(0.0, 0.0, 0.0, _problems(entry, column)) if zero else None
    return _against(entry.against(column.members), column.key)


def lead(best: Entry, second: Entry, column: Column) -> Interval | None:
    """How far the best is ahead of the next, over the same problems; None where nobody can say."""
    pairs = [paired(best.tallies[name], second.tallies[name]) for name in column.members]
    if column.key in MEASURES:
        return change(MEASURES[column.key], pairs)
    if column.key not in ("aes1", "aes2"):
        return None
    weights = AES1 if column.key == "aes1" else AES2

    def ahead(a: Array, la: Array, b: Array, lb: Array, base: Array, length: Array) -> Array:
        return aes(a, la, base, length, weights) - aes(b, lb, base, length, weights)

    strata = []
    for (ours, theirs), name in zip(pairs, column.members, strict=True):
        known = set(best.base[name].ids)
        common = [problem_id for problem_id in ours.ids if problem_id in known]
        three = [ours.select(common), theirs.select(common), best.base[name].select(common)]
        strata.append([ratio for tally in three for ratio in (accuracy(tally), lengths(tally))])
    try:
        return interval(ahead, strata)
    except ValueError:  # a resample in which the base solves nothing
        return Interval(np.nan, np.nan, np.nan, 0)


def _against(found: Versus, key: str) -> Interval | str | None:
    certificate = found.certificate
    if key in ("ad", "ap", "ai"):
        return found.shares.get(key)
    if key == "shortened":
        return None if found.transitions is None else str(found.transitions.shortened)
    if key == "acc_change":
        return found.changes.get("acc")
    if key == "bound":
        if certificate is None:
            return None
        return Interval(100 * certificate.lower_bound, np.nan, np.nan, certificate.problems)
    if key == "certificate":
        return certificate and ("passed" if certificate.passed else "not passed")
    return {"aes1": found.aes1, "aes2": found.aes2, "saved": found.saved}[key]


def _problems(entry: Entry, column: Column) -> int:
    return sum(len(entry.tallies[name].ids) for name in column.members)
