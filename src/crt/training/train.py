"""From a recipe to a finished run; `train` is the paper: reference, Stage I, Stage II."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from crt.algorithm.batch import Batch
from crt.algorithm.two_stage import TwoStage
from crt.config import RunConfig
from crt.errors import ConfigError, EngineError
from crt.processes import Ranks
from crt.run import Run
from crt.sampling.models import describe_dtype
from crt.training import preflight
from crt.training.checkpoints import disk_told, mend
from crt.training.context import IN_PROCESS, Backend, RunContext
from crt.training.progress import Progress
from crt.training.reference import Reference
from crt.training.stage import Interrupted, Stage, first_stage, generated, order_of, stage_of
from crt.training.validation import Floor, against, average_last, confirm, guard_of

REFERENCES = "references"  # beside the runs, which share it


Show = Callable[[dict[str, Any]], None]
Fit = Callable[[Run, RunContext, Stage, Reference, Floor, Show], None]


class Engine(NamedTuple):
    """What trains a stage, how its models are loaded and sampled, and what it refuses."""

    fit: Fit
    backend: Backend
    check: Callable[[RunConfig, int], None]  # with so many processes


def engine_of(config: RunConfig) -> Engine:
    """Only the chosen one is imported, because each needs its own packages."""
    if config.engine == "verl":
        from crt.training.verl.fit import BACKEND, check, fit

        return Engine(fit, BACKEND, check)
    from crt.training.trl.config import check
    from crt.training.trl.fit import fit

    return Engine(fit, IN_PROCESS, check)


def start_run(config: RunConfig, path: Path) -> Run:
    """A new run's directory, once nothing speaks against it."""
    ranks = Ranks.found()
    if ranks.writes:
        Run.refuse_existing(path)
    with removed_if_empty(path.parent), contextlib.closing(Progress(ranks.writes)) as progress:
        reference = check_run(config, path.parent, progress)
    if ranks.writes:
        print(describe_reference(reference))
        for note in preflight.warnings(reference, config):
            print(f"Note: {note}")
        Run.create(path, config)
    ranks.wait()
    return Run.open(path)


def check_run(config: RunConfig, folder: Path, progress: Progress) -> Batch:
    """Refuses what cannot work; the reference on the validation problems."""
    engine = engine_of(config)
    context = RunContext(config, folder / REFERENCES, engine.backend, progress)
    try:
        engine.check(config, context.ranks.count)
        for note in describe_dtype(context.base.files, config.model.dtype, context.base.dtype):
            progress.say(note)
        preflight.before_sampling(context, folder)
        reference = context.reference(context.base)
        probed = context.validation_reference(reference)
        names = [problem.id for problem in context.problems[1]]
        batch = preflight.check_reference(probed(names), config, probed.verdicts(names))
        if config.engine == "verl":  # all that the first stage asks, while its servers are up
            order = order_of(context, first_stage(config))
            reference.sample_ahead([problem for step in order for problem in step])
    finally:
        context.close()
    return batch


def describe_reference(batch: Batch) -> str:
    """How the model to shorten stands on the validation problems."""
    return (
        f"Reference: {100 * batch.accuracy:.1f} % right, {batch.mean_tokens:.0f} tokens, "
        f"{batch.truncated.mean():.0%} cut off ({len(batch.problem_ids)} problems)."
    )


@contextlib.contextmanager
def removed_if_empty(folder: Path) -> Iterator[None]:
    """Makes a folder; if a run is refused before anything was written there, it goes again."""
    made = [part for part in (folder, *folder.parents) if not part.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for part in made:
            with contextlib.suppress(OSError):
                part.rmdir()
        raise


def train_run(run: Run) -> bool:
    """Trains what is left of a run; False when it was asked to end and everything is saved."""
    ranks = Ranks.found()
    with run.locked() if ranks.writes else contextlib.nullcontext():
        if ranks.writes:
            run.sweep()
            mend(run)
        ranks.wait()
        if run.progress.get("finished"):
            return True
        if run.readable_only:
            raise ConfigError(
                f"{run.path} was begun by an earlier version, with settings of the method that are "
                "no longer there: it can be read and evaluated, but not gone on with."
            )
        if run.progress.get("stopped") and ranks.writes:
            run.set_progress(stopped=None)
        engine, progress = engine_of(run.config), Progress(ranks.writes)
        cache = run.path.parent / REFERENCES
        context = RunContext(run.config, cache, engine.backend, progress)
        schedule, done = run.config.schedule, run.steps
        spent = generated(done) if schedule.tokens else 0
        progress.begin(schedule.steps, len(done), schedule.tokens, spent)
        try:
            with disk_told(run.path):
                train(run, context, engine.fit, progress)
        except EngineError as error:  # an alarm: what came of the run, for whoever asks later
            if ranks.writes:
                run.set_progress(stopped=str(error))
            raise
        except Interrupted:
            return False
        finally:
            progress.close()
            context.close()
    return True


def train(run: Run, context: RunContext, fit: Fit, show: Show) -> None:
    """Trains a run to its end, from wherever it is; then names the checkpoint to use.

    `fit` trains one stage: that of TRL or that of verl.
    """
    reference = context.reference(context.base)  # π_ref
    guard, lines = guard_of(run.config.method), run.config.contract.promises
    floor = against(context.on_validation(reference), guard, lines)
    if isinstance(run.config.method, TwoStage):
        if "stage_one_ended" not in run.progress:
            fit(run, context, stage_of(run), reference, floor, show)
            average_last(run, context, floor)
            best = confirm(run, context, floor, run.config.method.start)
            run.set_progress(stage_one_ended=max(run.checkpoints), stage_two_from=best.step)
        reference = context.reference(context.load(stage_of(run).start))  # π_ref^(I)
    fit(run, context, stage_of(run), reference, floor, show)
    average_last(run, context, floor)
    best = confirm(run, context, floor)
    run.set_progress(finished=True, recommended=best.step, feasible=best.feasible)


def verl_command(run: Run) -> str:
    """How verl is started for the stage the run is in; nothing is written or started."""
    if run.config.engine != "verl":
        raise ConfigError("--print is for the engine verl; crt show prints what would run here.")
    from crt.training.verl.fit import BACKEND, folder_of, overrides, shown
    from crt.training.verl.recorder import finished

    stage = stage_of(run)
    context = RunContext(run.config, run.path.parent / REFERENCES, BACKEND)
    saved = finished(folder_of(run, stage).saved)
    try:
        return shown(overrides(run, context, stage, saved[-1] if saved else None))
    finally:
        context.close()


def recommendation(run: Run) -> str:
    """The checkpoint to use, and whether it kept the guard on the validation problems."""
    best = run.checkpoint(run.progress["recommended"])
    if run.progress["feasible"]:
        return f"The shortest feasible checkpoint is {best}."
    promised = "the contract" if run.config.contract.lines else "the reference's accuracy"
    return (
        f"No checkpoint kept {promised} on the validation problems; {best} comes "
        "nearest. Evaluate it on more problems before using it."
    )
