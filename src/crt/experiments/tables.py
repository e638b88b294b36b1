"""The comparison's tables: methods over seeds, the ablation, the cost, and varied settings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crt.algorithm.statistics import Interval
from crt.evaluation.columns import Column
from crt.evaluation.tables import Cell, Mark, Table
from crt.experiments.collect import Result, Results, mean_over_seeds
from crt.experiments.plan import setting

ABLATION = ("crt", "crt_1s", "primal_dual")
TITLES = {
    "recommended": "Recommended checkpoints: the shortest that kept the guard on validation",
    "last": "Last iterates",
}
LEGEND = (
    "Means over seeds; intervals are 95 %, bootstrapped over seeds and over problems. bold or *: "
    "best of its column; °: its lead over the next best is not supported by the interval of their "
    "difference; ≈: the difference to the base is not. Worst seed: the lowest Acc − base of any "
    "seed, in points."
)
METHOD_COLUMNS = (
    Column("", "Acc", "acc", (), 2, "higher"),
    Column("", "Len", "len", (), 1, "lower"),
    Column("", "AES1", "aes1", (), 3, "higher"),
    Column("", "AES2", "aes2", (), 3, "higher"),
    Column("", "R_zip", "r_zip", (), 3, "higher"),
    Column("", "AD%", "ad", (), 1, "lower"),
    Column("", "AP%", "ap", (), 1, "higher"),
    Column("", "AI%", "ai", (), 1, "higher"),
    Column("", "worst seed", "worst", (), 2),
    Column("", "seeds", "seeds", (), 0),
)
SETTING_COLUMNS = (
    Column("", "Acc", "acc", (), 2),
    Column("", "Len", "len", (), 1),
    Column("", "AES2", "aes2", (), 3),
    Column("", "AD%", "ad", (), 1),
    Column("", "worst seed", "worst", (), 2),
    Column("", "feasible", "feasible", (), 0),
)
COST_COLUMNS = (
    Column("", "tokens", "tokens", (), 0),
    Column("", "steps", "steps", (), 0),
    Column("", "minutes", "minutes", (), 0),
    Column("", "CPU minutes", "cpu", (), 0),
    Column("", "feasible", "feasible", (), 0),
    Column("", "ended by alarm", "ended", (), 0),
)
COST_NOTE = (
    "Means over seeds. Tokens are those the policy generated in training. Minutes are of "
    "training steps, CPU minutes of all processes of a run that came to an end."
)


def build_tables(results: Results) -> list[Table]:
    """The tables of this kind of comparison for which there is something."""
    if results.comparison.kind == "sensitivity":
        return [_setting_table(results, key) for key in settings(results) if points(results, key)]
    jobs = results.comparison.methods
    measured = [method for method in jobs if results.of(method, "last")]
    if not measured:
        return []
    tables = [_method_table(results, measured, kind) for kind in TITLES]
    ablation = [method for method in measured if jobs[method][0].type in ABLATION]
    if 2 <= len(ablation) < len(measured):
        table = _method_table(results, ablation, "recommended")
        tables.insert(1, replace(table, key="ablation", title="CRT, CRT (1s), primal-dual"))
    tables.append(_cost_table(results, measured))
    if results.missing:
        note = f"Not measured: {'; '.join(results.missing)}."
        tables[0] = replace(tables[0], notes=(*tables[0].notes, note))
    return [table for table in tables if table.rows]


# Methods


def _method_table(results: Results, methods: Sequence[str], kind: str) -> Table:
    rows = {m: results.of(m, kind) for m in methods if results.of(m, kind)}
    cells = {m: [_marked_cell(row, c.key) for c in METHOD_COLUMNS] for m, row in rows.items()}
    for place, column in enumerate(METHOD_COLUMNS):
        _mark_best(rows, cells, place, column)
    base = tuple(_base_cell(results, column.key) for column in METHOD_COLUMNS)
    first = results.results[0]
    notes = [
        f"{first.problems} problems, {first.rollouts} rollouts a model and seed.",
        *(
            f"{result.job.name} was stopped at step {result.outcome.steps} and stands with what "
            f"it had: {result.outcome.stopped}"
            for row in rows.values()
            for result in row
            if result.outcome.status == "stopped"
        ),
    ]
    body = (("base", base), *((method, tuple(row)) for method, row in cells.items()))
    return Table(f"methods_{kind}", TITLES[kind], METHOD_COLUMNS, body, tuple(notes))


def _cell(row: Sequence[Result], key: str) -> Cell:
    """A method's cell, over its seeds."""
    if key == "seeds":
        return Cell(text=str(len(row)))
    if key == "feasible":
        return Cell(text=f"{sum(result.outcome.feasible for result in row)} of {len(row)}")
    if key == "worst":
        worst = min(result.metrics["acc"].value - result.base["acc"].value for result in row)
        return Cell(text=f"{worst:+.2f}")
    return Cell(mean_over_seeds([result.metrics[key] for result in row], row[0].problems))


def _marked_cell(row: Sequence[Result], key: str) -> Cell:
    """The same with a mark if its difference to the base, or its score, may be 0."""
    cell = _cell(row, key)
    if key in ("aes1", "aes2"):
        gains = [result.metrics[key] for result in row]
    elif key in row[0].base:
        gains = [result.metrics[key] - result.base[key] for result in row]
    else:
        return cell
    unsure = _holds_zero(mean_over_seeds(gains, row[0].problems))
    return replace(cell, marks=frozenset(["base_unsure"])) if unsure else cell


def _base_cell(results: Results, key: str) -> Cell:
    if key == "seeds":
        return Cell(text=str(len(results.bases)))
    problems = results.results[0].problems
    if key in ("aes1", "aes2"):
        return Cell(Interval(0.0, 0.0, 0.0, problems))
    metrics = [base[key] for base in results.bases.values() if key in base]
    return Cell(mean_over_seeds(metrics, problems))


def _mark_best(
    rows: Mapping[str, Sequence[Result]],
    cells: Mapping[str, list[Cell]],
    place: int,
    column: Column,
) -> None:
    """Marks the best method of a column, and whether it is surely ahead of the next."""
    intervals = {method: row[place].interval for method, row in cells.items()}
    values = {m: i.value for m, i in intervals.items() if i and np.isfinite(i.value)}
    if column.better is None or len(set(values.values())) < 2:
        return
    order = sorted(values, key=lambda m: values[m], reverse=column.better == "higher")
    best = [method for method in order if values[method] == values[order[0]]]
    marks: set[Mark] = {"best"}
    if _holds_zero(_lead(rows[best[0]], rows[order[len(best)]], column.key)):
        marks.add("lead_unsure")
    for method in best:
        cell = cells[method][place]
        cells[method][place] = replace(cell, marks=cell.marks | marks)


def _lead(best: Sequence[Result], second: Sequence[Result], key: str) -> Interval | None:
    """The difference over the seeds that both have."""
    by_seed = {result.job.seed: result for result in second}
    differences = [
        result.metrics[key] - by_seed[result.job.seed].metrics[key]
        for result in best
        if result.job.seed in by_seed
    ]
    return mean_over_seeds(differences, best[0].problems)


def _holds_zero(interval: Interval | None) -> bool:
    return interval is not None and not (interval.low > 0 or interval.high < 0)


# What the runs cost


def _cost_table(results: Results, methods: Sequence[str]) -> Table:
    rows = {method: results.of(method, "last") for method in methods}
    notes = [COST_NOTE]
    # Runs that finished with tokens left were ended by their steps: not the same work.
    unspent = [
        result.job.name
        for row in rows.values()
        for result in row
        if result.outcome.status == "finished"
        and result.outcome.tokens < (result.job.config.schedule.tokens or 0)
    ]
    if unspent:
        notes.append(
            f"Ended by schedule.steps before their tokens were used: {', '.join(unspent)}."
        )
    body = tuple((method, _cost_cells(row)) for method, row in rows.items())
    return Table("cost", "What it took", COST_COLUMNS, body, tuple(notes))


def _cost_cells(row: Sequence[Result]) -> tuple[Cell, ...]:
    outcomes = [result.outcome for result in row]
    stopped = sum(outcome.status == "stopped" for outcome in outcomes)
    return (
        Cell(text=f"{np.mean([outcome.tokens for outcome in outcomes]):,.0f}"),
        Cell(text=f"{np.mean([outcome.steps for outcome in outcomes]):,.0f}"),
        Cell(text=f"{np.mean([outcome.seconds / 60 for outcome in outcomes]):,.1f}"),
        Cell(text=f"{np.mean([result.cpu_seconds / 60 for result in row]):,.1f}"),
        _cell(row, "feasible"),
        Cell(text=f"{stopped} of {len(row)}"),
    )


# Settings that are varied one at a time


def settings(results: Results) -> list[str]:
    """Those that are varied, in the grid's order."""
    return list(dict.fromkeys(key for job in results.comparison.jobs for key in job.values))


def points(results: Results, key: str) -> list[tuple[Any, list[Result]]]:
    """Value → its results over seeds, the recipe's own among them; numbers come first."""
    found: list[tuple[Any, list[Result]]] = []
    for method, (job, *_) in results.comparison.methods.items():
        measured = results.of(method, "recommended")
        if measured and (not job.values or key in job.values):
            value = job.values[key] if job.values else setting(job.config, key)
            found.append((value, measured))

    def rank(point: tuple[Any, list[Result]]) -> tuple[bool, float]:
        is_number = isinstance(point[0], int | float) and not isinstance(point[0], bool)
        return not is_number, point[0] if is_number else 0.0

    return sorted(found, key=rank)


def _setting_table(results: Results, key: str) -> Table:
    rows = tuple(
        (
            str(value) if measured[0].job.values else f"{value} (the recipe's)",
            tuple(_cell(measured, column.key) for column in SETTING_COLUMNS),
        )
        for value, measured in points(results, key)
    )
    first = results.results[0]
    note = f"{first.problems} problems, {first.rollouts} rollouts a run; recommended checkpoints."
    return Table(f"sensitivity_{key}", key, SETTING_COLUMNS, rows, (note,))
