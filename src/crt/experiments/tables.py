"""The comparison's tables: methods over seeds, the ablation, the cost, and varied settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from crt.algorithm.statistics import Interval
from crt.evaluation.tables import Cell, Column, Mark, Table
from crt.experiments.collect import Result, Results, mean_over_seeds
from crt.experiments.plan import flatten

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
COST_NOTE = (
    "Means over seeds. Tokens are those the policy generated in training. Minutes are of "
    "training steps, CPU minutes of all processes of a run that came to an end."
)
# Metrics: title, decimals, which is better
METRICS: dict[str, tuple[str, int, Literal["higher", "lower"]]] = {
    "acc": ("Acc", 2, "higher"),
    "len": ("Len", 1, "lower"),
    "aes1": ("AES1", 3, "higher"),
    "aes2": ("AES2", 3, "higher"),
    "r_zip": ("R_zip", 3, "higher"),
    "ad": ("AD%", 1, "lower"),
    "ap": ("AP%", 1, "higher"),
    "ai": ("AI%", 1, "higher"),
}
# What is shown as text: title, and the text from a method's results, one per seed
TEXTS: dict[str, tuple[str, Callable[[Sequence[Result]], str]]] = {
    "worst": ("worst seed", lambda row: f"{min(_gain(result) for result in row):+.2f}"),
    "seeds": ("seeds", lambda row: str(len(row))),
    "tokens": ("tokens", lambda row: f"{np.mean([r.outcome.tokens for r in row]):,.0f}"),
    "steps": ("steps", lambda row: f"{np.mean([r.outcome.steps for r in row]):,.0f}"),
    "minutes": ("minutes", lambda row: f"{np.mean([r.outcome.seconds for r in row]) / 60:,.1f}"),
    "cpu": ("CPU minutes", lambda row: f"{np.mean([r.cpu_seconds for r in row]) / 60:,.1f}"),
    "feasible": ("feasible", lambda row: _count([r.outcome.feasible for r in row])),
    "ended": ("ended by alarm", lambda row: _count([r.outcome.status == "stopped" for r in row])),
}


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


def _columns(*keys: str) -> tuple[Column, ...]:
    return tuple(
        Column("", METRICS[key][0], key, (), *METRICS[key][1:])
        if key in METRICS
        else Column("", TEXTS[key][0], key, (), 2 if key == "worst" else 0)
        for key in keys
    )


def _cell(row: Sequence[Result], key: str) -> Cell:
    """A method's cell, over its seeds."""
    if key in TEXTS:
        return Cell(text=TEXTS[key][1](row))
    return Cell(mean_over_seeds([result.metrics[key] for result in row], row[0].problems))


def _gain(result: Result) -> float:
    return result.metrics["acc"].value - result.base["acc"].value


def _count(flags: Sequence[bool]) -> str:
    return f"{sum(flags)} of {len(flags)}"


def _method_table(results: Results, methods: Sequence[str], kind: str) -> Table:
    """Every method against the base, with marks."""
    columns = _columns(*METRICS, "worst", "seeds")
    rows = {m: results.of(m, kind) for m in methods if results.of(m, kind)}
    cells = {m: [_cell_against_base(row, c.key) for c in columns] for m, row in rows.items()}
    for place, column in enumerate(columns):
        _mark_best(rows, cells, place, column)
    first = results.results[0]
    notes = [f"{first.problems} problems, {first.rollouts} rollouts a model and seed."]
    for result in (result for row in rows.values() for result in row):
        if result.outcome.status == "stopped":
            notes.append(
                f"{result.job.name} was stopped at step {result.outcome.steps} and stands with "
                f"what it had: {result.outcome.stopped}"
            )
    base = tuple(_base_cell(results, column.key) for column in columns)
    body = (("base", base), *((method, tuple(row)) for method, row in cells.items()))
    return Table(f"methods_{kind}", TITLES[kind], columns, body, tuple(notes))


def _base_cell(results: Results, key: str) -> Cell:
    if key == "seeds":
        return Cell(text=str(len(results.bases)))
    problems = results.results[0].problems
    if key in ("aes1", "aes2"):
        return Cell(Interval(0.0, 0.0, 0.0, problems))
    metrics = [base[key] for base in results.bases.values() if key in base]
    return Cell(mean_over_seeds(metrics, problems))


def _cell_against_base(row: Sequence[Result], key: str) -> Cell:
    """A method's cell, with a mark if its difference to the base, or its score, may be 0."""
    cell = _cell(row, key)
    if key in ("aes1", "aes2"):
        gains = [result.metrics[key] for result in row]
    elif key in row[0].base:
        gains = [result.metrics[key] - result.base[key] for result in row]
    else:
        return cell
    unsure = _holds_zero(mean_over_seeds(gains, row[0].problems))
    return replace(cell, marks=frozenset(["base_unsure"])) if unsure else cell


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


def _cost_table(results: Results, methods: Sequence[str]) -> Table:
    """What training took; runs that finished with tokens left are named."""
    columns = _columns("tokens", "steps", "minutes", "cpu", "feasible", "ended")
    rows = {method: results.of(method, "last") for method in methods}
    body = tuple((m, tuple(_cell(row, c.key) for c in columns)) for m, row in rows.items())
    unspent = [
        result.job.name
        for row in rows.values()
        for result in row
        if result.outcome.status == "finished"
        and result.outcome.tokens < (result.job.config.schedule.tokens or 0)
    ]
    notes = (COST_NOTE,)
    if unspent:  # their steps ended them: not the same work
        notes += (f"Ended by schedule.steps before their tokens were used: {', '.join(unspent)}.",)
    return Table("cost", "What it took", columns, body, notes)


def settings(results: Results) -> list[str]:
    """Settings that are varied, in the grid's order."""
    return list(dict.fromkeys(key for job in results.comparison.jobs for key in job.values))


def points(results: Results, key: str) -> list[tuple[Any, list[Result]]]:
    """A setting's values with their results over seeds, the recipe's own among them."""
    measured_values: list[tuple[Any, list[Result]]] = []
    for method, (job, *_) in results.comparison.methods.items():
        measured = results.of(method, "recommended")
        if measured and (not job.values or key in job.values):
            own = flatten(job.config).get(key.partition("+")[0].strip())
            measured_values.append((job.values.get(key, own), measured))

    def numbers_first(point: tuple[Any, list[Result]]) -> tuple[bool, float]:
        is_number = isinstance(point[0], int | float) and not isinstance(point[0], bool)
        return not is_number, point[0] if is_number else 0.0

    return sorted(measured_values, key=numbers_first)


def _setting_table(results: Results, key: str) -> Table:
    """A row for every value of one setting."""
    columns = _columns("acc", "len", "aes2", "ad", "worst", "feasible")
    rows = tuple(
        (
            str(value) if measured[0].job.values else f"{value} (the recipe's)",
            tuple(_cell(measured, column.key) for column in columns),
        )
        for value, measured in points(results, key)
    )
    first = results.results[0]
    note = f"{first.problems} problems, {first.rollouts} rollouts a run; recommended checkpoints."
    return Table(f"sensitivity_{key}", key, columns, rows, (note,))
