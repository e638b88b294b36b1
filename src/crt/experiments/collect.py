"""From a comparison's files to results: one a run and checkpoint, with its base's figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crt.evaluation.store import FIGURES, load
from crt.experiments.figures import Figure, as_row, base_figures, figures_of
from crt.experiments.measure import base_is_measured
from crt.experiments.outcome import Outcome, outcome
from crt.experiments.plan import TIMES, Comparison, Job
from crt.io import read_rows

KINDS = ("recommended", "last")


@dataclass(frozen=True, eq=False)
class Result:
    """A checkpoint of a run, measured."""

    job: Job
    checkpoint: str  # recommended or last
    step: int
    outcome: Outcome
    figures: Mapping[str, Figure]
    base: Mapping[str, Figure]
    problems: int
    rollouts: int
    cpu: float  # seconds of training and evaluation

    def row(self) -> dict[str, Any]:
        """For methods.json."""
        return {
            "method": self.job.method,
            "type": self.job.type,
            "seed": self.job.seed,
            "checkpoint": self.checkpoint,
            "step": self.step,
            "run": self.job.name,
            **as_row(self.figures),
            **{f"base_{key}": value for key, value in as_row(self.base).items()},
            "feasible": self.outcome.feasible if self.checkpoint == "recommended" else None,
            "outcome": self.outcome.how,
            "stopped": self.outcome.stopped or None,
            "steps": self.outcome.steps,
            "tokens": self.outcome.tokens,
            "minutes": round(self.outcome.seconds / 60, 2),
            "cpu_minutes": round(self.cpu / 60, 2),
            "problems": self.problems,
            "rollouts": self.rollouts,
        }


@dataclass(frozen=True, eq=False)
class Results:
    """All that is measured so far, and what is not."""

    comparison: Comparison
    results: tuple[Result, ...]
    bases: Mapping[int, Mapping[str, Figure]]  # seed → the base's figures
    missing: tuple[str, ...]  # runs without a figure, with the reason

    def of(self, method: str, checkpoint: str) -> list[Result]:
        """One a seed."""
        return [
            each
            for each in self.results
            if each.job.method == method and each.checkpoint == checkpoint
        ]

    def rows(self) -> list[dict[str, Any]]:
        """For methods.json."""
        return [each.row() for each in self.results]


def collect(comparison: Comparison) -> Results:
    """Reads what is there; what is damaged is named by whoever reads it."""
    bases = {
        seed: load(comparison.base(seed))
        for seed in comparison.seeds
        if base_is_measured(comparison, seed)
    }
    cpu = _cpu(comparison)
    results: list[Result] = []
    missing: list[str] = []
    for job in comparison.jobs:
        found = outcome(comparison.run(job))
        made = _results(comparison, job, found, bases, cpu.get(job.name, 0.0))
        results += made
        if not made:
            missing.append(f"{job.name}: {_why(found, job.seed in bases)}")
    known = {seed: base_figures(base) for seed, base in bases.items()}
    return Results(comparison, tuple(results), known, tuple(missing))


def _results(
    comparison: Comparison, job: Job, found: Outcome, bases: Mapping[int, Any], cpu: float
) -> list[Result]:
    base = bases.get(job.seed)
    if base is None or not found.over:
        return []
    made: list[Result] = []
    for kind, step in (found.chosen or {}).items():
        folder = comparison.evaluation(job, step)
        if (folder / FIGURES).is_file():
            evaluation = load(folder)
            tallies = evaluation.counts.values()
            problems = sum(len(tally.ids) for tally in tallies)
            rollouts = int(sum(tally.rollouts.sum() for tally in tallies))
            against = figures_of(evaluation, base)
            own = base_figures(base)
            made.append(Result(job, kind, step, found, against, own, problems, rollouts, cpu))
    return made


def _why(found: Outcome, base: bool) -> str:
    if found.how == "stopped" and not found.chosen:
        return f"it was stopped before its first checkpoint: {found.stopped}"
    if not found.over:
        return {"absent": "it is not begun"}.get(found.how, f"{found.share:.0%} is trained")
    return "it is not evaluated yet" if base else "its base is not evaluated yet"


def _cpu(comparison: Comparison) -> dict[str, float]:
    """Run → CPU seconds of its processes that have ended."""
    used: dict[str, float] = {}
    for row in read_rows(comparison.path / TIMES):
        used[row["name"]] = used.get(row["name"], 0.0) + row["cpu"]
    return used
