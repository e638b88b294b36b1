"""From a comparison's files to results: metrics per run and checkpoint, with those of its base.

A method's metric is its mean over seeds, with an interval over seeds and problems.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from crt.algorithm.batch import Array, BoolArray
from crt.algorithm.statistics import Interval, two_level
from crt.algorithm.two_stage import candidates_of, shortest_feasible
from crt.evaluation.metrics import (
    MEASURES,
    DatasetCounts,
    Ratio,
    accuracy,
    lengths,
    resample,
    same,
)
from crt.evaluation.paired import Pair, aes_or_nan, pair
from crt.evaluation.store import FIGURES, Evaluation, load
from crt.evaluation.tables import AES
from crt.experiments.plan import TIMES, Comparison, Job
from crt.io import read_rows
from crt.run import CONFIG, Run

SEED = 0  # of the bootstrap over seeds
PLAIN = ("acc", "len", "r_zip")
TRANSITIONS: dict[str, Callable[[Array], BoolArray]] = {
    "ad": lambda change: change < -1e-9,
    "ap": lambda change: np.abs(change) <= 1e-9,
    "ai": lambda change: change > 1e-9,
}


# ---- How runs ended

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
    checkpoints, feasible = checkpoints_of(run, progress)
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
    return {job.name: read_outcome(comparison.run(job)) for job in comparison.jobs}


def checkpoints_of(run: Run, progress: dict[str, Any]) -> tuple[dict[str, int], bool]:
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


def is_evaluated(folder: Path) -> bool:
    return (folder / FIGURES).is_file()


# ---- What was measured


@dataclass(frozen=True, eq=False)
class Metric:
    """One seed's value, and (R,) what it is when the problems are drawn anew."""

    value: float
    resamples: Array

    def __sub__(self, other: "Metric") -> "Metric":
        return Metric(self.value - other.value, self.resamples - other.resamples)


@dataclass(frozen=True, eq=False)
class Result:
    """A checkpoint of a run, measured."""

    job: Job
    checkpoint: str  # recommended or last
    step: int
    outcome: Outcome
    metrics: Mapping[str, Metric]
    base: Mapping[str, Metric]
    problems: int
    rollouts: int
    cpu_seconds: float  # of training and evaluation

    def row(self) -> dict[str, Any]:
        """For methods.json; JSON has no NaN."""
        return {
            "method": self.job.method,
            "type": self.job.type,
            "seed": self.job.seed,
            "checkpoint": self.checkpoint,
            "step": self.step,
            "run": self.job.name,
            **{key: _finite(metric) for key, metric in self.metrics.items()},
            **{f"base_{key}": _finite(metric) for key, metric in self.base.items()},
            "feasible": self.outcome.feasible if self.checkpoint == "recommended" else None,
            "outcome": self.outcome.status,
            "stopped": self.outcome.stopped or None,
            "steps": self.outcome.steps,
            "tokens": self.outcome.tokens,
            "minutes": round(self.outcome.seconds / 60, 2),
            "cpu_minutes": round(self.cpu_seconds / 60, 2),
            "problems": self.problems,
            "rollouts": self.rollouts,
        }


@dataclass(frozen=True, eq=False)
class Results:
    """All that is measured so far, and what is not."""

    comparison: Comparison
    results: tuple[Result, ...]
    bases: Mapping[int, Mapping[str, Metric]]  # seed → the base's metrics
    missing: tuple[str, ...]  # runs without a result, with the reason

    def of(self, method: str, checkpoint: str) -> list[Result]:
        """One per seed."""
        return [
            result
            for result in self.results
            if result.job.method == method and result.checkpoint == checkpoint
        ]


def collect(comparison: Comparison) -> Results:
    bases: dict[int, Evaluation] = {}
    base_metrics: dict[int, dict[str, Metric]] = {}
    for seed in comparison.seeds:
        if is_evaluated(comparison.base(seed)):
            bases[seed] = load(comparison.base(seed))
            base_metrics[seed] = measure_plain(list(bases[seed].counts.values()))
    cpu_seconds: dict[str, float] = {}
    for row in read_rows(comparison.path / TIMES):
        cpu_seconds[row["name"]] = cpu_seconds.get(row["name"], 0.0) + row["cpu"]
    outcomes = read_outcomes(comparison)
    results: list[Result] = []
    missing: list[str] = []
    for job in comparison.jobs:
        outcome, base = outcomes[job.name], bases.get(job.seed)
        evaluations = {
            kind: load(folder)
            for kind, step in outcome.checkpoints.items()
            if base and outcome.over
            if is_evaluated(folder := comparison.evaluation(job, step))
        }
        if base is None or not evaluations:
            missing.append(f"{job.name}: {_why_missing(outcome, base is not None)}")
            continue
        for kind, evaluation in evaluations.items():
            tallies = evaluation.counts.values()
            result = Result(
                job,
                kind,
                outcome.checkpoints[kind],
                outcome,
                measure(evaluation, base),
                base_metrics[job.seed],
                problems=sum(len(tally.ids) for tally in tallies),
                rollouts=int(sum(tally.rollouts.sum() for tally in tallies)),
                cpu_seconds=cpu_seconds.get(job.name, 0.0),
            )
            results.append(result)
    return Results(comparison, tuple(results), base_metrics, tuple(missing))


def _why_missing(outcome: Outcome, has_base: bool) -> str:
    if outcome.status == "stopped" and not outcome.checkpoints:
        return f"it was stopped before its first checkpoint: {outcome.stopped}"
    if outcome.status == "absent":
        return "it is not begun"
    if not outcome.over:
        return f"{outcome.share:.0%} is trained"
    return "it is not evaluated yet" if has_base else "its base is not evaluated yet"


def measure(evaluation: Evaluation, base: Evaluation) -> dict[str, Metric]:
    """Every metric of one seed against its base, averaged over the data sets (macro)."""
    pairs = [pair(tally, base.counts[name]) for name, tally in evaluation.counts.items()]
    strata = [[accuracy(t), lengths(t), accuracy(b), lengths(b)] for t, b in pairs]
    scores = {key: partial(aes_or_nan, weights) for key, weights in AES.items()}
    return {
        **measure_plain([tally for tally, _ in pairs]),
        **{key: _resample(score, strata) for key, score in scores.items()},
        **{key: _transition(kind, pairs) for key, kind in TRANSITIONS.items()},
    }


def measure_plain(tallies: Sequence[DatasetCounts]) -> dict[str, Metric]:
    """What needs no base."""
    return {key: _resample(same, [[MEASURES[key](tally)] for tally in tallies]) for key in PLAIN}


def mean_over_seeds(metrics: Sequence[Metric], problems: int) -> Interval | None:
    """With its interval; None when there is no seed."""
    if not metrics:
        return None
    values = [metric.value for metric in metrics]
    return two_level(values, np.array([metric.resamples for metric in metrics]), problems, SEED)


def _transition(kind: Callable[[Array], BoolArray], pairs: Sequence[Pair]) -> Metric:
    """% of the problems that got shorter, all sets as one."""
    shares: list[Array] = []
    shorter: list[Array] = []
    for tally, base in pairs:
        (acc, graded), (base_acc, base_graded) = accuracy(tally), accuracy(base)
        is_shorter = lengths(tally)[0] < lengths(base)[0]
        counted = is_shorter & (graded > 0) & (base_graded > 0)
        shorter.append(counted.astype(float))
        shares.append(np.where(counted & kind(acc - base_acc), 100.0, 0.0))
    return _resample(same, [[(np.concatenate(shares), np.concatenate(shorter))]])


def _resample(statistic: Callable[..., Array], strata: Sequence[Sequence[Ratio]]) -> Metric:
    with np.errstate(divide="ignore", invalid="ignore"):
        return Metric(*resample(statistic, strata))


def _finite(metric: Metric) -> float | None:
    return metric.value if np.isfinite(metric.value) else None
