"""The paper on one page: reference, Stage I, its shortest feasible checkpoint, Stage II."""

from collections.abc import Callable
from typing import Any

from crt.algorithm.objectives import PrimalDual, Shorten
from crt.algorithm.registry import Method
from crt.algorithm.two_stage import TwoStage
from crt.config import RunConfig
from crt.run import Run
from crt.training.context import RunContext
from crt.training.reference import Reference
from crt.training.stage import Stage, stage_of
from crt.training.validation import Floor, against, confirmed

Show = Callable[[dict[str, Any]], None]
Fit = Callable[[Run, RunContext, Stage, Reference, Floor, Show], None]


def train(run: Run, context: RunContext, show: Show) -> None:
    """Trains a run to its end, from wherever it is; then names the checkpoint to use."""
    fit = engine_of(run.config)
    reference = context.reference(context.base)  # π_ref
    floor = against(context.on_validation(reference), guard_of(run.config.method))
    if isinstance(run.config.method, TwoStage):
        if "stage_one_ended" not in run.progress:
            fit(run, context, stage_of(run), reference, floor, show)
            best = confirmed(run, context, floor, run.config.method.start)
            run.set_progress(stage_one_ended=max(run.checkpoints), stage_two_from=best.step)
        reference = context.reference(context.load(stage_of(run).start))  # π_ref^(I)
    fit(run, context, stage_of(run), reference, floor, show)
    best = confirmed(run, context, floor)
    run.set_progress(finished=True, recommended=best.step, feasible=best.feasible)


def engine_of(config: RunConfig) -> Fit:
    """What trains a stage; only the chosen one is imported, because each needs its own packages."""
    if config.engine == "verl":
        from crt.training.verl.fit import fit
    else:
        from crt.training.trl.fit import fit
    return fit


def guard_of(method: Method) -> Shorten:
    """The guard a checkpoint is judged by: the method's own, or the reference's accuracy."""
    if isinstance(method, TwoStage):
        return method.shorten
    if isinstance(method, Shorten):
        return method
    return Shorten(method.tolerance if isinstance(method, PrimalDual) else 0.0, slack="auto")
