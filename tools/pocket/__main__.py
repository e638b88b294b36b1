"""python -m tools.pocket: build a miniature reasoner again, measure it, read its card."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from crt.errors import CrtError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Four things to do with the pocket models."""
    actions = parser.add_subparsers(dest="action", metavar="<action>", required=True)
    add_build(actions.add_parser("build", help="make a model from a seed; resumes if cut off"))
    measure = actions.add_parser("measure", help="measure the table of styles of a model")
    measure.add_argument("--problems", type=int, default=100, help="held-out problems (100)")
    measure.add_argument("--copies", type=int, default=4, help="answers to each (4)")
    measure.add_argument("--seed", type=int, default=0, help="of problems and sampling (0)")
    measure.add_argument("--json", action="store_true", help="print the figures as JSON")
    ask = actions.add_parser("everyday", help="ask a file of everyday questions, as `crt ask` does")
    ask.add_argument("file", type=Path, help="in every line an answer, a tab, a question")
    ask.add_argument("--model", type=Path, help="a folder (default: the shipped model)")
    ask.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (0)")
    ask.add_argument("--seed", type=int, default=0, help="for a temperature above 0 (0)")
    card = actions.add_parser("card", help="print the model card")
    describe = actions.add_parser(
        "describe", help="write card and front again from the measured figures"
    )
    for action in (measure, card, describe):
        add_world(action)
        action.add_argument("--model", type=Path, help="a folder (default: the shipped model)")


def add_world(parser: argparse.ArgumentParser) -> None:
    """Which of the worlds."""
    parser.add_argument("--world", default="pocket", help="pocket (default), chunks or checks")


def add_build(parser: argparse.ArgumentParser) -> None:
    """Settings of a build; the defaults are those of the shipped model."""
    add_world(parser)
    parser.add_argument("--out", type=Path, help="folder (pocket, or pocket-NAME of the world)")
    parser.add_argument("--seed", type=int, default=0, help="of data, weights, sampling (0)")
    parser.add_argument("--supervised", type=int, help="supervised steps")
    parser.add_argument("--second", type=int, help="supervised steps of the second cycle")
    parser.add_argument("--polish", type=int, help="steps of reinforcement learning")
    parser.add_argument("--problems", type=int, help="held-out problems to measure on")
    parser.add_argument("--minutes", type=float, help="stop after this; the same command goes on")
    parser.add_argument(
        "--install", action="store_true", help="then copy the model into the package"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the chosen action."""
    actions = {
        "build": build,
        "measure": measure,
        "everyday": everyday,
        "card": card,
        "describe": describe,
    }
    return actions[args.action](args)


def build(args: argparse.Namespace) -> int:
    """Builds, and says how to go on if the time was too short."""
    from crt.errors import ConfigError
    from crt.pocket import path
    from tools.pocket.build import Clock, Stopped, install
    from tools.pocket.build import build as make
    from tools.pocket.worlds import find_world

    world = find_world(args.world)
    out = args.out or Path(path(world.name).name)
    settings = {
        name: value
        for name in ("supervised", "second", "polish", "problems")
        if (value := getattr(args, name)) is not None
    }
    if any(value < 1 for value in settings.values()):
        raise ConfigError("supervised, second, polish and problems must each be at least 1")
    clock = Clock(lambda line: print(line, flush=True), args.minutes)
    try:
        make(world, out, args.seed, replace(world.plan, **settings), clock)
    except Stopped as stop:
        print(f"{stop}; the same command goes on from here")
        return 0
    print((out / "README.md").read_text())
    if args.install:
        print(f"copied to {install(out, path(world.name))}")
    return 0


def measure(args: argparse.Namespace) -> int:
    """Prints the table of styles."""
    from crt.pocket import load, path
    from tools.pocket import card
    from tools.pocket.measure import measure as measured
    from tools.pocket.worlds import find_world

    world = find_world(args.world)
    model, tokenizer = load(args.model or path(world.name))
    table = measured(world, model, tokenizer, args.problems, args.copies, args.seed)
    figures = json.loads(json.dumps(table.as_json()))
    print(json.dumps(figures, indent=1) if args.json else card.table(world, figures))
    return 0


def everyday(args: argparse.Namespace) -> int:
    """Prints how many everyday questions are right, wrong and refused."""
    from crt.pocket import load, path
    from tools.pocket.everyday import everyday as ask

    counts = ask(*load(args.model or path()), args.file, args.temperature, args.seed)
    total = counts.total()
    for outcome in ("right", "wrong", "refused"):
        print(f"{outcome}: {counts[outcome]} of {total} ({100 * counts[outcome] / total:.1f} %)")
    return 0


def model_file(args: argparse.Namespace, name: str) -> Path:
    """A file of the model that is meant; it must be there."""
    from crt.errors import DataError
    from crt.pocket import path
    from tools.pocket.worlds import find_world

    world = find_world(args.world)
    file = (args.model or path(world.name)) / name
    if not file.is_file():
        raise DataError(
            f"{file.parent} has no model card: build one with python -m tools.pocket build "
            f"--world {world.name}"
        )
    return file


def card(args: argparse.Namespace) -> int:
    """Prints the card that lies beside the weights."""
    print(model_file(args, "README.md").read_text())
    return 0


def describe(args: argparse.Namespace) -> int:
    """Writes what follows from the measured figures, as after a change of the card's text."""
    from tools.pocket.build import FIGURES, describe
    from tools.pocket.measure import derive
    from tools.pocket.worlds import find_world

    file = model_file(args, FIGURES)
    measured = json.loads(file.read_text())
    made = {"world": find_world(args.world).name, **measured["made"]}
    describe(file.parent, derive({**measured, "made": made}))
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """As `crt` itself: what a user did wrong is one sentence and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m tools.pocket", description=__doc__)
    add_arguments(parser)
    try:
        return run(parser.parse_args(words))
    except CrtError as error:
        print(f"tools.pocket: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
