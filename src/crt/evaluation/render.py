"""Tables for a terminal, Markdown, LaTeX, CSV and JSON; whatever is not ours is escaped."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

import numpy as np

from crt.algorithm.statistics import Interval
from crt.evaluation.metrics import interval_json
from crt.evaluation.tables import Cell, Table

T = TypeVar("T")
NOTHING = "–"
SIGNS = {"lead_unsure": "°", "base_unsure": "≈"}
_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "−": "$-$",
    "≈": r"$^{\approx}$",
    "°": r"$^{\circ}$",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def printable(text: str) -> str:
    """One line that cannot move a cursor, colour a screen or turn the reading direction."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def number(cell: Cell, decimals: int, intervals: bool) -> str:
    """A cell's figure as text, without marks."""
    if cell.interval is None or np.isnan(cell.interval.value):
        return printable(cell.text) or NOTHING
    value, low, high, _ = cell.interval
    text = f"{value:.{decimals}f}"
    if not intervals:
        return text
    return f"{text} [{low:.{decimals}f}, {high:.{decimals}f}]" if low == low else f"{text} [–]"


def signs(cell: Cell) -> str:
    """° and ≈ where they belong."""
    return "".join(sign for mark, sign in SIGNS.items() if mark in cell.marks)


def terminal(
    tables: Sequence[Table],
    intervals: bool = False,
    colour: bool = False,
    width: int | None = 240,
) -> str:
    """Boxes drawn with lines; the best is bold where there is colour, starred where not.

    A `width` of None is the screen's.
    """
    from rich.console import Console
    from rich.table import Table as Box
    from rich.text import Text

    def styled(cell: Cell, text: str) -> Text:
        best = "best" in cell.marks
        return Text(f"{text}{'*' * (best and not colour)}{signs(cell)}", "bold" * best)

    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, no_color=not colour)
    for table in tables:
        box = Box(title=Text(printable(table.title)), title_justify="left")
        box.add_column("")
        for column in table.columns:
            head = f"{printable(column.head)}\n{column.title}" if column.head else column.title
            box.add_column(Text(head), justify="right")
        for name, cells in _rows(table, intervals, styled):
            box.add_row(Text(printable(name)), *cells)
        console.print(box)
        for note in table.notes:
            console.print(Text(printable(note)))
        console.print()
    return out.getvalue()


def markdown(tables: Sequence[Table], intervals: bool = False) -> str:
    """Pipe tables."""

    def escaped(cell: Cell, text: str) -> str:
        bold = "**" * ("best" in cell.marks)
        return f"{bold}{_markdown(text)}{bold}{signs(cell)}"

    parts: list[str] = []
    for table in tables:
        heads = [_markdown(f"{c.head} {c.title}".strip()) for c in table.columns]
        rows = _rows(table, intervals, escaped)
        lines = [
            f"### {_markdown(table.title)}",
            "",
            f"| | {' | '.join(heads)} |",
            f"|---|{'---:|' * len(heads)}",
            *(f"| {' | '.join([_markdown(name), *cells])} |" for name, cells in rows),
            *(f"\n{_markdown(note)}" for note in table.notes),
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def latex(tables: Sequence[Table], intervals: bool = False) -> str:
    """booktabs tables as in the paper."""

    def escaped(cell: Cell, text: str) -> str:
        text = rf"\textbf{{{_latex(text)}}}" if "best" in cell.marks else _latex(text)
        return text + _latex(signs(cell))

    parts = ["% needs \\usepackage{booktabs}"]
    for table in tables:
        spans = [(head, len(list(same))) for head, same in groupby(c.head for c in table.columns)]
        heads = [rf"\multicolumn{{{n}}}{{c}}{{\textbf{{{_latex(head)}}}}}" for head, n in spans]
        titles = [_latex(column.title) for column in table.columns]
        rows = _rows(table, intervals, escaped)
        lines = [
            r"\begin{table}[ht]",
            r"\centering\footnotesize",
            rf"\caption{{{_latex(' '.join([table.title + '.', *table.notes]))}}}",
            rf"\begin{{tabular}}{{l{'r' * len(titles)}}}",
            r"\toprule",
            rf"\textbf{{Method}} & {' & '.join(heads)} \\",
            rf" & {' & '.join(titles)} \\",
            r"\midrule",
            *(rf"{' & '.join([_latex(name), *cells])} \\" for name, cells in rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def as_rows(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """One row per cell: for CSV, JSON and data frames."""
    return [
        {
            "table": table.key,
            "method": printable(name),
            "sets": "+".join(map(printable, column.members)) or printable(name),
            "figure": column.key,
            **_interval(cell),
            "text": printable(cell.text) or None,
            "best": "best" in cell.marks,
            "lead_unsure": "lead_unsure" in cell.marks,
            "base_unsure": "base_unsure" in cell.marks,
        }
        for table in tables
        for name, cells in table.rows
        for column, cell in zip(table.columns, cells, strict=True)
    ]


def as_csv(tables: Sequence[Table]) -> str:
    """One line per cell, with its interval."""
    rows = as_rows(tables)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _safe(value) for key, value in row.items()} for row in rows)
    return out.getvalue()


def as_json(tables: Sequence[Table]) -> str:
    """The same cells, with titles and notes."""
    value = [
        {
            "key": table.key,
            "title": table.title,
            "notes": list(table.notes),
            "cells": [{k: v for k, v in row.items() if k != "table"} for row in as_rows([table])],
        }
        for table in tables
    ]
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def _rows(
    table: Table, intervals: bool, show: Callable[[Cell, str], T]
) -> Iterator[tuple[str, list[T]]]:
    """Rows by name; `show` gets each cell and its number as text."""
    for name, cells in table.rows:
        pairs = zip(table.columns, cells, strict=True)
        yield name, [show(cell, number(cell, column.decimals, intervals)) for column, cell in pairs]


def _markdown(text: str) -> str:
    escaped = re.sub(r"([\\`*_\[\]|~])", r"\\\1", printable(text))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in printable(text))


def _interval(cell: Cell) -> dict[str, Any]:
    unknown = dict.fromkeys(Interval._fields)
    return interval_json(cell.interval) if cell.interval else unknown


def _safe(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula is quoted for it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" and value[:1] else value
