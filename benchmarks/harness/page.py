"""docs/results/performance.md: the table between two marks comes from the rows, the rest stays."""

import re
from collections.abc import Sequence
from pathlib import Path

from crt.errors import DataError
from crt.io import write_text
from harness.results import Row

BEGIN, END = "<!-- table: made by `make bench` -->", "<!-- end of the table -->"
HEAD = (
    "| row | what | against | ratio (95 %) | goal | met | at the limit | CPU | ours | theirs |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def update_page(path: Path, rows: Sequence[Row]) -> None:
    """Puts the table of these rows into the page."""
    text = path.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise DataError(f"{path} needs the lines {BEGIN!r} and {END!r} once each, for the table.")
    block = f"{BEGIN}\n{table(rows)}\n{END}"
    pattern = re.escape(BEGIN) + ".*" + re.escape(END)
    write_text(path, re.sub(pattern, lambda _: block, text, flags=re.DOTALL))


def table(rows: Sequence[Row]) -> str:
    """All rows, the machines under them, and a word on rows of a busy machine."""
    notes = [f"`{row.name}`: {row.note}" for row in rows if row.note]
    busy = [row.name for row in rows if row.busy]
    lines = [HEAD, *map(_line, rows), "", *_machines(rows)]
    if busy:
        lines += [
            "",
            "† Measured while other processes used the machine: wall times are unsure, CPU ratios "
            "hold better.",
        ]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)])


def _line(row: Row) -> str:
    sign = "≥" if row.better == "higher" else "≤"
    cells = (
        f"`{row.name}`" + (" †" if row.busy else ""),
        row.what,
        row.against,
        f"**{row.ratio:.4g}** ({row.low:.4g}–{row.high:.4g})",
        "" if row.goal is None else f"{sign} {row.goal:.3g}",
        row.met,
        "" if row.limit is None else f"{row.limit:.0%}, {row.possible:.3g} possible",
        "" if row.cpu_ratio is None else f"{row.cpu_ratio:.4g}",
        f"{row.ours:.4g} {row.unit}",
        "" if row.theirs is None else f"{row.theirs:.4g}",
    )
    return f"| {' | '.join(cells)} |"


def _machines(rows: Sequence[Row]) -> list[str]:
    machines = dict.fromkeys(", ".join(f"{k} {v}" for k, v in row.machine.items()) for row in rows)
    return [f"Measured on: {machine}." for machine in machines if machine]
