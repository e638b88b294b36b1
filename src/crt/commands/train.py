"""crt train: Stage I and II, or any other method, from a recipe to checkpoints."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A recipe for a new run, or a run to go on with."""
    parser.add_argument("recipe", type=Path, nargs="?", help="a recipe (.toml)")
    parser.add_argument("--run", type=Path, help="the directory to write (runs/NAME)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run")
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE",
        help="change a setting, e.g. --set schedule.steps=200 (may be repeated)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Trains to the end; 143 when the process was asked to end and everything is saved."""
    from crt.errors import ConfigError
    from crt.recipes import load_recipe
    from crt.run import Run

    if (args.recipe is None) == (args.resume is None):
        raise ConfigError("give a recipe for a new run, or --resume RUN to go on with one.")
    if args.resume:
        if args.overrides:
            raise ConfigError("--set changes a recipe; a run goes on as it was begun.")
        return carry_out(Run.open(args.resume))
    config = load_recipe(args.recipe, args.overrides)
    return carry_out(Run.create(args.run or Path("runs") / config.name, config))


def carry_out(run) -> int:
    """Trains what is left of a run."""
    from crt.engines.quiet import quiet

    quiet()
    from crt.train.fit import Interrupted
    from crt.train.stages import train
    from crt.train.view import View
    from crt.train.workshop import Workshop

    with run.locked():
        if run.progress.get("finished"):
            print(f"{run.path} is finished; its checkpoint to use is {best_of(run)}.")
            return 0
        workshop = Workshop(run.config, run.path.parent / "references")
        view = View(run.config.schedule.steps, done=len(run.steps))
        try:
            train(run, workshop, view)
        except Interrupted:
            print(f"Stopped and saved. Go on with: crt train --resume {run.path}")
            return 143
        finally:
            view.close()
            workshop.close()
    print(f"Finished. The shortest feasible checkpoint is {best_of(run)}.")
    return 0


def best_of(run) -> Path:
    """The checkpoint the run recommends."""
    return run.checkpoint(run.progress["recommended"])
