"""Settings by a stated rule: the same for every method, on validation problems, at a seed apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crt.algorithm.metrics import AES2, aes
from crt.experiments.grid import toml
from crt.experiments.outcome import outcome
from crt.experiments.plan import Comparison, Job
from crt.io import write_json
from crt.run import Run

TUNED = "tuned.json"
RULE = (
    "highest AES2 of the recommended checkpoint on the validation problems against the reference "
    "there; a run that an alarm stopped comes after those that finished; the first of equals"
)


@dataclass(frozen=True)
class Trial:
    """One combination and what came of it on the validation problems; None where nothing did."""

    job: Job
    how: str
    step: int | None = None
    acc: float | None = None
    len: float | None = None
    aes2: float | None = None
    feasible: bool = False

    @property
    def rank(self) -> tuple[bool, float]:
        """What the rule compares."""
        return self.how == "finished", -np.inf if self.aes2 is None else self.aes2

    def row(self) -> dict[str, Any]:
        """For tuned.json."""
        return {
            "values": dict(self.job.values),
            "outcome": self.how,
            "step": self.step,
            "acc": self.acc,
            "len": self.len,
            "aes2": self.aes2,
            "feasible": self.feasible,
        }


def trial(comparison: Comparison, job: Job) -> Trial:
    """From the record of the run's recommended checkpoint."""
    path = comparison.run(job)
    found = outcome(path)
    step = (found.chosen or {}).get("recommended")
    if step is None:
        return Trial(job, found.how)
    record = Run.open(path).checkpoints[step]
    acc, length = record["accuracy"], record["tokens"]
    base_acc, base_length = record["reference_accuracy"], record["reference_tokens"]
    score = float(aes(acc, length, base_acc, base_length, AES2)) if base_acc > 0 else None
    return Trial(job, found.how, step, 100 * acc, length, score, found.feasible)


def trials(comparison: Comparison) -> dict[str, list[Trial]]:
    """Recipe → what was tried, in the grid's order."""
    found: dict[str, list[Trial]] = {}
    for job in comparison.jobs:
        found.setdefault(job.recipe, []).append(trial(comparison, job))
    return found


def chosen(tried: Sequence[Trial]) -> Trial | None:
    """The best by the rule; None while some run is not over."""
    if any(each.how not in ("finished", "stopped") for each in tried):
        return None
    return max(tried, key=lambda each: each.rank)  # max keeps the first of equals


def write_tuned(comparison: Comparison) -> list[str]:
    """tuned.json, and lines that say what was chosen, as they stand in a recipe."""
    recipes: dict[str, Any] = {}
    lines: list[str] = []
    for name, tried in trials(comparison).items():
        best = chosen(tried)
        if best is None:
            lines.append(f"# {name}: not all runs are over; the same command goes on")
            continue
        recipes[name] = {
            "chosen": dict(best.job.values),
            "seed": best.job.seed,
            "tried": [each.row() for each in tried],
        }
        score = "nothing measured" if best.aes2 is None else f"AES2 {best.aes2:+.3f}"
        lines.append(f"# {name}: {score} on validation, best of {len(tried)}")
        lines += [f"{key} = {toml(value)}" for key, value in best.job.values.items()]
    write_json(comparison.path / TUNED, {"format": 1, "rule": RULE, "recipes": recipes})
    return lines
