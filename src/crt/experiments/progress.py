"""How far a comparison is, and how long it will take, from what has been measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crt.experiments.measure import base_is_measured, is_measured
from crt.experiments.outcome import outcome
from crt.experiments.plan import TIMES, Comparison
from crt.io import read_rows


@dataclass(frozen=True)
class Estimate:
    """What is left: shares of runs to train, evaluations to make, and seconds if known."""

    runs: int
    over: int
    trained: float  # runs' worth of training that is done
    tokens: int | None  # that the policies will still generate, None without a budget
    evaluations: int
    seconds: float | None  # of one process at a time


def estimate(comparison: Comparison) -> Estimate:
    """From the runs' own rows and the times of evaluations so far."""
    found = {job.name: outcome(comparison.run(job)) for job in comparison.jobs}
    left = sum(1 - each.share for each in found.values() if not each.over)
    budgets = [job.config.schedule.tokens for job in comparison.jobs]
    tokens = None
    if all(budgets):
        pairs = zip(budgets, found.values(), strict=True)
        tokens = sum(max(0, (b or 0) - o.tokens) for b, o in pairs if not o.over)
    evaluations = evaluations_left(comparison) if comparison.kind != "tune" else 0
    times = read_rows(comparison.path / TIMES)
    a_run = _seconds_a_run(found, times)
    an_evaluation = _mean([t["seconds"] for t in times if _ended_well(t, "evaluate")])
    known = a_run is not None or left == 0
    return Estimate(
        len(found),
        sum(each.over for each in found.values()),
        sum(1.0 if each.over else each.share for each in found.values()),
        tokens,
        evaluations,
        left * (a_run or 0.0) + evaluations * (an_evaluation or 0.0) if known else None,
    )


def evaluations_left(comparison: Comparison) -> int:
    """Processes that evaluate: the base for every seed, and every run once."""
    bases = sum(not base_is_measured(comparison, seed) for seed in comparison.seeds)
    runs = 0
    for job in comparison.jobs:
        over = outcome(comparison.run(job)).over
        runs += not (over and is_measured(comparison, job))
    return bases + runs


def spoken(found: Estimate, at_once: int, running: Sequence[str]) -> str:
    """One line: runs done, what is under way, time left."""
    parts = [f"{found.over} of {found.runs} runs are over"]
    if running:
        parts.append("now: " + ", ".join(running))
    parts.append(_left(found, at_once))
    return "; ".join(parts)


def dry_run(comparison: Comparison, at_once: int) -> list[str]:
    """The plan in words."""
    found = estimate(comparison)
    lines = [
        f"{comparison.jobs[0].config.model.name}: {len(comparison.methods)} methods × seeds "
        f"{', '.join(map(str, comparison.seeds))}: {found.runs} runs, {found.over} of them over."
    ]
    for method, jobs in comparison.methods.items():
        schedule = jobs[0].config.schedule
        budget = f" or {schedule.tokens:,} tokens" if schedule.tokens else ""
        lines.append(f"  {method} ({jobs[0].type}): at most {schedule.steps:,} steps{budget}")
    if found.tokens is not None:
        lines.append(f"To be generated in training: {found.tokens:,} tokens at most.")
    if found.evaluations:
        lines.append(f"To be evaluated: {found.evaluations} of bases and runs.")
    lines.append(f"Time with {at_once} at once: {_left(found, at_once)}.")
    return lines


def _left(found: Estimate, at_once: int) -> str:
    if found.seconds is None:
        return "time left is not known before a first run is under way"
    minutes = found.seconds / at_once / 60
    return f"{minutes / 60:.1f} h left" if minutes >= 90 else f"{minutes:.0f} min left"


def _seconds_a_run(found: Mapping[str, Any], times: Sequence[dict[str, Any]]) -> float | None:
    """Of finished processes where there are some, which know start-up and validation too."""
    whole = [t["seconds"] for t in times if _ended_well(t, "train") and t["share_before"] == 0]
    if whole:
        return _mean(whole)
    done = sum(each.share for each in found.values())
    return sum(each.seconds for each in found.values()) / done if done > 0 else None


def _ended_well(time: Mapping[str, Any], kind: str) -> bool:
    return time["kind"] == kind and time["code"] == 0


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
