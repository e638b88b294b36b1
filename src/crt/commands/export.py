"""crt export: one level as a model folder with its card."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which level, from where, to where."""
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("--family", type=Path, help="the family (RUN/family.json)")
    parser.add_argument("--level", required=True, help="concise, balanced, …, full")
    parser.add_argument("--to", type=Path, required=True, help="a folder that is not there yet")


def run(args: argparse.Namespace) -> int:
    """Writes the folder and says what is in it."""
    from crt.levels.export import export_level
    from crt.levels.family import family_file, read_family
    from crt.run import Run

    run = Run.open(args.run)
    file = family_file(args.family or args.run).absolute()
    family = read_family(file)
    level = export_level(run, family, file, args.level, args.to)
    certified = "certified" if level.certified else "without certificate"
    print(
        f"{args.to}: {family.name}:{level.name}, {level.acc.value:.1f} % right with "
        f"{level.len.value:.1f} tokens, {certified}; the card is {args.to / 'README.md'}."
    )
    return 0
