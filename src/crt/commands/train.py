"""crt train: Stage I and II, or any other method, from a recipe to checkpoints."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from crt.commands import add_overrides

if TYPE_CHECKING:
    from crt.run import Run


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
    add_overrides(parser)


def run(args: argparse.Namespace) -> int:
    """Trains to the end; 143 when the process was asked to end and everything is saved."""
    from crt.errors import ConfigError
    from crt.processes import silence_libraries
    from crt.recipes import load_recipe
    from crt.run import Run

    if (args.recipe is None) == (args.resume is None):
        raise ConfigError("give a recipe for a new run, or --resume RUN to go on with one.")
    if args.resume and (args.overrides or args.engine):
        raise ConfigError("--set and --engine change a recipe; a run goes on as it was begun.")
    silence_libraries()
    from crt.training.launch import start_run, verl_command

    if args.resume:
        opened = Run.open(args.resume)
        if args.only_print:
            print(verl_command(opened))
            return 0
        return finish(opened)
    chosen = [f"engine={args.engine}"] if args.engine else []
    config = load_recipe(args.recipe, [*args.overrides, *chosen])
    path = args.out or Path("runs") / config.name
    if args.only_print:
        print(verl_command(Run(path, config)))
        return 0
    return finish(start_run(config, path))


def finish(run: "Run") -> int:
    """Trains what is left of a run, and says what came of it."""
    from crt.training.launch import recommendation, train_run
    from crt.processes import Ranks

    before = run.progress.get("finished")
    if not train_run(run):
        print(f"Stopped and saved. Go on with: crt train --resume {run.path}")
        return 143
    if Ranks.found().writes:
        print(f"{f'{run.path} is finished.' if before else 'Finished.'} {recommendation(run)}")
    return 0
