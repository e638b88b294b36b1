"""crt train: Stage I and II, or any other method, from a recipe to checkpoints."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from crt.commands import add_overrides, loading
from crt.errors import ConfigError

if TYPE_CHECKING:
    from crt.run import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("recipe", type=Path, nargs="?", help="a recipe (.toml)")
    add("--out", type=Path, help="the directory to write (runs/NAME)")
    add("--resume", type=Path, metavar="RUN", help="go on with a run")
    add("--engine", choices=("local", "verl"), help="as the recipe's engine")
    add(
        "--print", action="store_true", dest="only_print",
        help="with the engine verl: the command that would start it, and nothing else",
    )  # fmt: skip
    add(
        "--processes", type=int, metavar="N",
        help="processes that train together on a CPU (one per core for small models, else one)",
    )  # fmt: skip
    add_overrides(parser)


def run(args: argparse.Namespace) -> int:
    """Trains to the end; 143 when the process was asked to end and everything is saved."""
    from crt.processes import Ranks, run_ranks, silence_libraries
    from crt.recipes import load_recipe
    from crt.run import Run
    from crt.training.ranks import processes_for

    if (args.recipe is None) == (args.resume is None):
        raise ConfigError("give a recipe for a new run, or --resume RUN to go on with one.")
    if args.resume and (args.overrides or args.engine):
        raise ConfigError("--set and --engine change a recipe; a run goes on as it was begun.")
    if args.resume:
        opened = Run.open(args.resume)
    else:
        chosen = [f"engine={args.engine}"] if args.engine else []
        config = load_recipe(args.recipe, [*args.overrides, *chosen])
        opened = Run(args.out or Path("runs") / config.name, config)
    if not args.only_print:
        ranks, count = Ranks.found(), processes_for(opened.config, args.processes)
        if count > ranks.count:
            return run_ranks(args.argv, count)
        if ranks.writes:
            print(f"Training in {count} process{'es' if count > 1 else ''}.", flush=True)
    silence_libraries()
    with loading(Ranks.found().writes):
        from crt.training.train import start_run, verl_command

    if args.only_print:
        print(verl_command(opened))
        return 0
    return finish(opened if args.resume else start_run(opened.config, opened.path))


def finish(run: "Run") -> int:
    """Trains what is left of a run, and says what came of it."""
    from crt.processes import Ranks
    from crt.training.train import recommendation, train_run

    before = run.progress.get("finished")
    if not train_run(run):
        print(f"Stopped and saved. Go on with: crt train --resume {run.path}")
        return 143
    if Ranks.found().writes:
        print(f"{f'{run.path} is finished.' if before else 'Finished.'} {recommendation(run)}")
    return 0
