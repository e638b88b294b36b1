"""crt report: run and evaluation directories as one page, and as figures for print."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crt.report.sources import Material
    from crt.report.write import Order


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to read, what to write."""
    parser.add_argument(
        "places",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="runs (also going on), evaluations, series, comparisons of methods",
    )
    parser.add_argument("--out", type=Path, help="the page (DIR/report.html of the first)")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="figures for print go here")
    parser.add_argument("--format", default="svg,pdf,png", help="of these figures (svg,pdf,png)")
    parser.add_argument(
        "--texts", type=float, default=4.0, metavar="MB", help="room for answers in the page (4)"
    )
    parser.add_argument(
        "--watch", action="store_true", help="write it again as a run goes on, until it ends"
    )
    parser.add_argument("--every", type=float, default=10.0, help="seconds between looks (10)")


def run(args: argparse.Namespace) -> int:
    """Writes the page and says where it is."""
    from crt.report.write import watch, write

    order = order_of(args)
    if args.watch:
        say(f"{order.out} is written again as the run goes on; Ctrl-C ends this.")
        material = watch(order, args.every, lambda found: say(_standing(found)), say)
    else:
        material = write(order)
    for note in material.notes:
        say(f"warning: {note}")
    size = order.out.stat().st_size / 1e6
    print(f"{order.out} ({size:.1f} MB)")
    if order.figures is not None:
        print(f"{order.figures}: figures as {', '.join(order.formats)}")
    return 0


def order_of(args: argparse.Namespace) -> "Order":
    """What was asked for, or a sentence about what cannot be."""
    from crt.errors import ConfigError
    from crt.report.write import Order, formats_of

    if not 0 <= args.texts <= 200:
        raise ConfigError(f"--texts {args.texts:g} is not a number of megabytes, 0 to 200.")
    if not 0.2 <= args.every <= 3600:
        raise ConfigError(f"--every {args.every:g} is not a number of seconds, 0.2 to 3600.")
    return Order(
        places=tuple(args.places),
        out=args.out or args.places[0] / "report.html",
        figures=args.figures,
        formats=formats_of(args.format),
        budget=int(1e6 * args.texts),
    )


def say(sentence: str) -> None:
    """To standard error, safe to print."""
    from crt.evaluate.render import printable

    print(printable(sentence), file=sys.stderr)


def _standing(material: "Material") -> str:
    """Where the runs are."""
    told = [f"{run.name}: step {len(run.steps)}" for run in material.runs]
    return "written; " + (", ".join(told) or "no run")
