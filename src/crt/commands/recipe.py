"""crt recipe: the recipes inside the package, to look at and to start from."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="<action>", required=True)
    actions.add_parser("list", help="names, and what each is for")
    copy = actions.add_parser("copy", help="write one to a file, to change it")
    copy.add_argument("name", help="as `crt recipe list` prints it")
    copy.add_argument("--out", type=Path, help="the file (NAME.toml, here)")


def run(args: argparse.Namespace) -> int:
    from crt.recipes import copy_recipe, list_recipes

    if args.action == "list":
        print(*list_recipes(), sep="\n")
        return 0
    target = args.out or Path(f"{Path(args.name).name}.toml")
    copy_recipe(args.name, target)
    print(f"{target} is written. Next: crt show {target}")
    return 0
