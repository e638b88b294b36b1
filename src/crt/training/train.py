"""The paper on one page: reference, Stage I, its shortest feasible checkpoint, Stage II."""

from collections.abc import Callable
from typing import Any

from crt.algorithm.two_stage import TwoStage
from crt.run import Run
from crt.training.context import RunContext
from crt.training.reference import Reference
from crt.training.stage import Stage, stage_of
from crt.training.validation import Floor, against, confirm, guard_of

Show = Callable[[dict[str, Any]], None]
Fit = Callable[[Run, RunContext, Stage, Reference, Floor, Show], None]


def train(run: Run, context: RunContext, fit: Fit, show: Show) -> None:
    """Trains a run to its end, from wherever it is; then names the checkpoint to use.

    `fit` trains one stage: that of TRL or that of verl.
    """
    reference = context.reference(context.base)  # π_ref
    floor = against(context.on_validation(reference), guard_of(run.config.method))
    if isinstance(run.config.method, TwoStage):
        if "stage_one_ended" not in run.progress:
            fit(run, context, stage_of(run), reference, floor, show)
            best = confirm(run, context, floor, run.config.method.start)
            run.set_progress(stage_one_ended=max(run.checkpoints), stage_two_from=best.step)
        reference = context.reference(context.load(stage_of(run).start))  # π_ref^(I)
    fit(run, context, stage_of(run), reference, floor, show)
    best = confirm(run, context, floor)
    run.set_progress(finished=True, recommended=best.step, feasible=best.feasible)
