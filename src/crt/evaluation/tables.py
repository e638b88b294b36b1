"""The paper's tables for any set of evaluations, as data; `render` puts them on paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from crt.algorithm.statistics import Interval, shortfall
from crt.evaluation.columns import Column, Entry, figure, lead
from crt.evaluation.figures import Figures
from crt.evaluation.sets import DOMAINS, TITLES, groups, missing
from crt.evaluation.versus import MATCHED

Mark = Literal["best", "lead_unsure", "base_unsure"]
LEGEND = (
    "bold or *: best of its column; °: its lead over the next best is not supported by the 95 % "
    "interval; ≈: the difference to the base is not supported by the 95 % interval. Intervals are "
    "bootstrapped over problems, paired with the base."
)


@dataclass(frozen=True)
class Cell:
    """A figure with its interval, or a word, or nothing; and what is to be said of it."""

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


def paper_tables(entries: Sequence[Entry]) -> list[Table]:
    """Tables 1–3, stability, redundancy and the certificate; the first entry is the base."""
    names = _common(entries)
    averages = groups(names)
    built = [
        _table(f"table_{group}", TITLES[group], _accuracy_columns(members), entries)
        for group, members in averages.items()
        if group != "all"
    ]
    every = averages["all"]
    built += [
        _table("table_all", f"{TITLES['all']}, averages", _average_columns(every), entries),
        *(_table(f"stability_{n}", f"Stability, {n}", _stability(n), entries) for n in names),
        *(_redundancies(n, entries) for n in names),
        _certificates(entries, averages),
    ]
    return [_with_notes(table, entries, averages) for table in built]


def figures_table(found: Mapping[str, Mapping[str, Figures]], title: str) -> Table:
    """One evaluation's figures: a row a data set, then the averages."""
    ks = sorted(
        {k for f in found["sets"].values() for k in f.values if k.startswith("pass@")}, key=_k
    )
    most = [k for k in ks if k != "pass@1"][-1:]
    plain = {"acc": 2, **dict.fromkeys(most, 2), "len": 1, "truncated": 2, "no_answer": 2}
    digits = {**plain, "ungraded": 2, "r_zip": 3, "r_zip_correct": 3, "r_zip_wrong": 3}
    columns = tuple(Column("", _TITLE.get(key, key), key, (), n) for key, n in digits.items())
    rows = dict(found["sets"])
    if len(rows) > 1:
        averages = {k: v for k, v in found["averages"].items() if k == "all" or len(v.sets) > 1}
        rows |= {f"{TITLES[group]}, average": value for group, value in averages.items()}
    sizes = (Column("", "problems", "problems", (), 0), Column("", "rollouts", "rollouts", (), 0))
    return Table(
        "figures",
        title,
        (*sizes, *columns),
        tuple((name, _figures_row(each, columns)) for name, each in rows.items()),
    )


_TITLE = {
    "acc": "Acc",
    "len": "Len",
    "truncated": "truncated %",
    "no_answer": "no answer %",
    "ungraded": "ungraded %",
    "r_zip": "R_zip",
    "r_zip_matched": "R_zip, equal length",
    "r_zip_matched_base": "base's there",
    "r_zip_correct": "R_zip correct",
    "r_zip_wrong": "R_zip wrong",
    "aes1": "AES1",
    "aes2": "AES2",
    "ad": "AD%",
    "ap": "AP%",
    "ai": "AI%",
}


def _figures_row(each: Figures, columns: Sequence[Column]) -> tuple[Cell, ...]:
    sizes = (Cell(text=str(each.problems)), Cell(text=str(each.rollouts)))
    return (*sizes, *(Cell(each.values.get(column.key)) for column in columns))


def _accuracy_columns(members: Sequence[str]) -> list[Column]:
    """Acc and Len of every set, their averages, AES."""
    columns: list[Column] = []
    for name in members:
        columns += [
            Column(name, "Acc", "acc", (name,), 2, "higher"),
            Column(name, "Len", "len", (name,), 0, "lower"),
        ]
    return columns + _average_columns(members)


def _average_columns(members: Sequence[str]) -> list[Column]:
    of = tuple(members)
    return [
        Column("Avg", "Acc", "acc", of, 2, "higher"),
        Column("Avg", "Len", "len", of, 1, "lower"),
        Column("Metrics", "AES1", "aes1", of, 4, "higher"),
        Column("Metrics", "AES2", "aes2", of, 4, "higher"),
    ]


def _stability(name: str) -> list[Column]:
    """Of the `n` problems that got shorter, how many lost, kept and gained accuracy."""
    of = (name,)
    return [
        Column(name, "AD%", "ad", of, 1, "lower"),
        Column(name, "AP%", "ap", of, 1, "higher"),
        Column(name, "AI%", "ai", of, 1, "higher"),
        Column(name, "n", "shortened", of, 0),
        Column(name, "Acc", "acc", of, 2, "higher"),
    ]


def _redundancy(name: str) -> list[Column]:
    keys = ("r_zip", "r_zip_correct", "r_zip_wrong")
    columns = [Column(name, _TITLE[key], key, (name,), 3, "higher") for key in keys]
    return columns + [Column(name, _TITLE[key], key, (name,), 3) for key in MATCHED]


def _redundancies(name: str, entries: Sequence[Entry]) -> Table:
    table = _table(f"redundancy_{name}", f"Redundancy, {name}", _redundancy(name), entries)
    note = (
        "Equal length: of each response and the base's response to the same problem the longer one "
        "is cut to the shorter. Short texts compress badly; here the difference is one of content."
    )
    known = any(entry.tallies[name].matched is not None for entry in entries)
    return replace(table, notes=(note,)) if known else table


def _certificates(entries: Sequence[Entry], averages: Mapping[str, tuple[str, ...]]) -> Table:
    columns: list[Column] = []
    for group, members in averages.items():
        columns += [
            Column(TITLES[group], "Acc − base", "acc_change", members, 2, "higher"),
            Column(TITLES[group], "tokens saved %", "saved", members, 1, "higher"),
            Column(TITLES[group], "lower bound", "bound", members, 2),
            Column(TITLES[group], "certificate", "certificate", members, 0),
        ]
    points = 100 * entries[0].tolerance
    tolerance = f"{points:g} point{'' if points == 1 else 's'}"
    table = _table("certificate", "Against the base", columns, entries)
    rule = (
        f"Certificate: accuracy is not below the base's by more than {tolerance}. It is passed if "
        "the one-sided 95 % lower bound (Gaffke's) of the paired difference says so."
    )
    return replace(table, notes=(rule, *_shortfalls(entries, averages)))


def _shortfalls(entries: Sequence[Entry], averages: Mapping[str, tuple[str, ...]]) -> list[str]:
    """How many problems a certificate needs that was not passed, for the widest average."""
    notes: list[str] = []
    for entry in entries:
        found = None if entry.is_base else entry.against(averages["all"]).certificate
        if found is None or found.passed:
            continue
        sentence = shortfall(found.tolerance, found.problems, found.needed)
        notes += [f"{entry.name}: {sentence}"] if sentence else []
    return notes


def _table(key: str, title: str, columns: Sequence[Column], entries: Sequence[Entry]) -> Table:
    cells = [[_cell(entry, column) for column in columns] for entry in entries]
    for place, column in enumerate(columns):
        _mark_best([row[place] for row in cells], column, entries, cells, place)
    rows = tuple((entry.name, tuple(row)) for entry, row in zip(entries, cells, strict=True))
    return Table(key, title, tuple(columns), rows)


def _cell(entry: Entry, column: Column) -> Cell:
    found = figure(entry, column)
    if isinstance(found, str):
        return Cell(text=found)
    unsure = found is not None and not entry.is_base and entry.unsure(column)
    return Cell(found, marks=frozenset(["base_unsure"]) if unsure else frozenset())


def _mark_best(
    column_cells: Sequence[Cell],
    column: Column,
    entries: Sequence[Entry],
    cells: list[list[Cell]],
    place: int,
) -> None:
    """Marks the best of a column, and whether it is surely ahead of the next."""
    values = [cell.interval.value if cell.interval else np.nan for cell in column_cells]
    known = [i for i, value in enumerate(values) if not np.isnan(value)]
    if column.better is None or len(known) < 2:
        return
    top = (max if column.better == "higher" else min)(values[i] for i in known)
    best = [i for i in known if values[i] == top]
    rest = [i for i in known if values[i] != top]
    if not rest:
        return  # all alike: none is the best
    next_best = min(rest, key=lambda i: abs(values[i] - top))
    marks: set[Mark] = {"best"}
    ahead = lead(entries[best[0]], entries[next_best], column)
    if ahead is not None and not (ahead.low > 0 or ahead.high < 0):
        marks.add("lead_unsure")
    for row in best:
        cells[row][place] = replace(cells[row][place], marks=cells[row][place].marks | marks)


def _common(entries: Sequence[Entry]) -> list[str]:
    """Data sets that every evaluation has, in the base's order."""
    return [n for n in entries[0].tallies if all(n in entry.tallies for entry in entries)]


def _with_notes(
    table: Table, entries: Sequence[Entry], averages: Mapping[str, tuple[str, ...]]
) -> Table:
    notes = list(table.notes)
    group = table.key.removeprefix("table_")
    if group in DOMAINS and (absent := missing(group, averages[group])):
        notes.append(f"The average is without {', '.join(absent)}, which the paper's has.")
    if table.key == "table_all":
        left = sorted({n for e in entries for n in e.tallies} - set(averages["all"]))
        if left:
            notes.append(f"Not in every evaluation, and left out: {', '.join(left)}.")
    return replace(table, notes=tuple(notes))


def _k(name: str) -> int:
    return int(name.removeprefix("pass@"))
