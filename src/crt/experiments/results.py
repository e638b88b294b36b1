"""A comparison's tables, and what it leaves behind: data, figures, and what tuning chose."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crt.algorithm.metrics import AES2, aes
from crt.algorithm.statistics import Interval
from crt.errors import ConfigError, DataError
from crt.evaluation import render
from crt.evaluation.tables import TITLES_OF_METRICS, Cell, Column, Table, holds_zero, mark_best
from crt.experiments.collect import Result, Results, collect, mean_over_seeds, read_outcome
from crt.experiments.plan import Comparison, Job, group_jobs, toml
from crt.io import make_folder, write_json, write_text
from crt.reporting.figures import tradeoff
from crt.reporting.load import ReportData
from crt.reporting.report import save_figure
from crt.run import Run

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
DECIMALS = {"acc": 2, "len": 1, "aes1": 3, "aes2": 3, "r_zip": 3, "ad": 1, "ap": 1, "ai": 1}
# What is shown as text: title, and the text from a method's results, one per seed
TEXTS: dict[str, tuple[str, Callable[[Sequence[Result]], str]]] = {
    "worst": (
        "worst seed",
        lambda row: f"{min(r.metrics['acc'].value - r.base['acc'].value for r in row):+.2f}",
    ),
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
    titles = {**{key: (title, None) for key, (title, _) in TEXTS.items()}, **TITLES_OF_METRICS}
    return tuple(
        Column("", titles[key][0], key, (), DECIMALS.get(key, 0), titles[key][1]) for key in keys
    )


def _cell(row: Sequence[Result], key: str) -> Cell:
    if key in TEXTS:
        return Cell(text=TEXTS[key][1](row))
    return Cell(mean_over_seeds([result.metrics[key] for result in row], row[0].problems))


def _count(flags: Sequence[bool]) -> str:
    return f"{sum(flags)} of {len(flags)}"


def _method_table(results: Results, methods: Sequence[str], kind: str) -> Table:
    columns = _columns(*DECIMALS, "worst", "seeds")
    rows = {m: results.of(m, kind) for m in methods if results.of(m, kind)}
    measured = list(rows.values())
    marked = [
        mark_best([_cell_against_base(row, c.key) for row in measured], measured, c, _lead)
        for c in columns
    ]
    first = results.results[0]
    notes = [f"{first.problems} problems, {first.rollouts} rollouts a model and seed."]
    for result in (result for row in rows.values() for result in row):
        if result.outcome.status == "stopped":
            notes.append(
                f"{result.job.name} was stopped at step {result.outcome.steps} and stands with "
                f"what it had: {result.outcome.stopped}"
            )
    base = tuple(_base_cell(results, column.key) for column in columns)
    body = (("base", base), *zip(rows, zip(*marked, strict=True), strict=True))
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
    unsure = holds_zero(mean_over_seeds(gains, row[0].problems))
    return replace(cell, marks=frozenset(["base_unsure"])) if unsure else cell


def _lead(best: Sequence[Result], second: Sequence[Result], column: Column) -> Interval | None:
    """The difference over the seeds that both have."""
    by_seed = {result.job.seed: result for result in second}
    differences = [
        result.metrics[column.key] - by_seed[result.job.seed].metrics[column.key]
        for result in best
        if result.job.seed in by_seed
    ]
    return mean_over_seeds(differences, best[0].problems)


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


# ---- What is shown and written

METHODS, RESULTS, TUNED = "methods.json", "results.md", "tuned.json"
TUNING_RULE = (
    "highest AES2 of the recommended checkpoint on the validation problems against the reference "
    "there; a run that an alarm stopped comes after those that finished; the first of equals"
)


def show(comparisons: Sequence[Comparison], form: str, intervals: bool) -> None:
    """Prints the tables of each model, under its name if there are several."""
    if len(comparisons) > 1 and form in ("csv", "json"):
        names = ", ".join(str(comparison.path) for comparison in comparisons)
        raise ConfigError(f"--table {form} takes one model's comparison: {names}.")
    for comparison in comparisons:
        if len(comparisons) > 1:
            print(f"# {comparison.jobs[0].config.model.name}\n")
        if comparison.kind == "tune":
            print("\n".join(write_tuned(comparison)))
            print(f"# everything that was tried is in {comparison.path / TUNED}")
            continue
        results = write_results(comparison)
        if tables := build_tables(results):
            print(render_tables(tables, form, intervals), end="")
        for missing in results.missing:
            print(f"not measured: {missing}", file=sys.stderr)


def write_results(comparison: Comparison) -> Results:
    """Writes the files anew, from what is measured so far."""
    results = collect(comparison)
    write_json(comparison.path / METHODS, [result.row() for result in results.results])
    if results.results:
        write_text(comparison.path / RESULTS, results_page(results))
    return results


def results_page(results: Results) -> str:
    """The tables with intervals, under what was compared and what was the same."""
    comparison = results.comparison
    config = comparison.jobs[0].config
    same = "model, training problems, reference, sampler, grader and evaluation"
    budget = config.schedule.tokens
    equal = f"{budget:,} generated training tokens" if budget else f"{config.schedule.steps} steps"
    return (
        f"# {len(comparison.methods)} methods on {config.model.name}\n\n"
        f"Each has {equal} and seeds {', '.join(map(str, comparison.seeds))}; "
        f"{same} ({', '.join(config.evaluation.data)}) are the same.\n\n"
        f"{render.markdown(build_tables(results), intervals=True)}\n{LEGEND}\n"
    )


def render_tables(tables: Sequence[Table], form: str, intervals: bool) -> str:
    if form == "terminal":
        return render.terminal(tables, intervals) + LEGEND + "\n"
    if form in ("markdown", "md"):
        return render.markdown(tables, intervals) + "\n" + LEGEND + "\n"
    if form == "latex":
        return render.latex(tables, intervals)
    return {"csv": render.as_csv, "json": render.as_json}[form](tables)


def export(comparisons: Sequence[Comparison], folder: Path) -> Iterator[Path]:
    """Writes data, tables and figure for a page of documentation; several models, several folders.

    What is there is written over.
    """
    for comparison in comparisons:
        if comparison.kind == "tune":
            raise ConfigError(
                f"{comparison.path} has chosen settings: it has no results to export."
            )
        results = write_results(comparison)
        if not results.results:
            missing = "; ".join(results.missing[:3])
            raise DataError(f"{comparison.path} has no result yet: {missing}.")
        place = folder if len(comparisons) == 1 else folder / comparison.path.name
        make_folder(place)
        rows = [result.row() for result in results.results]
        for name, kind in (("methods", "recommended"), ("methods_last", "last")):
            write_json(place / f"{name}.json", [row for row in rows if row["checkpoint"] == kind])
            yield place / f"{name}.json"
        write_text(place / "methods.md", results_page(results))
        (figure,) = tradeoff.figures(ReportData((), methods=tuple(rows)))
        save_figure(figure, place / "methods.png")
        yield from (place / "methods.md", place / "methods.png")


# Tuning: settings by one rule for every method, on validation problems, at a seed of its own


def read_trial(comparison: Comparison, job: Job) -> dict[str, Any]:
    """A row of tuned.json: one combination, and its metrics on the validation problems."""
    path = comparison.run(job)
    outcome = read_outcome(path)
    step = outcome.checkpoints.get("recommended")
    trial = {"values": dict(job.values), "outcome": outcome.status, "step": step}
    if step is None:
        return {**trial, "acc": None, "len": None, "aes2": None, "feasible": False}
    record = Run.open(path).checkpoints[step]
    acc, length = record["accuracy"], record["tokens"]
    base_acc, base_length = record["reference_accuracy"], record["reference_tokens"]
    score = float(aes(acc, length, base_acc, base_length, AES2)) if base_acc > 0 else None
    return {
        **trial, "acc": 100 * acc, "len": length, "aes2": score, "feasible": outcome.feasible,
    }  # fmt: skip


def best_trial(trials: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The best by the rule; None while some run is not over."""

    def rank(trial: dict[str, Any]) -> tuple[bool, float]:
        return trial["outcome"] == "finished", -np.inf if trial["aes2"] is None else trial["aes2"]

    if any(trial["outcome"] not in ("finished", "stopped") for trial in trials):
        return None
    return max(trials, key=rank)  # max keeps the first of equals


def write_tuned(comparison: Comparison) -> list[str]:
    """Writes tuned.json; returns lines that say what was chosen, as they stand in a recipe."""
    recipes: dict[str, Any] = {}
    lines: list[str] = []
    for name, jobs in group_jobs(comparison.jobs, lambda job: job.recipe).items():
        trials = [read_trial(comparison, job) for job in jobs]
        best = best_trial(trials)
        if best is None:
            lines.append(f"# {name}: not all runs are over; the same command goes on")
            continue
        recipes[name] = {"chosen": best["values"], "seed": jobs[0].seed, "tried": trials}
        score = "nothing measured" if best["aes2"] is None else f"AES2 {best['aes2']:+.3f}"
        lines.append(f"# {name}: {score} on validation, best of {len(trials)}")
        lines += [f"{key} = {toml(value)}" for key, value in best["values"].items()]
    write_json(comparison.path / TUNED, {"format": 1, "rule": TUNING_RULE, "recipes": recipes})
    return lines
