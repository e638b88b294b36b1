"""Compare: the paper's tables for any set of evaluations, as data; `render` puts them on paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from crt.algorithm.metrics import AES1, AES2
from crt.algorithm.statistics import Interval, shortfall
from crt.errors import ConfigError, DataError, did_you_mean
from crt.evaluation.datasets import TITLES, groups, missing_from_average
from crt.evaluation.metrics import MEASURES, DatasetCounts, Metrics, accuracy, average, lengths
from crt.evaluation.paired import (
    MATCHED,
    TOLERANCE,
    PairedComparison,
    aes_or_nan,
    change,
    compare_pairs,
    length_matched,
    pair,
    statistic_of,
)
from crt.evaluation.store import MANIFEST, SERIES, Evaluation, incomparable, load
from crt.io import read_json

Row = TypeVar("Row")
Mark = Literal["best", "lead_unsure", "base_unsure"]
AES = {"aes1": AES1, "aes2": AES2}
LEGEND = (
    "bold or *: best of its column; °: its lead over the next best is not supported by the 95 % "
    "interval; ≈: the difference to the base is not supported by the 95 % interval. Intervals are "
    "bootstrapped over problems, paired with the base."
)
TITLES_OF_METRICS: dict[str, tuple[str, Literal["higher", "lower"] | None]] = {  # and the best end
    "acc": ("Acc", "higher"),
    "interval": ("95 %", None),
    "len": ("Len", "lower"),
    "thinking": ("Thinking", "lower"),
    "answer": ("Answer", None),
    "truncated": ("cut off %", None),
    "no_answer": ("no answer %", None),
    "ungraded": ("ungraded %", None),
    "aes1": ("AES1", "higher"),
    "aes2": ("AES2", "higher"),
    "ad": ("AD%", "lower"),
    "ap": ("AP%", "higher"),
    "ai": ("AI%", "higher"),
    "shortened": ("n", None),
    "r_zip": ("R_zip", "higher"),
    "r_zip_correct": ("R_zip correct", "higher"),
    "r_zip_wrong": ("R_zip wrong", "higher"),
    "r_zip_matched": ("R_zip, equal length", None),
    "r_zip_matched_base": ("base's there", None),
    "acc_change": ("Acc − base", "higher"),
    "saved": ("tokens saved %", "higher"),
    "bound": ("lower bound", None),
    "certificate": ("certificate", None),
}
MATCHED_NOTE = (
    "Equal length: of each response and the base's response to the same problem the longer one "
    "is cut to the shorter. Short texts compress badly; here the difference is one of content."
)
Averages = Mapping[str, tuple[str, ...]]  # group → its data sets


@dataclass(frozen=True)
class Column:
    """A metric (`key`) of some data sets under a heading; `better` says which end is the best."""

    head: str
    title: str
    key: str
    members: tuple[str, ...]
    decimals: int
    better: Literal["higher", "lower"] | None = None


@dataclass(frozen=True)
class Cell:
    """A metric with its interval, or a word, or nothing; and what is to be said of it."""

    interval: Interval | None = None
    text: str = ""
    marks: frozenset[Mark] = frozenset()


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns; `notes` belong under it."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """The tables, and what makes them doubtful."""

    tables: tuple[Table, ...]
    warnings: tuple[str, ...]


# Evaluations that may be compared


def compare(
    evaluations: Sequence[Evaluation],
    *,
    base: str | None = None,
    anyway: bool = False,
    tolerance: float = TOLERANCE,
    more: Callable[[Sequence[Evaluation], Evaluation], Table] | None = None,
) -> Comparison:
    """The paper's tables; the base is the first unless another is named.

    Evaluations that were made differently are refused, or with `anyway` compared with a warning.
    `more` makes one table more of the others and the base, such as that of a contract.
    """
    first, *others = _base_first(evaluations, base)
    doubts = [doubt for other in others for doubt in _doubts(first, other, anyway)]
    if not any(all(name in other.counts for other in others) for name in first.counts):
        raise DataError("the evaluations have no data set in common")
    entries = [Entry(first.name, first.counts, first.counts, tolerance)]
    entries += [Entry(e.name, length_matched(e, first), first.counts, tolerance) for e in others]
    own = [f"{each.name}: {warning}" for each in (first, *others) for warning in each.warnings]
    tables = [*paper_tables(entries), *([more(others, first)] if more else [])]
    return Comparison(tuple(tables), (*doubts, *own))


def load_all(places: Sequence[str]) -> list[Evaluation]:
    """Evaluations by folder, `NAME=FOLDER`, or a series' folder, which is all of its points."""
    evaluations: list[Evaluation] = []
    for place in places:
        name, equals, path = place.partition("=")
        if not equals or Path(place).is_dir():
            name, path = "", place
        folder = Path(path)
        if (folder / SERIES).is_file():
            prefix = f"{name} " if name else ""
            names = [str(point["name"]) for point in read_series(folder)]
            evaluations += [load(folder / point, f"{prefix}{point}") for point in names]
        elif not (folder / MANIFEST).is_file():
            raise DataError(f"{folder} is not an evaluation: it has no {MANIFEST}.")
        else:
            evaluations.append(load(folder, name or None))
    return evaluations


def read_series(folder: Path) -> list[dict[str, Any]]:
    """The points of a series, the base first."""
    content = read_json(folder / SERIES)
    try:
        points = [{**point, "step": int(point["step"])} for point in content["points"]]
        outside = any(Path(str(point["name"])).name != point["name"] for point in points)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise DataError(f"{folder / SERIES} is not a series of this version.") from None
    if outside or not points:
        raise DataError(f"{folder / SERIES} has no point, or one outside of its folder.")
    return points


def _base_first(evaluations: Sequence[Evaluation], base: str | None) -> list[Evaluation]:
    names = [each.name for each in evaluations]
    if len(evaluations) < 2:
        raise ConfigError("a comparison needs two evaluations or more; the first is the base")
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise ConfigError(f"two evaluations are called {double!r}: give names, NAME=FOLDER")
    if base is not None and base not in names:
        raise ConfigError(f"--base {base!r} is not among them. {did_you_mean(base, names)}")
    return sorted(evaluations, key=lambda each: base is not None and each.name != base)


def _doubts(first: Evaluation, other: Evaluation, anyway: bool) -> list[str]:
    differences, unknown = incomparable(first, other)
    both = f"{first.name} and {other.name}"
    if differences and not anyway:
        raise DataError(
            f"{both} cannot be compared, they differ in {'; in '.join(differences)}. "
            "Evaluate them alike, or compare them all the same with --anyway."
        )
    doubts = [f"{both} differ in {'; in '.join(differences)}"] if differences else []
    if unknown:
        doubts.append(f"{both} may differ in what is not known of them: {', '.join(unknown)}")
    return doubts


# What stands in a cell


@dataclass(frozen=True)
class Entry:
    """One evaluation in a comparison, with the base that it is compared with."""

    name: str
    counts: Mapping[str, DatasetCounts]
    base: Mapping[str, DatasetCounts]
    tolerance: float = TOLERANCE
    _comparisons: dict[tuple[str, ...], PairedComparison] = field(default_factory=dict)

    @property
    def is_base(self) -> bool:
        return self.counts is self.base

    def against_base(self, members: tuple[str, ...]) -> PairedComparison:
        """The comparison with the base over these sets; made once."""
        if members not in self._comparisons:
            pairs = [pair(self.counts[name], self.base[name]) for name in members]
            self._comparisons[members] = compare_pairs(pairs, self.tolerance)
        return self._comparisons[members]

    def value(self, column: Column) -> Interval | str | None:
        """A metric, a word, or None where it is not known."""
        if column.key in MEASURES:
            return average(MEASURES[column.key], [self.counts[name] for name in column.members])
        if self.is_base:
            problems = sum(len(self.counts[name].ids) for name in column.members)
            return Interval(0.0, 0.0, 0.0, problems) if column.key in AES else None
        comparison = self.against_base(column.members)
        moved, certificate = comparison.transitions, comparison.certificate
        if column.key == "shortened":
            return moved and str(moved.shortened)
        if column.key == "acc_change":
            return comparison.changes.get("acc")
        if column.key == "certificate":
            return certificate and ("passed" if certificate.passed else "not passed")
        if column.key == "bound" and certificate:
            bound = 100 * certificate.lower_bound
            return Interval(bound, np.nan, np.nan, certificate.problems)
        return comparison.values.get(column.key)

    def cell(self, column: Column) -> Cell:
        """The value, marked if the interval of its difference to the base holds 0."""
        value = self.value(column)
        if isinstance(value, str):
            return Cell(text=value)
        if value is None or self.is_base:
            return Cell(value)
        if column.key in (*AES, "saved", "acc_change"):
            difference = value
        else:
            difference = self.against_base(column.members).changes.get(column.key)
        return Cell(value, marks=frozenset(["base_unsure"] if holds_zero(difference) else []))


def holds_zero(difference: Interval | None) -> bool:
    """Whether an interval does not support its difference; NaN supports nothing either."""
    return difference is not None and not (difference.low > 0 or difference.high < 0)


def _lead(best: Entry, second: Entry, column: Column) -> Interval | None:
    """How far the best is ahead of the next, over the same problems; None where nobody can say."""
    if column.key in MEASURES:
        pairs = [pair(best.counts[name], second.counts[name]) for name in column.members]
        return change(MEASURES[column.key], pairs)
    if column.key not in AES:
        return None
    score = partial(aes_or_nan, AES[column.key])
    return statistic_of(
        lambda a, a_len, b, b_len, base, base_len: (
            score(a, a_len, base, base_len) - score(b, b_len, base, base_len)
        ),
        [accuracy, lengths],
        [pair(best.counts[n], second.counts[n], best.base[n]) for n in column.members],
    )


# The tables


def paper_tables(entries: Sequence[Entry]) -> list[Table]:
    """Tables 1–3, stability, redundancy and the certificate; the first entry is the base."""
    names = [n for n in entries[0].counts if all(n in entry.counts for entry in entries)]
    averages = groups(names)
    tables = [_accuracy_table(group, averages[group], entries) for group in averages]
    columns = [
        column
        for name in names
        if all(average(MEASURES["thinking"], [entry.counts[name]]) for entry in entries)
        for column in _columns(name, (name,), thinking=1, answer=1)
    ]
    if columns:
        tables.append(_table("lengths", "Thinking and answer", columns, entries))
    for name in names:
        columns = _columns(name, (name,), ad=1, ap=1, ai=1, shortened=0, acc=2)
        tables.append(_table(f"stability_{name}", f"Stability, {name}", columns, entries))
    for name in names:
        keys = ("r_zip", "r_zip_correct", "r_zip_wrong", *MATCHED)
        columns = _columns(name, (name,), **dict.fromkeys(keys, 3))
        notes = [MATCHED_NOTE] * any(entry.counts[name].matched.any() for entry in entries)
        tables.append(_table(f"redundancy_{name}", f"Redundancy, {name}", columns, entries, notes))
    return [*tables, _certificate_table(averages, entries)]


def metrics_table(
    metrics: Mapping[str, Mapping[str, Metrics]], title: str, everything: bool = False
) -> Table:
    """One evaluation's metrics: a row per data set, then the averages."""
    rows = dict(metrics["sets"])
    sizes = [
        f"{name}: {each.problems:,} problems, {each.rollouts:,} responses"
        for name, each in rows.items()
    ]
    marked = any("thinking" in each.values for each in rows.values())
    parts = {"thinking": 1, "answer": 1} if marked else {}
    decimals = {"acc": 2, "interval": 0, "len": 1, **parts, "truncated": 2, "no_answer": 2}
    if everything:
        most = max(len([key for key in each.values if "pass@" in key]) for each in rows.values())
        decimals |= {f"pass@{2 ** (most - 1)}": 2} if most > 1 else {}
        decimals |= {"ungraded": 2, "r_zip": 3, "r_zip_correct": 3, "r_zip_wrong": 3}
    if len(rows) > 1:
        for group, average_metrics in metrics["averages"].items():
            if group == "all" or len(average_metrics.sets) > 1:
                rows[f"{TITLES[group]}, average"] = average_metrics
    cells = {
        name: tuple(
            _range_cell(each.values.get("acc")) if key == "interval" else Cell(each.values.get(key))
            for key in decimals
        )
        for name, each in rows.items()
    }
    columns = tuple(_columns("", (), **decimals))
    return Table("figures", title, columns, tuple(cells.items()), ("; ".join(sizes) + ".",))


def _range_cell(value: Interval | None) -> Cell:
    if value is None or np.isnan(value.low):
        return Cell()
    return Cell(text=f"{value.low:.1f} – {value.high:.1f}")


def _columns(head: str, members: Sequence[str], **decimals: int) -> list[Column]:
    titles = {key: TITLES_OF_METRICS.get(key, (key, None)) for key in decimals}
    return [
        Column(head, titles[key][0], key, tuple(members), n, titles[key][1])
        for key, n in decimals.items()
    ]


def _accuracy_table(group: str, members: Sequence[str], entries: Sequence[Entry]) -> Table:
    """Acc and Len of every set, their averages, AES; of all sets the averages alone."""
    columns: list[Column] = []
    if group == "all":
        absent = sorted({name for entry in entries for name in entry.counts} - set(members))
        title, note = f"{TITLES[group]}, averages", "Not in every evaluation, and left out: {}."
    else:
        absent = missing_from_average(group, members)
        title, note = TITLES[group], "The average is without {}, which the paper's has."
        for name in members:
            columns += _columns(name, (name,), acc=2, len=0)
    columns += _columns("Avg", members, acc=2, len=1)
    columns += _columns("Metrics", members, aes1=4, aes2=4)
    notes = [note.format(", ".join(absent))] * bool(absent)
    return _table(f"table_{group}", title, columns, entries, notes)


def _certificate_table(averages: Averages, entries: Sequence[Entry]) -> Table:
    columns: list[Column] = []
    for group, members in averages.items():
        if group == "all" or members != averages["all"]:
            decimals = {"acc_change": 2, "saved": 1, "bound": 2, "certificate": 0}
            columns += _columns(TITLES[group], members, **decimals)
    points = 100 * entries[0].tolerance
    notes = [
        "Certificate: accuracy is not below the base's by more than "
        f"{points:g} point{'' if points == 1 else 's'}. It is passed if the one-sided 95 % lower "
        "bound (Gaffke's) of the paired difference says so."
    ]
    for entry in entries[1:]:
        certificate = entry.against_base(averages["all"]).certificate
        if certificate is not None and not certificate.passed:
            sizes = (certificate.tolerance, certificate.problems, certificate.needed)
            if sentence := shortfall(*sizes):
                notes.append(f"{entry.name}: {sentence}")
    return _table("certificate", "Against the base", columns, entries, notes)


def _table(
    key: str,
    title: str,
    columns: Sequence[Column],
    entries: Sequence[Entry],
    notes: Sequence[str] = (),
) -> Table:
    marked = [
        mark_best([entry.cell(column) for entry in entries], entries, column, _lead)
        for column in columns
    ]
    rows = tuple(zip([entry.name for entry in entries], zip(*marked, strict=True), strict=True))
    return Table(key, title, tuple(columns), rows, tuple(notes))


def mark_best(
    cells: Sequence[Cell],
    rows: Sequence[Row],
    column: Column,
    lead: Callable[[Row, Row, Column], Interval | None],
) -> list[Cell]:
    """A column's cells; the best is marked, and whether it is surely ahead of the next."""
    values = {i: cell.interval.value for i, cell in enumerate(cells) if cell.interval}
    values = {i: value for i, value in values.items() if np.isfinite(value)}
    if column.better is None or len(set(values.values())) < 2:
        return list(cells)  # all alike: none is the best
    top = (max if column.better == "higher" else min)(values.values())
    best = [i for i, value in values.items() if value == top]
    second = min((i for i in values if i not in best), key=lambda i: abs(values[i] - top))
    unsure = holds_zero(lead(rows[best[0]], rows[second], column))
    marks: set[Mark] = {"best", "lead_unsure"} if unsure else {"best"}
    return [
        replace(cell, marks=cell.marks | marks) if i in best else cell
        for i, cell in enumerate(cells)
    ]
