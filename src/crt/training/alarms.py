"""Learning that goes wrong, seen in the rows of the steps."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from crt.algorithm.step import Step
from crt.errors import EngineError
from crt.run import Run

COLLAPSED_LENGTH = 0.05  # of the reference's tokens
EMPTY = 1.5  # tokens: the one that ends a response and hardly any other
COLLAPSED_ACCURACY = 0.2  # of the reference's accuracy
COLLAPSE_STEPS = 5
FAR_BELOW = 0.25  # accuracy points under the floor
FAR_BELOW_STEPS = 30
LARGEST_KL = 50.0

TOO_HIGH = (
    "The learning rate is probably too high, or the numbers overflow: lower optim.learning_rate, "
    "or use bfloat16."
)

Row = dict[str, Any]


def alarm(rows: Sequence[Row], guarded: bool) -> str | None:
    """What is wrong, with the likely cause, or None.

    `guarded` says that the method has an accuracy guard, so that accuracy far below the floor for
    long is a failure and not the plan.
    """
    if not rows:
        return None
    last = rows[-1]
    for name in ("loss", "grad_norm"):
        value = last.get(name, 0.0)
        if value is None or not math.isfinite(value):
            return f"{name} is {value} at step {last['step']}. {TOO_HIGH}"
    if (last.get("kl") or 0.0) > LARGEST_KL:
        return (
            f"the KL divergence to the reference is {last['kl']:.1f} at step {last['step']}: the "
            "policy has run away. Lower optim.learning_rate or raise optim.kl."
        )
    if _for_long(rows, COLLAPSE_STEPS, _collapsed):
        return (
            f"responses have shrunk to {last['tokens']:.0f} tokens and accuracy to "
            f"{last['accuracy']:.0%} since step {rows[-COLLAPSE_STEPS]['step']}: the policy has "
            "collapsed to bare or empty answers. Use a method with a guard, a smaller learning "
            'rate, or length_on = "no_credit_for_wrong".'
        )
    if broken := _broken_line(rows):
        return broken
    if guarded and "lines" not in last and _for_long(rows, FAR_BELOW_STEPS, _far_below):
        return (
            f"accuracy has been more than {FAR_BELOW:.0%} under the floor for {FAR_BELOW_STEPS} "
            "steps and accuracy steps do not restore it. Lower optim.learning_rate, or look at "
            "the rollouts: the grader or the prompt may not fit the model."
        )
    return None


def _broken_line(rows: Sequence[Row]) -> str | None:
    """A line of the contract that is far from kept and comes no nearer."""
    recent = [row["lines"] for row in rows[-FAR_BELOW_STEPS:] if "lines" in row]
    for name in recent[-1] if len(recent) == FAR_BELOW_STEPS else ():
        stands = [lines[name] for lines in recent if name in lines]
        margins = [line["margin"] / max(1.0, abs(line["bound"])) for line in stands]
        half = len(margins) // 2
        before, now = margins[:half], margins[half:]
        if before and max(margins) < -FAR_BELOW and sum(now) <= sum(before) * len(now) / half:
            return (
                f"the line {name!r} has been far from kept for {FAR_BELOW_STEPS} steps (now "
                f"{stands[-1]['value']:.4g}, the bound is {stands[-1]['bound']:.4g}), and steps "
                "that repair it do not help. Lower optim.learning_rate, or ask for what the model "
                "can do: one line may rule out another."
            )
    return None


def broken_weights(named: Iterable[tuple[str, Any]], step: int) -> str | None:
    """The first weight that is no number, or None; a checkpoint of such weights is worth nothing.

    `named` are tensors by name, as a model gives its parameters.
    """
    for name, weight in named:
        if not bool(weight.isfinite().all()):
            return f"{name} is not finite after step {step}. {TOO_HIGH}"
    return None


def limit_ungraded(run: Run, step: Step, number: int) -> None:
    """Stops a run whose grader does not work: its figures would be of the rest alone."""
    counted = 0 if step.signal is None else int(step.signal.decision.reward.shape[0])
    share = len(step.left_out) / max(1, len(step.left_out) + counted)
    limit = run.config.grading.ungraded_limit
    if share > limit and len(step.left_out) > 1:
        raise EngineError(
            f"training was stopped: {share:.0%} of the problems of step {number} "
            f"could not be graded, for example {step.left_out[0]!r}; the limit is {limit:.0%}. "
            f"Look at the answers in the data and at {run.rollouts_file(number)}, give "
            f"the grader more time, or raise grading.ungraded_limit. {last_good(run)}"
        )


def last_good(run: Run) -> str:
    """The last checkpoint that kept the guard, for whoever reads why a run was stopped."""
    good = [step for step, record in run.checkpoints.items() if record.get("feasible")]
    if not good:
        return "No checkpoint was feasible before that."
    return f"The last feasible checkpoint is {run.checkpoint(good[-1])}."


def _for_long(rows: Sequence[Row], steps: int, is_so: Any) -> bool:
    recent = rows[-steps:]
    return len(recent) == steps and all("accuracy" in row and is_so(row) for row in recent)


def _collapsed(row: Row) -> bool:
    return (
        row["tokens"] < max(EMPTY, COLLAPSED_LENGTH * row["reference_tokens"])
        and row["accuracy"] < COLLAPSED_ACCURACY * row["reference_accuracy"]
    )


def _far_below(row: Row) -> bool:
    return row["accuracy"] < row["reference_accuracy"] - row["slack"] - FAR_BELOW
