"""How far runs and comparisons are, how runs ended, and how long the rest will take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from crt.algorithm.two_stage import candidates_of, shortest_feasible
from crt.evaluation.store import FIGURES
from crt.experiments.plan import TIMES, Comparison
from crt.io import read_rows
from crt.run import CONFIG, Run

Status = Literal["absent", "unfinished", "finished", "stopped"]


@dataclass(frozen=True)
class Outcome:
    """A run as its files say."""

    status: Status
    share: float  # of its tokens or steps
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    stopped: str = ""  # the alarm's sentence
    checkpoints: dict[str, int] = field(default_factory=dict[str, int])  # to evaluate: kind → step
    feasible: bool = False  # whether the recommended checkpoint kept the guard

    @property
    def over(self) -> bool:
        """Whether the run came to an end, good or bad."""
        return self.status in ("finished", "stopped")


def read_outcome(path: Path) -> Outcome:
    """Read from the run's directory; a run that is not there is at its beginning."""
    if not (path / CONFIG).is_file():
        return Outcome("absent", 0.0)
    run = Run.open(path)
    rows, progress, schedule = run.steps, run.progress, run.config.schedule
    tokens = sum(row["generated_tokens"] for row in rows)
    spent = tokens / schedule.tokens if schedule.tokens else 0.0
    stopped = str(progress.get("stopped") or "")
    finished = bool(progress.get("finished"))
    checkpoints, feasible = _checkpoints(run, progress)
    return Outcome(
        "finished" if finished else "stopped" if stopped else "unfinished",
        1.0 if finished else min(1.0, max(len(rows) / schedule.steps, spent)),
        len(rows),
        tokens,
        sum(sum(row["seconds"].values()) for row in rows),
        stopped,
        checkpoints,
        feasible,
    )


def read_outcomes(comparison: Comparison) -> dict[str, Outcome]:
    """Run's name → what came of it."""
    return {job.name: read_outcome(comparison.run(job)) for job in comparison.jobs}


def _checkpoints(run: Run, progress: dict[str, Any]) -> tuple[dict[str, int], bool]:
    """The recommended one and the last, by step, and whether the first kept the guard.

    A run that was stopped has named none: then it is the shortest feasible of those it has.
    """
    records = run.checkpoints
    if not records:
        return {}, False
    if "recommended" in progress:
        step, feasible = int(progress["recommended"]), bool(progress["feasible"])
    else:
        candidates = candidates_of(records)
        if not candidates:
            return {"last": max(records)}, False
        best = shortest_feasible(candidates)
        step, feasible = best.step, best.feasible
    return {"recommended": step, "last": max(records)}, feasible


class Task(NamedTuple):
    """Something to be done by a process of its own."""

    name: str  # of the run, or base-seedN
    kind: Literal["train", "evaluate"]


def pending_tasks(comparison: Comparison, outcomes: Mapping[str, Outcome]) -> list[Task]:
    """What is not done; evaluations first, then seed by seed, so that results come early."""
    evaluations = {comparison.base(seed).name: [comparison.base(seed)] for seed in comparison.seeds}
    training: list[Task] = []
    for job in sorted(comparison.jobs, key=lambda job: comparison.seeds.index(job.seed)):
        outcome = outcomes[job.name]
        if outcome.over:
            steps = outcome.checkpoints.values()
            evaluations[job.name] = [comparison.evaluation(job, step) for step in steps]
        else:
            training.append(Task(job.name, "train"))
    if comparison.kind == "tune":  # by validation alone
        return training
    missing = (name for name, folders in evaluations.items() if not all(map(is_evaluated, folders)))
    return [*(Task(name, "evaluate") for name in missing), *training]


def is_evaluated(folder: Path) -> bool:
    """Whether the evaluation in a folder is complete."""
    return (folder / FIGURES).is_file()


@dataclass(frozen=True)
class Estimate:
    """What is done and what is left of a comparison."""

    runs: int
    over: int
    tokens: int | None  # that the policies will still generate, None without a budget
    evaluations: int  # processes that evaluate: the base for every seed, and every run once
    seconds: float | None  # of one process at a time, None before a first run is under way


def estimate(comparison: Comparison) -> Estimate:
    """From the runs' own rows and the times of processes so far."""
    outcomes = read_outcomes(comparison)
    budgets = {job.name: job.config.schedule.tokens or 0 for job in comparison.jobs}
    unfinished = {name: outcome for name, outcome in outcomes.items() if not outcome.over}
    tokens = sum(max(0, budgets[name] - outcome.tokens) for name, outcome in unfinished.items())
    # A run that is not over will be evaluated too.
    evaluations = 0 if comparison.kind == "tune" else len(pending_tasks(comparison, outcomes))
    times = [time for time in read_rows(comparison.path / TIMES) if time["code"] == 0]
    trained = [t["seconds"] for t in times if t["kind"] == "train" and t["share_before"] == 0]
    evaluated = [t["seconds"] for t in times if t["kind"] == "evaluate"]
    done = sum(outcome.share for outcome in outcomes.values())
    per_run = None
    if trained:  # whole processes, start-up and validation included
        per_run = fmean(trained)
    elif done:
        per_run = sum(outcome.seconds for outcome in outcomes.values()) / done
    seconds = None
    if per_run is not None or not unfinished:
        left = sum(1 - outcome.share for outcome in unfinished.values())
        seconds = left * (per_run or 0.0) + evaluations * (fmean(evaluated) if evaluated else 0.0)
    return Estimate(
        len(outcomes),
        len(outcomes) - len(unfinished),
        tokens if all(budgets.values()) else None,
        evaluations,
        seconds,
    )


def progress_line(comparison: Comparison, at_once: int, running: Sequence[str]) -> str:
    """One line: runs done, what is under way, time left."""
    left = estimate(comparison)
    parts = [f"{left.over} of {left.runs} runs are over"]
    if running:
        parts.append("now: " + ", ".join(running))
    return "; ".join([*parts, _time_left(left, at_once)])


def describe_plan(comparison: Comparison, at_once: int) -> list[str]:
    """The plan and what it costs, for a dry run."""
    left = estimate(comparison)
    lines = [
        f"{comparison.jobs[0].config.model.name}: {len(comparison.methods)} methods × seeds "
        f"{', '.join(map(str, comparison.seeds))}: {left.runs} runs, {left.over} of them over."
    ]
    for method, jobs in comparison.methods.items():
        schedule = jobs[0].config.schedule
        budget = f" or {schedule.tokens:,} tokens" if schedule.tokens else ""
        lines.append(f"  {method} ({jobs[0].type}): at most {schedule.steps:,} steps{budget}")
    if left.tokens is not None:
        lines.append(f"To be generated in training: {left.tokens:,} tokens at most.")
    if left.evaluations:
        lines.append(f"To be evaluated: {left.evaluations} of bases and runs.")
    lines.append(f"Time with {at_once} at once: {_time_left(left, at_once)}.")
    return lines


def _time_left(left: Estimate, at_once: int) -> str:
    if left.seconds is None:
        return "time left is not known before a first run is under way"
    minutes = left.seconds / at_once / 60
    return f"{minutes / 60:.1f} h left" if minutes >= 90 else f"{minutes:.0f} min left"
