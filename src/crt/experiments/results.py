"""What a comparison leaves behind: data, tables, figures, and the settings that tuning chose."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crt.algorithm.metrics import AES2, aes
from crt.errors import ConfigError, DataError
from crt.evaluation import render
from crt.evaluation.tables import Table
from crt.experiments.collect import Results, collect
from crt.experiments.plan import Comparison, Job, group_jobs, toml
from crt.experiments.progress import read_outcome
from crt.experiments.tables import LEGEND, build_tables, points, settings
from crt.io import write_json, write_text
from crt.reporting.figures import sensitivity, tradeoff
from crt.reporting.load import ReportData
from crt.reporting.report import save_figure
from crt.run import Run

METHODS, RESULTS, SENSITIVITY, TUNED = (
    "methods.json", "results.md", "sensitivity.json", "tuned.json",
)  # fmt: skip
SENSITIVITY_KEYS = (
    "acc", "len", "aes1", "aes2", "ad", "base_acc", "base_len", "feasible", "outcome",
)  # fmt: skip
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
    if comparison.kind == "sensitivity":
        write_json(comparison.path / SENSITIVITY, sensitivity_rows(results))
    if results.results:
        write_text(comparison.path / RESULTS, results_page(results))
    return results


def sensitivity_rows(results: Results) -> list[dict[str, Any]]:
    """One row per setting, value and seed."""
    return [
        {
            "setting": key,
            "value": value,
            "seed": result.job.seed,
            "method": result.job.method,
            **{name: result.row()[name] for name in SENSITIVITY_KEYS},
            "own": not result.job.values,
        }
        for key in settings(results)
        for value, measured in points(results, key)
        for result in measured
    ]


def results_page(results: Results) -> str:
    """The tables with intervals, under what was compared and what was the same."""
    comparison = results.comparison
    config = comparison.jobs[0].config
    what, same = "methods", "model, training problems, reference, sampler, grader and evaluation"
    if comparison.kind == "sensitivity":
        what = f"variants of {comparison.jobs[0].recipe}"
        same = "everything but the setting named, and the evaluation"
    budget = config.schedule.tokens
    equal = f"{budget:,} generated training tokens" if budget else f"{config.schedule.steps} steps"
    return (
        f"# {len(comparison.methods)} {what} on {config.model.name}\n\n"
        f"Each has {equal} and seeds {', '.join(map(str, comparison.seeds))}; "
        f"{same} ({', '.join(config.evaluation.data)}) are the same.\n\n"
        f"{render.markdown(build_tables(results), intervals=True)}\n{LEGEND}\n"
    )


def render_tables(tables: Sequence[Table], form: str, intervals: bool) -> str:
    """Tables as text in one of the forms."""
    if form == "terminal":
        return render.terminal(tables, intervals) + LEGEND + "\n"
    if form in ("markdown", "md"):
        return render.markdown(tables, intervals) + "\n" + LEGEND + "\n"
    if form == "latex":
        return render.latex(tables, intervals)
    return {"csv": render.as_csv, "json": render.as_json}[form](tables)


def export_all(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """As `export`; several models have a folder each."""
    if len(comparisons) == 1:
        return export(comparisons[0], folder)
    return [path for one in comparisons for path in export(one, folder / one.path.name)]


def export(comparison: Comparison, folder: Path) -> list[Path]:
    """Writes data, tables and figure for a page of documentation, over what is there."""
    if comparison.kind == "tune":
        raise ConfigError(f"{comparison.path} has chosen settings: it has no results to export.")
    results = write_results(comparison)
    if not results.results:
        raise DataError(f"{comparison.path} has no result yet: {'; '.join(results.missing[:3])}.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}.") from None
    if comparison.kind == "sensitivity":
        rows = sensitivity_rows(results)
        data = {"sensitivity": rows}
        (figure,) = sensitivity.figures(ReportData((), sensitivity=tuple(rows)))
    else:
        rows = [result.row() for result in results.results]
        kinds = {"methods": "recommended", "methods_last": "last"}
        data = {n: [row for row in rows if row["checkpoint"] == kinds[n]] for n in kinds}
        (figure,) = tradeoff.figures(ReportData((), methods=tuple(rows)))
    for name, part in data.items():
        write_json(folder / f"{name}.json", part)
    page, picture = (folder / f"{comparison.kind}.{suffix}" for suffix in ("md", "png"))
    write_text(page, results_page(results))
    save_figure(figure, picture)
    return [*(folder / f"{name}.json" for name in data), page, picture]


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
