"""crt compare: the paper's tables for any set of evaluations."""

import argparse
import shutil
import textwrap
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from crt.commands import note
from crt.errors import ConfigError

if TYPE_CHECKING:
    from crt.evaluation.tables import Comparison

FORMATS = ("terminal", "markdown", "latex", "csv", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "evaluations",
        nargs="+",
        metavar="EVAL",
        help="folders of evaluations, or NAME=FOLDER, or a run's evaluations/<name>",
    )
    add("--base", help="name of the base (the first)")
    add("--format", choices=FORMATS, default="terminal", help="(terminal)")
    add("--intervals", action="store_true", help="show 95 %% intervals")
    add("--tolerance", type=float, default=1.0, help="of the certificate, in points (1)")
    add(
        "--contract",
        type=Path,
        metavar="RECIPE",
        help="a table of the lines of this recipe's contract, or of a run's config.json",
    )
    add("--anyway", action="store_true", help="compare evaluations that were made differently")


def run(args: argparse.Namespace) -> int:
    """Prints the tables; warnings go to standard error."""
    from crt.evaluation.contract import contract_table
    from crt.evaluation.tables import compare, load_all
    from crt.recipes import load_recipe

    if not 0 <= args.tolerance <= 100:
        raise ConfigError(f"--tolerance {args.tolerance:g} is not a number of points, 0 to 100")
    contract = load_recipe(args.contract).contract if args.contract else None
    if contract and not contract.lines:
        raise ConfigError(f"--contract {args.contract} has no [[contract.lines]]")
    comparison = compare(
        load_all(args.evaluations),
        base=args.base,
        anyway=args.anyway,
        tolerance=args.tolerance / 100,
        more=contract and partial(contract_table, contract),
    )
    print_comparison(comparison, args.format, args.intervals)
    return 0


def print_comparison(comparison: "Comparison", form: str, intervals: bool) -> None:
    """Prints the tables in one of the forms, and the warnings."""
    from crt.evaluation import render
    from crt.evaluation.tables import LEGEND

    for warning in comparison.warnings:
        note(warning, "warning: ")
    if form == "terminal":
        print(render.terminal(comparison.tables, intervals), end="")
        print(textwrap.fill(LEGEND, shutil.get_terminal_size().columns))
    elif form == "markdown":
        print(render.markdown(comparison.tables, intervals) + "\n" + LEGEND)
    elif form == "latex":
        print(render.latex(comparison.tables, intervals), end="")
    else:
        print({"csv": render.as_csv, "json": render.as_json}[form](comparison.tables), end="")
