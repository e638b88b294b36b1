"""Tables for a terminal, Markdown, LaTeX, CSV, JSON and data frames; foreign text is escaped."""

import csv
import io
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from crt.algorithm.metrics import zip_ratio
from crt.algorithm.statistics import Interval
from crt.errors import ConfigError, install_command
from crt.evaluation.metrics import NUMBERS, all_metrics, interval_json
from crt.evaluation.store import ROLLOUT_KEYS, Evaluation
from crt.evaluation.tables import Cell, Column, Table, compare

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.text import Text

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
_LATEX_TITLES = {"AES1": "AES$_1$", "AES2": "AES$_2$"}  # and R_zip at the start of a title


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
    colour: bool | None = None,
    width: int | None = None,
) -> str:
    """Boxes drawn with lines, or blocks of lines for a table wider than the screen.

    The best is bold where there is colour, starred where not. A pipe has the width of COLUMNS.
    """
    from rich.console import Console
    from rich.table import Table as Box
    from rich.text import Text

    colour = sys.stdout.isatty() if colour is None else colour
    width = width or shutil.get_terminal_size().columns
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, no_color=not colour, force_jupyter=False
    )

    def styled(cell: Cell, text: str) -> Text:
        best = "best" in cell.marks
        return Text(f"{text}{'*' * (best and not colour)}{signs(cell)}", "bold" * best)

    for table in tables:
        rows = [(printable(name), cells) for name, cells in _rows(table, intervals, styled)]
        headings = [_heading(column, "\n") for column in table.columns]
        widest = [max(cells[i].cell_len for _, cells in rows) for i in range(len(headings))]
        for heads in (headings, list(map(_broken, headings, widest))):
            box = Box(title=Text(printable(table.title)), title_justify="left")
            for head in ("", *heads):
                box.add_column(Text(head), justify="right" if head else "left", no_wrap=True)
            for name, cells in rows:
                box.add_row(Text(name), *cells)
            if Console(width=10 * width + 1000).measure(box).maximum <= width:
                console.print(box)
                break
        else:
            for line in _blocks(table, rows):
                console.print(line)
        for note in table.notes:
            console.print(Text(printable(note)))
        console.print()
    return out.getvalue()


def _blocks(table: Table, rows: Sequence[tuple[str, "list[Text]"]]) -> Iterator["Text | str"]:
    """A table as one block per row, a line per column."""
    from rich.text import Text

    yield Text(printable(table.title), "italic")
    labels = [_heading(column, " ") for column in table.columns]
    longest = max(map(len, labels))
    for name, cells in rows:
        yield Text(name, "bold")
        for label, cell in zip(labels, cells, strict=True):
            yield Text(f"  {label:<{longest}}  ").append(cell)


def _broken(heading: str, width: int) -> str:
    """A heading as narrow as the cells below it, if its words are."""
    width = max(width, *map(len, heading.split()))
    return "\n".join(textwrap.fill(line, width) for line in heading.splitlines())


def _heading(column: Column, separator: str) -> str:
    return separator.join(filter(None, (printable(column.head), column.title)))


def markdown(tables: Sequence[Table], intervals: bool = False) -> str:
    """Pipe tables."""

    def escaped(cell: Cell, text: str) -> str:
        bold = "**" * ("best" in cell.marks)
        return f"{bold}{_markdown(text)}{bold}{signs(cell)}"

    parts: list[str] = []
    for table in tables:
        heads = [_markdown(_heading(column, " ")) for column in table.columns]
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
    """booktabs tables as in the paper, each with a label."""

    def escaped(cell: Cell, text: str) -> str:
        text = _latex(re.sub(r"-(?=\d)", "−", text) if cell.interval else text)
        return (rf"\textbf{{{text}}}" if "best" in cell.marks else text) + _latex(signs(cell))

    parts = ["% needs \\usepackage{booktabs}"]
    for table in tables:
        spans = [(head, len(list(same))) for head, same in groupby(c.head for c in table.columns)]
        heads = [rf"\multicolumn{{{n}}}{{c}}{{\textbf{{{_latex(head)}}}}}" for head, n in spans]
        titles = " & ".join(_latex_title(column.title) for column in table.columns)
        over = [rf" & {' & '.join(heads)} \\"] * any(head for head, _ in spans)
        lines = [
            r"\begin{table}[ht]",
            r"\centering\footnotesize",
            rf"\caption{{{_latex(' '.join([table.title + '.', *table.notes]))}}}",
            rf"\label{{tab:{re.sub(r'[^a-zA-Z0-9]+', '-', table.key)}}}",
            rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"\toprule",
            *over,
            rf"\textbf{{Method}} & {titles} \\",
            r"\midrule",
            *(
                rf"{' & '.join([_latex(name), *cells])} \\"
                for name, cells in _rows(table, intervals, escaped)
            ),
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
            "kind": "set" if column.members == (column.head,) else "average",
            "sets": "+".join(map(printable, column.members)) or printable(name),
            "figure": column.key,
            **(interval_json(cell.interval) or dict.fromkeys(Interval._fields)),
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


def _latex_title(title: str) -> str:
    if title.startswith("R_zip"):
        return r"R$_{\mathrm{zip}}$" + _latex(title.removeprefix("R_zip"))
    return _LATEX_TITLES.get(title) or _latex(title)


def _safe(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula is quoted for it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" and value[:1] else value


# Data frames for a notebook; pandas is needed for these functions alone


def figures_frame(evaluations: Sequence[Evaluation]) -> "DataFrame":
    """One row per metric: evaluation, sets, figure, value, low, high, problems."""
    return _frame(
        {"evaluation": each.name, "kind": kind, "sets": name, "figure": key, **value._asdict()}
        for each in evaluations
        for kind, part in all_metrics(each.counts).items()
        for name, metrics in part.items()
        for key, value in metrics.values.items()
    )


def problems_frame(evaluations: Sequence[Evaluation]) -> "DataFrame":
    """One row per problem and evaluation: counts, accuracy in %, mean tokens."""
    frame = _frame(
        {"evaluation": each.name, "data": counts.name, "problem_id": problem_id}
        | {name: getattr(counts, name)[row] for name in NUMBERS}
        for each in evaluations
        for counts in each.counts.values()
        for row, problem_id in enumerate(counts.ids)
    )
    frame["acc"] = 100 * frame["correct"] / frame["graded"].where(frame["graded"] > 0)
    frame["len"] = frame["tokens"] / frame["rollouts"]
    return frame


def rollouts_frame(evaluation: Evaluation) -> "DataFrame":
    """One row per response, with its text."""
    frame = _frame(
        {key: getattr(each, key) for key in ROLLOUT_KEYS} for each in evaluation.rollouts()
    )
    frame["zip_ratio"] = frame["text"].map(zip_ratio)
    return frame.astype({"verdict": str})


def comparison_frame(evaluations: Sequence[Evaluation], **settings: Any) -> "DataFrame":
    """One row per cell of the paper's tables; `settings` are `compare`'s."""
    return _frame(as_rows(compare(evaluations, **settings).tables))


def _frame(rows: Any) -> "DataFrame":
    try:
        import pandas
    except ImportError:
        raise ConfigError(f"data frames need pandas: {install_command('data')}") from None
    return pandas.DataFrame(list(rows))
