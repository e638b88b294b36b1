"""benchmarks/results.json: one object a row, kept from run to run until it is measured again."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from crt.io import read_json, write_text
from harness.statistics import Estimate, ratio_of_medians
from harness.timing import Timing

FEWEST = 3  # repeats: an interval of fewer says nothing
BUSY = 0.1  # cores, used by others: above it, wall times are not to be trusted

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Row:
    """One measured comparison.

    `ratio` is theirs over ours where higher is better (times as fast), ours over theirs where
    lower is (times the cost), a share of a limit, or the exponent of a growth. `ours` and `theirs`
    are medians in `unit`; there is no `theirs` where nothing is compared.
    """

    name: str
    what: str
    against: str
    ratio: float
    low: float
    high: float
    goal: float | None
    better: Better
    ours: float
    theirs: float | None
    unit: str
    cpu_ratio: float | None = None
    ours_cpu: float | None = None
    theirs_cpu: float | None = None
    limit: float | None = None  # share of what the machine could do at most
    possible: float | None = None  # the ratio of somebody at that limit
    repeats: int = 1
    note: str = ""
    others: float = 0.0  # cores that other processes used meanwhile
    busy: bool = False
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> str:
        """`yes` or `no` when the whole interval says so, else `unsure`; `–` without a goal."""
        if self.goal is None:
            return "–"
        if self.repeats < FEWEST:
            return "unsure"
        inside = [
            each >= self.goal if self.better == "higher" else each <= self.goal
            for each in (self.low, self.high)
        ]
        return "yes" if all(inside) else "unsure" if any(inside) else "no"

    def line(self) -> str:
        """What is printed as soon as the row is measured."""
        sign = "≥" if self.better == "higher" else "≤"
        goal = "" if self.goal is None else f"  goal {sign} {self.goal:g}: {self.met}"
        busy = f"  (busy: others used {self.others:g} cores)" if self.busy else ""
        cpu = "" if self.cpu_ratio is None else f"  CPU {self.cpu_ratio:.4g}"
        figures = f"{self.ratio:.4g} ({self.low:.4g} to {self.high:.4g})"
        limit = "" if self.limit is None else f"  {self.limit:.0%} of the limit"
        return f"{self.name:<24} {figures}{cpu}{limit}{goal}{busy}"


def compared(
    name: str,
    what: str,
    against: str,
    ours: Sequence[Timing],
    theirs: Sequence[Timing],
    *,
    goal: float | None,
    better: Better = "higher",
    unit: str = "seconds",
    scale: float = 1.0,
    note: str = "",
    least: float | None = None,
) -> Row:
    """A row from two contenders' repeats; times are per unit of work, `scale` of them are shown.

    `least` is the time per unit in which this machine could do the work at best.
    """
    mine, other = [t.wall_each for t in ours], [t.wall_each for t in theirs]
    ratio = ratio_of_medians(*((other, mine) if better == "higher" else (mine, other)))
    mine_cpu, other_cpu = [t.cpu_each for t in ours], [t.cpu_each for t in theirs]
    cpu = statistics.median(other_cpu) / statistics.median(mine_cpu)
    return Row(
        name, what, against, *rounded(ratio), goal, better,
        ours=four(scale * statistics.median(mine)), theirs=four(scale * statistics.median(other)),
        unit=unit, cpu_ratio=four(cpu if better == "higher" else 1 / cpu),
        ours_cpu=four(scale * statistics.median(mine_cpu)),
        theirs_cpu=four(scale * statistics.median(other_cpu)), repeats=len(mine), note=note,
        limit=None if least is None else four(least / statistics.median(mine)),
        possible=None if least is None else four(statistics.median(other) / least),
    )  # fmt: skip


def rounded(estimate: Estimate) -> Estimate:
    """To four figures, which is more than a clock can tell."""
    return Estimate(*map(four, estimate))


def four(value: float) -> float:
    """A number to four figures."""
    return float(f"{value:.4g}")


def on(row: Row, others: float, machine: dict[str, Any]) -> Row:
    """The row with what it was measured on, and how many cores others used meanwhile."""
    return replace(row, others=others, busy=others > BUSY, machine=machine)


def read_rows(path: Path) -> list[Row]:
    """What was measured before; nothing if there is no file yet."""
    return [Row(**each) for each in read_json(path)] if path.is_file() else []


def merged(rows: Sequence[Row], new: Row, order: Sequence[str]) -> list[Row]:
    """The new row in the place of the old one, rows in the benchmarks' order, unknown ones gone."""
    by_name = {row.name: row for row in rows} | {new.name: new}
    return [by_name[name] for name in order if name in by_name]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """A list of objects, in place of the file in one move."""
    write_text(path, json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n")
