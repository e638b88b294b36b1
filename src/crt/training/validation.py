"""Checkpoints on the validation problems: how they stand, and which one a run hands over."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crt.algorithm.batch import TOKENS, Batch, batch_of
from crt.algorithm.contract import Line, binding, shown
from crt.algorithm.guard import paired_gap
from crt.algorithm.objectives import Shorten
from crt.algorithm.two_stage import (
    Candidate,
    Start,
    candidates_of,
    is_feasible,
    next_to_confirm,
    shortest_feasible,
    shortest_plausible,
)
from crt.algorithm.two_stage import guard_of as guard_of
from crt.errors import DataError, GradingError
from crt.io import write_sealed
from crt.run import RECORD, Run
from crt.sampling.policy import Policy
from crt.training.checkpoints import averaged_checkpoint, check, keep_checkpoint, set_aside
from crt.training.context import RunContext
from crt.training.stage import stage_of

Floor = Callable[[Batch], dict[str, Any]]  # how a validation batch stands against the reference


def measured(context: RunContext, policy: Policy, step: int, floor: Floor) -> dict[str, Any]:
    """Accuracy and length of the policy on the validation problems, and how it stands."""
    rollouts = context.measured(policy, context.config.validation.rollouts, step)
    truncated = context.config.grading.truncated
    return figures(*batch_of(rollouts, truncated, context.measures), floor)


def figures(batch: Batch | None, left_out: Sequence[str], floor: Floor) -> dict[str, Any]:
    """What a checkpoint's record says of a measurement."""
    if batch is None:
        unknown = dict.fromkeys(("accuracy", "tokens", "margin", "rollouts"))
        return unknown | {"feasible": False, "left_out": len(left_out)}
    cost = {} if batch.cost == TOKENS else {"cost": batch.mean_length}
    return {
        "accuracy": batch.accuracy,
        "tokens": batch.mean_tokens,
        **cost,
        "truncated": float(batch.truncated.mean()),
        "problems": len(batch.problem_ids),
        "rollouts": batch.correct.shape[1],
        "left_out": len(left_out),
    } | floor(batch)


def against(reference: Batch | None, guard: Shorten, lines: Sequence[Line] = ()) -> Floor:
    """How a validation batch stands against the reference's on the same problems.

    With lines the margin is that of the line that decides whether all of them are kept.
    """

    def stands(batch: Batch) -> dict[str, Any]:
        known = set(reference.problem_ids) if reference else set()
        both = [problem_id for problem_id in batch.problem_ids if problem_id in known]
        if reference is None or not both:
            return {"margin": None, "feasible": False}
        ours, theirs = batch.select(both), reference.select(both)
        gap = paired_gap(ours, theirs)
        margin, error = guard.tolerance + guard.slack - gap.mean, gap.standard_error
        kept: dict[str, Any] = {}
        if lines:
            found = {line: line.standing(ours, theirs, guard.slack) for line in lines}
            known = {line: standing for line, standing in found.items() if standing is not None}
            kept = {
                "accuracy_error": gap.standard_error,
                "lines": {line.name: shown(line, s, True) for line, s in known.items()},
            }
            if len(known) < len(lines):  # nobody knows whether the others are kept
                return {"margin": None, "feasible": False, **kept}
            worst = binding(list(known.values()))
            margin, error = worst.margin / worst.unit, worst.standard_error / worst.unit
        return {
            "reference_accuracy": theirs.accuracy,
            "reference_tokens": theirs.mean_tokens,
            "standard_error": error,
            "margin": margin,
            "feasible": is_feasible(margin, error),
            **kept,
        }

    return stands


FINAL_DRAW = 2  # another stream of random numbers than that of the first measurement

Choose = Callable[[Sequence[Candidate]], Candidate]
RULES: dict[Start, Choose] = {"feasible": shortest_feasible, "plausible": shortest_plausible}


def confirm(run: Run, context: RunContext, floor: Floor, rule: Start = "feasible") -> Candidate:
    """The shortest feasible checkpoint, measured again with `validation.final_rollouts`.

    The shortest of many that seem feasible is often one that was lucky. So the one in question is
    drawn anew and more finely; if it fails, the next is in question, a few times at most.
    """
    settings, choose = run.config.validation, RULES[rule]
    if not settings.final_rollouts:
        return choose(graded(run.checkpoints))
    stage = stage_of(run).number
    while _measured_after(run, stage) < settings.finalists:
        records = run.checkpoints
        confirmed = {step for step, record in records.items() if record.get("final")}
        step = next_to_confirm(graded(records), confirmed, rule).step
        if step in confirmed:
            break
        if is_sound(run, context, step):
            measure_again(run, context, step, floor, stage)
    final = {step: record for step, record in run.checkpoints.items() if record.get("final")}
    return choose(graded(final))


def average_last(run: Run, context: RunContext, floor: Floor) -> None:
    """The stage's last checkpoint becomes the mean of its last few, measured like any other.

    Single steps are noisy, most of all with a small batch; the noise of weights that are ten steps
    apart partly cancels out. The record names the checkpoints in `mean_of`.
    """
    stage, count = stage_of(run).number, run.config.schedule.average
    if count < 2:
        return
    records = run.checkpoints
    steps = [step for step, record in records.items() if record.get("stage") == stage][-count:]
    steps = [step for step in steps if is_sound(run, context, step)]
    if len(steps) < 2 or records[steps[-1]].get("mean_of"):
        return
    last = steps[-1]
    context.progress.say(f"Averaging the weights of steps {', '.join(map(str, steps))}.")
    aside = run.checkpoint(last).with_name(f".unfinished-mean-{last}")
    if context.ranks.writes:
        averaged_checkpoint(run, steps)
    context.ranks.wait()
    metrics = figures(*remeasured(run, context, aside, last, run.config.validation.rollouts), floor)
    if context.ranks.writes:
        files = [file for file in aside.iterdir() if file.name != RECORD]
        record = {"stage": stage, "mean_of": steps, **metrics}
        keep_checkpoint(run, last, files, record)
        shutil.rmtree(aside)
    context.ranks.wait()


def _measured_after(run: Run, stage: int) -> int:
    """Checkpoints measured again at the end of this stage, by this process or one before it."""
    return sum(record.get("final") == stage for record in run.checkpoints.values())


def is_sound(run: Run, context: RunContext, step: int) -> bool:
    """Whether a checkpoint's files are as they were written; a damaged one leaves the choice."""
    folder = run.checkpoint(step)
    if context.ranks.writes:
        try:
            check(folder, folder / RECORD)
        except DataError as error:
            set_aside(run, step, error)
    context.ranks.wait()
    return folder.is_dir()


def measure_again(run: Run, context: RunContext, step: int, floor: Floor, stage: int) -> None:
    """A finer measurement in place of the first, which stays in the record beside it.

    The record's `final` says at the end of which stage it was made.
    """
    folder, num_samples = run.checkpoint(step), run.config.validation.final_rollouts
    asked = len(context.problems[1])
    context.progress.say(f"Measuring {folder.name} again on {asked} problems × {num_samples}.")
    batch, left_out = remeasured(run, context, folder, step, num_samples, FINAL_DRAW)
    if context.ranks.writes:
        record = run.checkpoints[step]
        first = {name: record[name] for name in ("accuracy", "tokens", "margin", "rollouts")}
        found = figures(batch, left_out, floor) | {"final": stage, "first": first}
        write_sealed(folder / RECORD, record | found)
    context.ranks.wait()


def remeasured(
    run: Run, context: RunContext, folder: Path, step: int, num_samples: int, *draw: int
) -> tuple[Batch | None, Sequence[str]]:
    """What a saved model answers to the validation problems, and the problems left out."""
    model = context.load(str(folder))
    how = context.validation_sampling
    policy = context.policy(model, sampler=context.frozen(model, how), sampling=how)
    rollouts = context.measured(policy, num_samples, step, *draw)
    context.release()
    return batch_of(rollouts, run.config.grading.truncated, context.measures)


def graded(records: dict[int, dict[str, Any]]) -> list[Candidate]:
    """The checkpoints of these records, step → record, that could be graded."""
    candidates = candidates_of(records)
    if not candidates:
        raise GradingError(
            f"none of {len(records)} checkpoints could be graded on the validation problems, so "
            "none can be chosen: look at the grader's settings and at the rollouts."
        )
    return candidates
