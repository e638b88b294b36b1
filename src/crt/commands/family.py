"""crt family: a run's verbosity levels, chosen from its evaluation and written with their proof."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crt.levels.family import Family, Level


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, measured on what, how many levels."""
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument(
        "--data", help="certify on NAME[/SPLIT][:COUNT],… (the run's own evaluation data)"
    )
    parser.add_argument(
        "--choose-on",
        metavar="NAMES",
        help="choose on these, which --data does not hold (the run's validation data), or none",
    )
    parser.add_argument(
        "--shares",
        metavar="SHARE,…",
        help="weights between the base (0) and the recommended checkpoint (1), and beyond, that "
        "are measured too (0.25,0.5,0.75,1.25,1.5), or none",
    )
    parser.add_argument("--evaluation", help="a series that is there: evaluations/NAME of the run")
    parser.add_argument("--levels", type=int, default=6, help="at most so many, full included (6)")
    parser.add_argument(
        "--tolerance", type=float, default=0.01, help="accuracy a level may lose (0.01: one point)"
    )
    parser.add_argument(
        "--all", action="store_true", help="offer levels without a passed certificate, too"
    )
    parser.add_argument(
        "--front",
        action="store_true",
        help="only the Pareto front: no level that a shorter one equals",
    )
    parser.add_argument("--name", help="what clients call the family (the run's name)")
    parser.add_argument("--out", type=Path, help="the file (RUN/family.json)")


def run(args: argparse.Namespace) -> int:
    """Evaluates what has to be, chooses, writes, and shows the levels."""
    from crt.errors import ConfigError
    from crt.evaluation.evaluator import progress
    from crt.io import write_json
    from crt.levels.choose import (
        SHARES,
        build_family,
        check_settings,
        measure_levels,
        validation_data,
    )
    from crt.levels.family import FAMILY
    from crt.run import Run

    if args.evaluation and (args.data or args.choose_on or args.shares):
        raise ConfigError(
            "--evaluation takes what is there; --data, --choose-on and --shares evaluate: give one "
            "or the others"
        )
    check_settings(args.levels, args.tolerance, args.name)
    if args.out and not args.out.absolute().parent.is_dir():
        raise ConfigError(f"--out {args.out}: its folder is not there")
    opened = Run.open(args.run)
    chosen_on = _listed(args.choose_on)
    if args.evaluation:
        chosen_on = ()
        folder = opened.path / "evaluations" / args.evaluation
    else:
        chosen_on = validation_data(opened) if chosen_on is None else chosen_on
        shares = _listed(args.shares)
        with progress(str(opened.path)) as tell:
            folder = measure_levels(
                opened,
                _listed(args.data) or (),
                chosen_on,
                SHARES if shares is None else _numbers(shares),
                levels=args.levels,
                tolerance=args.tolerance,
                front_only=args.front,
                tell=tell,
                note=_note,
            )
    file = args.out or opened.path / FAMILY
    family = build_family(
        opened,
        folder,
        file.absolute(),
        name=args.name,
        chosen_on=chosen_on,
        levels=args.levels,
        tolerance=args.tolerance,
        uncertified=args.all,
        front_only=args.front,
        note=_note,
    )
    write_json(file, family.model_dump(mode="json"))
    show(family)
    _note(f"{file} is written; next: crt serve {file}")
    return 0


def _listed(text: str | None) -> tuple[str, ...] | None:
    """The names in an option; none of them for `none`, None where it was not given."""
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip() not in ("", "none"))


def _numbers(shares: tuple[str, ...]) -> tuple[float, ...]:
    from crt.errors import ConfigError

    try:
        return tuple(sorted({float(share) for share in shares}))
    except ValueError:
        raise ConfigError(f"--shares {','.join(shares)} is not a list of numbers") from None


def show(family: "Family") -> None:
    """One row per level, and how they were measured."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    headings = ("level", "step", "Acc %", "95 %", "Len", "saved", "R_zip", "certificate")
    table = Table(*headings, box=box.SIMPLE_HEAD, padding=0)  # fits into 80 columns
    for level in family.levels:
        table.add_row(
            level.name,
            f"{place_of(level)}{'' if level.pareto else ' ·'}",
            f"{level.acc.value:.1f}",
            f"{level.acc.low:.1f} – {level.acc.high:.1f}",
            f"{level.len.value:.1f}",
            f"{level.saved.value:.0f} %" if level.saved else "",
            f"{level.r_zip.value:.3f}" if level.r_zip else "",
            certificate_cell(level.certificate),
        )
    console.print(table)
    problems = family.levels[-1].acc.problems
    measured = family.measured
    chosen = (
        "chosen by the same" if measured.chosen_on is None else f"chosen on {measured.chosen_on}"
    )
    console.print(
        f"{problems} problems, {measured.rollouts} responses each; {chosen}. "
        f"The certificate's number is the lower bound "
        f"of the accuracy's difference from the base, in points, with 95 % confidence for all "
        f"{family.candidates} at once; it passes from {-100 * family.tolerance:g}."
    )
    if not all(level.pareto for level in family.levels):
        console.print("·: not on the Pareto front, longer and no more accurate (--front: without).")


def place_of(level: "Level") -> str:
    """Where its weights are from: the base, a checkpoint, or so far from one to the other."""
    return f"{level.step or 'base'}{'' if level.share is None else f' × {level.share:g}'}"


def certificate_cell(certificate: Any) -> str:
    """`passed` or not, with the lower bound in points."""
    if certificate is None:
        return "reference"
    verdict = "passed" if certificate.passed else "not passed"
    return f"{verdict}, {100 * certificate.lower_bound:+.2f}"


def _note(sentence: str) -> None:
    from crt.evaluation.render import printable

    print(printable(sentence), file=sys.stderr)
