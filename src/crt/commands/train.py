"""crt train: Stage I and II, or any other method, from a recipe to checkpoints."""

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crt.config import RunConfig
    from crt.run import Run
    from crt.training.context import RunContext
    from crt.training.ranks import Ranks
    from crt.training.reference import Reference


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A recipe for a new run, or a run to go on with."""
    parser.add_argument("recipe", type=Path, nargs="?", help="a recipe (.toml)")
    parser.add_argument("--out", type=Path, help="the directory to write (runs/NAME)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run")
    parser.add_argument("--engine", choices=("local", "verl"), help="as the recipe's engine")
    parser.add_argument(
        "--print", action="store_true", dest="only_print",
        help="with the engine verl: the command that would start it, and nothing else",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE",
        help="change a setting, e.g. --set schedule.steps=200 (may be repeated)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Trains to the end; 143 when the process was asked to end and everything is saved."""
    from crt.errors import ConfigError
    from crt.recipes import load_recipe
    from crt.run import Run
    from crt.training.ranks import Ranks

    if (args.recipe is None) == (args.resume is None):
        raise ConfigError("give a recipe for a new run, or --resume RUN to go on with one.")
    if args.resume:
        if args.overrides or args.engine:
            raise ConfigError("--set and --engine change a recipe; a run goes on as it was begun.")
        opened = Run.open(args.resume)
        return show_command(opened) if args.only_print else carry_out(opened)
    chosen = [f"engine={args.engine}"] if args.engine else []
    config = load_recipe(args.recipe, [*args.overrides, *chosen])
    path = args.out or Path("runs") / config.name
    if args.only_print:
        return show_command(Run(path, config))
    ranks = Ranks.found()
    if ranks.writes:
        Run.refuse_existing(path)
    preflight(config, path.parent, ranks)
    if ranks.writes:
        Run.create(path, config)
    ranks.wait()
    return carry_out(Run.open(path))


def show_command(run: "Run") -> int:
    """Prints how verl is started for the stage the run is in; nothing is written or started."""
    from crt.errors import ConfigError
    from crt.training.quiet import quiet

    quiet()
    if run.config.engine != "verl":
        raise ConfigError("--print is for the engine verl; crt show prints what would run here.")
    from crt.training.context import RunContext
    from crt.training.stage import stage_of
    from crt.training.verl.fit import folder_of, overrides
    from crt.training.verl.launch import shown
    from crt.training.verl.recorder import finished

    context, stage = RunContext(run.config, run.path.parent / "references"), stage_of(run)
    saved = finished(folder_of(run, stage).saved)
    try:
        print(shown(overrides(run, context, stage, saved[-1] if saved else None)))
    finally:
        context.close()
    return 0


def preflight(config: "RunConfig", folder: Path, ranks: "Ranks") -> None:
    """Refuses what cannot work before a directory is made."""
    from crt.training.quiet import quiet

    quiet()
    from crt.training import preflight as checks
    from crt.training.context import RunContext

    folder.mkdir(parents=True, exist_ok=True)
    context = RunContext(config, folder / "references")
    try:
        checks.before_sampling(context, folder)
        reference = context.reference(context.base)
        batch = context.on_validation(reference)
        checks.check_reference(batch, config)
        if config.engine == "verl":  # while the cluster's servers are up
            cluster_ahead(config, context, reference)
    finally:
        context.close()
    if batch is not None and ranks.writes:
        print(
            f"Reference: {100 * batch.accuracy:.1f} % right, {batch.mean_length:.0f} tokens, "
            f"{batch.truncated.mean():.0%} cut off ({len(batch.problem_ids)} problems)."
        )
        for warning in checks.warnings(batch, config):
            print(f"Note: {warning}")


def cluster_ahead(config: "RunConfig", context: "RunContext", reference: "Reference") -> None:
    """The reference's rollouts for all that the first stage asks; a start takes minutes."""
    from crt.training.stage import first_stage, order_of
    from crt.training.verl.fit import sample_ahead

    order = order_of(context, first_stage(config))
    sample_ahead(reference, [problem for step in order for problem in step])


def carry_out(run: "Run") -> int:
    """Trains what is left of a run."""
    from crt.training.quiet import quiet

    quiet()
    from crt.errors import EngineError
    from crt.training.checkpoints import disk_told, mend
    from crt.training.context import RunContext
    from crt.training.progress import View
    from crt.training.ranks import Ranks
    from crt.training.stage import Interrupted, generated
    from crt.training.train import train

    ranks = Ranks.found()
    with run.locked() if ranks.writes else contextlib.nullcontext():
        if ranks.writes:
            run.sweep()
            mend(run)
        ranks.wait()
        if run.progress.get("finished"):
            print(f"{run.path} is finished. {recommendation(run)}")
            return 0
        context = RunContext(run.config, run.path.parent / "references")
        if run.progress.get("stopped") and ranks.writes:
            run.set_progress(stopped=None)
        schedule, done = run.config.schedule, run.steps
        spent = generated(done) if schedule.tokens else 0
        view = View(schedule.steps, len(done), ranks.writes, schedule.tokens, spent)
        context.say = view.say
        try:
            with disk_told(run.path):
                train(run, context, view)
        except EngineError as error:  # an alarm: what came of the run, for whoever asks later
            if ranks.writes:
                run.set_progress(stopped=str(error))
            raise
        except Interrupted:
            print(f"Stopped and saved. Go on with: crt train --resume {run.path}")
            return 143
        finally:
            view.close()
            context.close()
    if ranks.writes:
        print(f"Finished. {recommendation(run)}")
    return 0


def recommendation(run: "Run") -> str:
    """The checkpoint to use, and whether it kept the guard on the validation problems."""
    best = run.checkpoint(run.progress["recommended"])
    if run.progress["feasible"]:
        return f"The shortest feasible checkpoint is {best}."
    return (
        f"No checkpoint kept the reference's accuracy on the validation problems; {best} comes "
        "nearest. Evaluate it on more problems before using it."
    )
