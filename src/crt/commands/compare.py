"""crt compare: the paper's tables for any set of evaluations."""

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crt.evaluation.tables import Comparison

FORMATS = ("terminal", "markdown", "latex", "csv", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Evaluations, the base first."""
    parser.add_argument(
        "evaluations",
        nargs="+",
        metavar="EVAL",
        help="folders of evaluations, or NAME=FOLDER, or a run's evaluations/<name>",
    )
    parser.add_argument("--base", help="name of the base (the first)")
    parser.add_argument("--format", choices=FORMATS, default="terminal")
    parser.add_argument("--intervals", action="store_true", help="show 95 %% intervals")
    parser.add_argument(
        "--tolerance", type=float, default=1.0, help="of the certificate, in points (1)"
    )
    parser.add_argument(
        "--anyway", action="store_true", help="compare evaluations that were made differently"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the tables; warnings go to standard error."""
    from crt.errors import ConfigError
    from crt.evaluation.tables import compare, load_all

    if not 0 <= args.tolerance <= 100:
        raise ConfigError(f"--tolerance {args.tolerance:g} is not a number of points, 0 to 100")
    found = compare(
        load_all(args.evaluations),
        base=args.base,
        anyway=args.anyway,
        tolerance=args.tolerance / 100,
    )
    show_tables(found, args.format, args.intervals)
    return 0


def screen() -> tuple[bool, int | None]:
    """Whether there are colours, and how wide it is: a pipe is wide enough for anything."""
    return (True, None) if sys.stdout.isatty() else (False, 240)


def show_tables(found: "Comparison", form: str, intervals: bool) -> None:
    """Prints in one of the forms."""
    from crt.evaluation import render
    from crt.evaluation.tables import LEGEND

    for warning in found.warnings:
        print(f"warning: {render.printable(warning)}", file=sys.stderr)
    if form == "terminal":
        print(render.terminal(found.tables, intervals, *screen()), end="")
        print(LEGEND)
    elif form == "markdown":
        print(render.markdown(found.tables, intervals) + "\n" + LEGEND)
    elif form == "latex":
        print(render.latex(found.tables, intervals), end="")
    else:
        print({"csv": render.as_csv, "json": render.as_json}[form](found.tables), end="")
