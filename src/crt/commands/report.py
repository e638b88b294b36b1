"""crt report: run and evaluation directories as one page, and as figures for print."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from crt.commands import note
from crt.errors import ConfigError

if TYPE_CHECKING:
    from crt.reporting.load import ReportData
    from crt.reporting.report import ReportOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "paths",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="runs (also going on), evaluations, series, comparisons of methods",
    )
    add("--out", type=Path, help="the page (DIR/report.html of the first)")
    add("--figures", type=Path, metavar="DIR", help="figures for print go here")
    add("--format", default="svg,pdf,png", help="of these figures (svg,pdf,png)")
    add(
        "--texts", type=float, default=4.0, metavar="MB", help="size of the answers in the page (4)"
    )
    add("--watch", action="store_true", help="write it again as a run goes on, until it ends")
    add("--every", type=float, default=10.0, help="seconds between looks (10)")


def run(args: argparse.Namespace) -> int:
    from crt.reporting.report import watch, write_report

    options = options_of(args)
    if args.watch:
        note(f"{options.out} is written again as the run goes on; Ctrl-C ends this.")
        data = watch(
            options, args.every, on_written=lambda data: note(_progress(data)), on_error=note
        )
    else:
        data = write_report(options)
    for warning in data.notes:
        note(warning, "warning: ")
    size = options.out.stat().st_size / 1e6
    print(f"{options.out} ({size:.1f} MB)")
    if options.figures is not None:
        print(f"{options.figures}: figures as {', '.join(options.formats)}")
    return 0


def options_of(args: argparse.Namespace) -> "ReportOptions":
    """The checked options of the command line."""
    from crt.reporting.report import ReportOptions, parse_formats

    if not 0 <= args.texts <= 200:
        raise ConfigError(f"--texts {args.texts:g} is not a number of megabytes, 0 to 200.")
    if not 0.2 <= args.every <= 3600:
        raise ConfigError(f"--every {args.every:g} is not a number of seconds, 0.2 to 3600.")
    return ReportOptions(
        paths=tuple(args.paths),
        out=args.out or args.paths[0] / "report.html",
        figures=args.figures,
        formats=parse_formats(args.format),
        budget=int(1e6 * args.texts),
    )


def _progress(data: "ReportData") -> str:
    runs = [f"{run.name}: step {len(run.steps)}" for run in data.runs]
    return "written; " + (", ".join(runs) or "no run")
