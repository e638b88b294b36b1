"""How a checkpoint stands: its accuracy and length on the validation problems, and the floor."""

from collections.abc import Callable, Sequence
from typing import Any

from crt.core.batch import Batch, batch_of
from crt.core.feasible import is_feasible
from crt.core.guard import paired_gap, slack_of
from crt.core.objectives import Shorten
from crt.engines.policy import Policy
from crt.train.workshop import Workshop

Floor = Callable[[Batch], dict[str, Any]]  # how a validation batch stands against the reference


def measured(workshop: Workshop, policy: Policy, step: int, floor: Floor) -> dict[str, Any]:
    """Accuracy and length of the policy on the validation problems, and how it stands."""
    rollouts = workshop.measured(policy, workshop.config.validation.rollouts, step)
    return figures(*batch_of(rollouts, workshop.config.grading.truncated), floor)


def figures(batch: Batch | None, left_out: Sequence[str], floor: Floor) -> dict[str, Any]:
    """What a checkpoint's record says of a measurement."""
    if batch is None:
        unknown = dict.fromkeys(("accuracy", "tokens", "margin", "rollouts"))
        return unknown | {"feasible": False, "left_out": len(left_out)}
    return {
        "accuracy": batch.accuracy,
        "tokens": batch.mean_length,
        "truncated": float(batch.truncated.mean()),
        "problems": len(batch.problem_ids),
        "rollouts": batch.correct.shape[1],
        "left_out": len(left_out),
    } | floor(batch)


def against(reference: Batch | None, guard: Shorten) -> Floor:
    """How a validation batch stands against the reference's on the same problems.

    The slack of `auto` is here the least one: noise does not widen what a checkpoint may lose.
    """

    def stands(batch: Batch) -> dict[str, Any]:
        known = set(reference.problem_ids) if reference else set()
        both = [problem_id for problem_id in batch.problem_ids if problem_id in known]
        if reference is None or not both:
            return {"margin": None, "feasible": False}
        theirs = reference.select(both)
        gap = paired_gap(batch.select(both), theirs)
        margin = guard.tolerance + slack_of(guard.slack, 0.0) - gap.mean
        return {
            "reference_accuracy": theirs.accuracy,
            "reference_tokens": theirs.mean_length,
            "standard_error": gap.standard_error,
            "margin": margin,
            "feasible": is_feasible(margin, gap.standard_error),
        }

    return stands
