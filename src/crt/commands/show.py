"""crt show: the resolved configuration, and what would run."""

import argparse
import textwrap
from pathlib import Path

from crt.commands import add_overrides


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("recipe", type=Path, help="a recipe (.toml), or a run's config.json")
    add_overrides(parser)
    add("--json", action="store_true", help="only the configuration, as JSON")


def run(args: argparse.Namespace) -> int:
    from crt.recipes import load_recipe

    config = load_recipe(args.recipe, args.overrides)
    if args.json:
        print(config.model_dump_json(indent=2))
        return 0
    from crt.describe import as_toml, doubts, what_would_run

    print(as_toml(config))
    print("What would run")
    for line in what_would_run(config):
        print(textwrap.fill(line, 96, initial_indent="- ", subsequent_indent="  "))
    for doubt in doubts(config):
        print(textwrap.fill(f"Note: {doubt}", 96))
    return 0
