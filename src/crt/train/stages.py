"""The paper on one page: reference, Stage I, its shortest feasible checkpoint, Stage II."""

from collections.abc import Callable
from typing import Any

from crt.core.methods import Method, TwoStage
from crt.core.objectives import PrimalDual, Shorten
from crt.run import Run
from crt.train.budget import Budget
from crt.train.choice import confirmed
from crt.train.fit import Rows, Stage, fit
from crt.train.measure import Floor, against
from crt.train.reference import Reference
from crt.train.workshop import Workshop

Show = Callable[[dict[str, Any]], None]


def train(run: Run, workshop: Workshop, show: Show) -> None:
    """Trains a run to its end, from wherever it is; then names the checkpoint to use."""
    reference = workshop.reference(workshop.base)  # π_ref
    floor = against(workshop.on_validation(reference), guard_of(run.config.method))
    if isinstance(run.config.method, TwoStage):
        two_stages(run, workshop, run.config.method, reference, floor, show)
    else:
        objective = run.config.method
        schedule, start = run.config.schedule, run.config.model.name
        over = Budget(schedule.tokens).spent
        stage = Stage(1, objective, start, 0, schedule.steps, guarded=objective.guarded, over=over)
        fit(run, workshop, stage, reference, floor, show)
    best = confirmed(run, workshop, floor)
    run.set_progress(finished=True, recommended=best.step, feasible=best.feasible)


def two_stages(
    run: Run, workshop: Workshop, method: TwoStage, reference: Reference, floor: Floor, show: Show
) -> None:
    """Stage I until length saturates; Stage II from its shortest feasible checkpoint."""
    steps, tokens = run.config.schedule.steps, run.config.schedule.tokens

    def saturated(rows: Rows) -> bool:
        lengths = [row["tokens"] for row in rows if "tokens" in row]
        return method.saturation.reached(lengths, steps, Budget(tokens).share(rows))

    if "stage_one_ended" not in run.progress:
        most = int(method.saturation.latest * steps)
        stage = Stage(1, method.shorten, run.config.model.name, 0, most, over=saturated)
        fit(run, workshop, stage, reference, floor, show)
        best = confirmed(run, workshop, floor)
        run.set_progress(stage_one_ended=max(run.checkpoints), stage_two_from=best.step)

    ended = run.progress["stage_one_ended"]
    start = str(run.checkpoint(run.progress["stage_two_from"]))
    reference = workshop.reference(workshop.load(start))  # π_ref^(I)
    over = Budget.after(tokens, run.steps, ended).spent
    stage = Stage(2, method.refine, start, ended, steps - ended, over=over)
    fit(run, workshop, stage, reference, floor, show)


def guard_of(method: Method) -> Shorten:
    """The guard a checkpoint is judged by: the method's own, or the reference's accuracy."""
    if isinstance(method, TwoStage):
        return method.shorten
    if isinstance(method, Shorten):
        return method
    return Shorten(method.tolerance if isinstance(method, PrimalDual) else 0.0, slack="auto")
