"""What happens when one setting is turned: a table a setting, and the data."""

from collections.abc import Sequence
from typing import Any

from crt.evaluation.tables import Cell, Column, Table
from crt.experiments.collect import Result, Results
from crt.experiments.figures import mean_of
from crt.experiments.plan import Job
from crt.experiments.variants import setting
from crt.io import write_json

SENSITIVITY = "sensitivity.json"
KEPT = ("acc", "len", "aes1", "aes2", "ad", "base_acc", "base_len", "feasible", "outcome")
COLUMNS = (
    ("acc", "Acc", 2), ("len", "Len", 1), ("aes2", "AES2", 3), ("ad", "AD%", 1),
    ("worst", "worst seed", 2), ("feasible", "feasible", 0),
)  # fmt: skip


def write_sensitivity(results: Results) -> None:
    """One row a setting, value and seed."""
    rows = [
        {
            "setting": key,
            "value": value,
            "seed": each.job.seed,
            "method": each.job.method,
            **{name: each.row()[name] for name in KEPT},
            "own": not each.job.values,
        }
        for key in settings(results)
        for value, found in points(results, key)
        for each in found
    ]
    write_json(results.comparison.path / SENSITIVITY, rows)


def sensitivity_tables(results: Results) -> list[Table]:
    """One a setting; the recipe's own value is marked."""
    return [_table(results, key) for key in settings(results) if points(results, key)]


def settings(results: Results) -> list[str]:
    """Those that are turned, in the grid's order."""
    return list(dict.fromkeys(key for job in results.comparison.jobs for key in job.values))


def points(results: Results, key: str) -> list[tuple[Any, list[Result]]]:
    """Value → its results over seeds, numbers first; the recipe's own is among them."""
    found: list[tuple[Any, list[Result]]] = []
    for jobs in results.comparison.methods.values():
        measured = results.of(jobs[0].method, "recommended")
        if measured and (not jobs[0].values or key in jobs[0].values):
            found.append((_value(jobs[0], key), measured))
    return sorted(found, key=lambda point: _place(point[0]))


def _place(value: Any) -> tuple[bool, float]:
    """Numbers in their order, words behind them as the grid has them."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return not number, value if number else 0.0


def _value(job: Job, key: str) -> Any:
    return job.values[key] if key in job.values else setting(job.config, key)


def _table(results: Results, key: str) -> Table:
    columns = tuple(Column("", title, name, (), n) for name, title, n in COLUMNS)
    rows = tuple(
        (_row_name(value, found[0].job), tuple(_cell(found, column.key) for column in columns))
        for value, found in points(results, key)
    )
    first = results.results[0]
    told = f"{first.problems} problems, {first.rollouts} rollouts a run; recommended checkpoints."
    return Table(f"sensitivity_{key}", key, columns, rows, (told,))


def _row_name(value: Any, job: Job) -> str:
    return f"{value} (the recipe's)" if not job.values else str(value)


def _cell(found: Sequence[Result], key: str) -> Cell:
    if key == "feasible":
        return Cell(text=f"{sum(each.outcome.feasible for each in found)} of {len(found)}")
    if key == "worst":
        worst = min(each.figures["acc"].value - each.base["acc"].value for each in found)
        return Cell(text=f"{worst:+.2f}")
    return Cell(mean_of([each.figures[key] for each in found], found[0].problems))
