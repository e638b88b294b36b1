"""The comparison's tables: every method over its seeds, the ablation, and what it cost."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from crt.algorithm.statistics import Interval
from crt.evaluation.tables import Cell, Column, Mark, Table
from crt.experiments.collect import Result, Results
from crt.experiments.figures import Figure, mean_of

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
COLUMNS: tuple[tuple[str, str, int, Literal["higher", "lower"] | None], ...] = (
    ("acc", "Acc", 2, "higher"),
    ("len", "Len", 1, "lower"),
    ("aes1", "AES1", 3, "higher"),
    ("aes2", "AES2", 3, "higher"),
    ("r_zip", "R_zip", 3, "higher"),
    ("ad", "AD%", 1, "lower"),
    ("ap", "AP%", 1, "higher"),
    ("ai", "AI%", 1, "higher"),
    ("worst", "worst seed", 2, None),
    ("seeds", "seeds", 0, None),
)
COST = {
    "tokens": "tokens",
    "steps": "steps",
    "minutes": "minutes",
    "cpu": "CPU minutes",
    "feasible": "feasible",
    "ended": "ended by alarm",
}


def tables(results: Results) -> list[Table]:
    """All tables that there is something for."""
    measured = [m for m in results.comparison.methods if results.of(m, "last")]
    if not measured:
        return []
    built = [_methods(results, measured, kind) for kind in TITLES]
    jobs = results.comparison.methods
    ablated = [m for m in measured if jobs[m][0].type in ABLATION]
    if 2 <= len(ablated) < len(measured):
        table = _methods(results, ablated, "recommended")
        built.insert(1, replace(table, key="ablation", title="CRT, CRT (1s), primal-dual"))
    built.append(_cost(results, measured))
    if results.missing:
        told = f"Not measured: {'; '.join(results.missing)}."
        built[0] = replace(built[0], notes=(*built[0].notes, told))
    return [each for each in built if each.rows]


def _methods(results: Results, methods: Sequence[str], kind: str) -> Table:
    rows = {m: results.of(m, kind) for m in methods if results.of(m, kind)}
    columns = tuple(Column("", title, key, (), n, best) for key, title, n, best in COLUMNS)
    cells = {m: [_cell(found, column.key) for column in columns] for m, found in rows.items()}
    for place, column in enumerate(columns):
        _mark_best(rows, cells, place, column)
    base = ("base", tuple(_base_cell(results, column.key) for column in columns))
    told = (base, *((method, tuple(row)) for method, row in cells.items()))
    return Table(f"methods_{kind}", TITLES[kind], columns, told, _notes(results, rows))


def _cell(found: Sequence[Result], key: str) -> Cell:
    if key == "seeds":
        return Cell(text=str(len(found)))
    if key == "worst":
        worst = min(each.figures["acc"].value - each.base["acc"].value for each in found)
        return Cell(text=f"{worst:+.2f}")
    interval = mean_of([each.figures[key] for each in found], found[0].problems)
    return Cell(interval, marks=frozenset(["base_unsure"]) if _unsure(found, key) else frozenset())


def _base_cell(results: Results, key: str) -> Cell:
    if key == "seeds":
        return Cell(text=str(len(results.bases)))
    if key in ("aes1", "aes2"):
        return Cell(Interval(0.0, 0.0, 0.0, results.results[0].problems))
    known = [base[key] for base in results.bases.values() if key in base]
    return Cell(mean_of(known, results.results[0].problems))


def _unsure(found: Sequence[Result], key: str) -> bool:
    """Whether the interval of the difference to the base, or of a score, holds 0."""
    if key in ("aes1", "aes2"):
        gained = [each.figures[key] for each in found]
    elif key in found[0].base:
        gained = [each.figures[key] - each.base[key] for each in found]
    else:
        return False
    interval = mean_of(gained, found[0].problems)
    return interval is not None and not (interval.low > 0 or interval.high < 0)


def _mark_best(
    rows: Mapping[str, Sequence[Result]],
    cells: dict[str, list[Cell]],
    place: int,
    column: Column,
) -> None:
    """Marks the best method of a column, and whether it is surely ahead of the next."""
    values = {m: c.interval.value for m, row in cells.items() if (c := row[place]).interval}
    values = {method: value for method, value in values.items() if np.isfinite(value)}
    if column.better is None or len(set(values.values())) < 2:
        return
    order = sorted(values, key=lambda m: values[m], reverse=column.better == "higher")
    top = [method for method in order if values[method] == values[order[0]]]
    marks: set[Mark] = {"best"}
    lead = _lead(rows[top[0]], rows[order[len(top)]], column.key)
    if lead is not None and not (lead.low > 0 or lead.high < 0):
        marks.add("lead_unsure")
    for method in top:
        cell = cells[method][place]
        cells[method][place] = replace(cell, marks=cell.marks | marks)


def _lead(best: Sequence[Result], second: Sequence[Result], key: str) -> Interval | None:
    """The difference over the seeds that both have."""
    theirs = {each.job.seed: each for each in second}
    both = [(each, theirs[each.job.seed]) for each in best if each.job.seed in theirs]
    if key not in best[0].figures or not both:
        return None
    differences: list[Figure] = [ours.figures[key] - other.figures[key] for ours, other in both]
    return mean_of(differences, best[0].problems)


def _notes(results: Results, rows: Mapping[str, Sequence[Result]]) -> tuple[str, ...]:
    first = results.results[0]
    notes = [f"{first.problems} problems, {first.rollouts} rollouts a model and seed."]
    for found in rows.values():
        notes += [
            f"{each.job.name} was stopped at step {each.outcome.steps} and stands with what it "
            f"had: {each.outcome.stopped}"
            for each in found
            if each.outcome.how == "stopped"
        ]
    return tuple(notes)


def _cost(results: Results, methods: Sequence[str]) -> Table:
    columns = tuple(Column("", title, key, (), 0) for key, title in COST.items())
    rows = [(method, _cost_row(results.of(method, "last"))) for method in methods]
    told = (
        "Means over seeds. Tokens are those the policy generated in training. Minutes are of "
        "training steps, CPU minutes of all processes of a run that came to an end."
    )
    last = [each for method in methods for each in results.of(method, "last")]
    return Table("cost", "What it took", columns, tuple(rows), (told, *_unspent(last)))


def _unspent(found: Sequence[Result]) -> list[str]:
    """Runs that finished with tokens left were ended by their steps: not the same work."""
    short = [
        each.job.name
        for each in found
        if each.outcome.how == "finished"
        and each.outcome.tokens < (each.job.config.schedule.tokens or 0)
    ]
    if not short:
        return []
    return [f"Ended by schedule.steps before their tokens were used: {', '.join(short)}."]


def _cost_row(found: Sequence[Result]) -> tuple[Cell, ...]:
    def mean(values: Sequence[float], decimals: int = 0) -> Cell:
        return Cell(text=f"{np.mean(values):,.{decimals}f}")

    feasible = sum(each.outcome.feasible for each in found)
    stopped = sum(each.outcome.how == "stopped" for each in found)
    return (
        mean([each.outcome.tokens for each in found]),
        mean([each.outcome.steps for each in found]),
        mean([each.outcome.seconds / 60 for each in found], 1),
        mean([each.cpu / 60 for each in found], 1),
        Cell(text=f"{feasible} of {len(found)}"),
        Cell(text=f"{stopped} of {len(found)}"),
    )
