"""From a recipe to a finished run: checked, created, trained, taken up again."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from crt.algorithm.batch import Batch
from crt.config import RunConfig
from crt.errors import ConfigError, EngineError
from crt.processes import has_gpu, physical_cores
from crt.run import Run
from crt.sampling.models import base_of, is_world, model_folder
from crt.training import preflight
from crt.training.checkpoints import disk_told, mend
from crt.training.context import IN_PROCESS, Backend, RunContext
from crt.training.progress import View
from crt.training.ranks import Ranks
from crt.training.stage import Interrupted, first_stage, generated, order_of, stage_of
from crt.training.train import Fit, train

REFERENCES = "references"  # beside the runs, which share it


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


SMALL_MODEL = 400 * 2**20  # bytes of weights: below it one thread per process is faster


def processes_for(config: RunConfig, asked: int | None = None) -> int:
    """How many processes train on this machine's cores.

    A small model is trained by one process per physical core, with one thread each. A large one
    has all cores as threads of one process, and so does whoever has a GPU or another launcher.
    """
    if config.engine != "local" or "RANK" in os.environ:
        return 1
    rollouts = config.schedule.problems_per_step * config.sampling.group_size
    if asked is not None:
        _check_shares(rollouts, asked)
        return asked
    if has_gpu() or config.trl.get("use_vllm") or not is_small(config.model.name):
        return 1
    most = int(os.environ.get("CRT_PROCESSES", physical_cores()))
    return next(n for n in range(max(most, 1), 0, -1) if rollouts % n == 0)


def is_small(model: str) -> bool:
    """Whether a model's weights, if they are on this machine, are few."""
    if not is_world(model) and not Path(model).is_dir():
        return False
    folder = model_folder(model)
    if (folder / "adapter_config.json").is_file():
        return is_small(base_of(folder))
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) < SMALL_MODEL


def _check_shares(rollouts: int, processes: int) -> None:
    """Refuses a number of processes that a step's rollouts cannot be shared by."""
    if processes < 1 or rollouts % processes:
        raise ConfigError(
            f"--processes {processes}: a step has {rollouts} rollouts, which cannot be shared "
            "equally. Give a number that divides them."
        )


def start_run(config: RunConfig, path: Path) -> Run:
    """A new run's directory, once nothing speaks against it."""
    ranks = Ranks.found()
    if ranks.writes:
        Run.refuse_existing(path)
    with removed_if_empty(path.parent):
        reference = check_run(config, path.parent)
    if ranks.writes:
        print(describe_reference(reference))
        for note in preflight.warnings(reference, config):
            print(f"Note: {note}")
        Run.create(path, config)
    ranks.wait()
    return Run.open(path)


def check_run(config: RunConfig, folder: Path) -> Batch:
    """Refuses what cannot work; the reference on the validation problems."""
    engine = engine_of(config)
    context = RunContext(config, folder / REFERENCES, engine.backend)
    try:
        engine.check(config, context.ranks.count)
        preflight.before_sampling(context, folder)
        reference = context.reference(context.base)
        batch = preflight.check_reference(context.on_validation(reference), config)
        if config.engine == "verl":  # all that the first stage asks, while its servers are up
            order = order_of(context, first_stage(config))
            reference.sample_ahead([problem for step in order for problem in step])
    finally:
        context.close()
    return batch


def describe_reference(batch: Batch) -> str:
    """How the model to shorten stands on the validation problems."""
    return (
        f"Reference: {100 * batch.accuracy:.1f} % right, {batch.mean_length:.0f} tokens, "
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
        if run.progress.get("stopped") and ranks.writes:
            run.set_progress(stopped=None)
        engine = engine_of(run.config)
        context = RunContext(run.config, run.path.parent / REFERENCES, engine.backend)
        schedule, done = run.config.schedule, run.steps
        spent = generated(done) if schedule.tokens else 0
        view = View(schedule.steps, len(done), ranks.writes, schedule.tokens, spent)
        context.say = view.say
        try:
            with disk_told(run.path):
                train(run, context, engine.fit, view)
        except EngineError as error:  # an alarm: what came of the run, for whoever asks later
            if ranks.writes:
                run.set_progress(stopped=str(error))
            raise
        except Interrupted:
            return False
        finally:
            view.close()
            context.close()
    return True


def verl_command(run: Run) -> str:
    """How verl is started for the stage the run is in; nothing is written or started."""
    if run.config.engine != "verl":
        raise ConfigError("--print is for the engine verl; crt show prints what would run here.")
    from crt.training.verl.fit import BACKEND, folder_of, overrides
    from crt.training.verl.launch import shown
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
    return (
        f"No checkpoint kept the reference's accuracy on the validation problems; {best} comes "
        "nearest. Evaluate it on more problems before using it."
    )
