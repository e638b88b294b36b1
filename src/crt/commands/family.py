"""crt family: a run's verbosity levels, chosen from its evaluation and written with their proof."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from crt.commands import note
from crt.errors import ConfigError

if TYPE_CHECKING:
    from crt.levels.family import Family, LevelCertificate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("run", type=Path, help="a run's folder")
    add("--data", help="certify on NAME[/SPLIT][:COUNT],… (the run's own evaluation data)")
    add(
        "--choose-on",
        metavar="NAMES",
        help="choose on these, which --data does not hold (the run's validation data), or none",
    )
    add(
        "--shares",
        metavar="SHARE,…",
        help="weights between the base (0) and the recommended checkpoint (1), and beyond, that "
        "are measured too (0.25,0.5,0.75,1.25,1.5), or none",
    )
    add("--evaluation", help="a series that is there: evaluations/NAME of the run")
    add("--levels", type=int, default=6, help="at most so many, full included (6)")
    add("--tolerance", type=float, default=0.01, help="accuracy a level may lose (0.01: one point)")
    add("--all", action="store_true", help="offer levels without a passed certificate, too")
    add(
        "--front",
        action="store_true",
        help="only the Pareto front: no level that a shorter one equals",
    )
    add("--name", help="what clients call the family (the run's name)")
    add("--out", type=Path, help="the file (RUN/family.json)")


def run(args: argparse.Namespace) -> int:
    from crt.evaluation.evaluator import progress
    from crt.io import write_json
    from crt.levels.choose import (
        SHARES,
        FamilySettings,
        build_family,
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
    settings = FamilySettings(args.levels, args.tolerance, args.all, args.front, args.name)
    if args.out and not args.out.absolute().parent.is_dir():
        raise ConfigError(f"--out {args.out}: its folder is not there")
    opened = Run.open(args.run)
    chosen_on: tuple[str, ...] = ()
    if args.evaluation:
        folder = opened.path / "evaluations" / args.evaluation
    else:
        listed, shares = _listed(args.choose_on), _listed(args.shares)
        chosen_on = validation_data(opened) if listed is None else listed
        with progress(str(opened.path)) as tell:
            folder = measure_levels(
                opened,
                _listed(args.data) or (),
                chosen_on,
                SHARES if shares is None else _numbers(shares),
                settings,
                tell=tell,
                note=note,
            )
    file = args.out or opened.path / FAMILY
    family = build_family(opened, folder, file.absolute(), settings, chosen_on=chosen_on, note=note)
    write_json(file, family.model_dump(mode="json"))
    show(family)
    note(f"{file} is written; next: crt serve {file}")
    return 0


def _listed(text: str | None) -> tuple[str, ...] | None:
    """The names in an option; none of them for `none`, None where it was not given."""
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip() not in ("", "none"))


def _numbers(shares: tuple[str, ...]) -> tuple[float, ...]:
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
        share = "" if level.share is None else f" × {level.share:g}"
        table.add_row(
            level.name,
            f"{level.step or 'base'}{share}{'' if level.pareto else ' ·'}",
            f"{level.acc.value:.1f}",
            f"{level.acc.low:.1f} – {level.acc.high:.1f}",
            f"{level.len.value:.1f}",
            f"{level.saved.value:.0f} %" if level.saved else "",
            f"{level.r_zip.value:.3f}" if level.r_zip else "",
            certificate_cell(level.certificate),
        )
    console.print(table)
    problems = family.levels[-1].acc.problems
    chosen_on = family.measured.chosen_on
    chosen = "chosen by the same" if chosen_on is None else f"chosen on {chosen_on}"
    console.print(
        f"{problems} problems, {family.measured.rollouts} responses each; {chosen}. "
        f"The certificate's number is the lower bound "
        f"of the accuracy's difference from the base, in points, with 95 % confidence for all "
        f"{family.candidates} at once; it passes from {-100 * family.tolerance:g}."
    )
    if not all(level.pareto for level in family.levels):
        console.print("·: not on the Pareto front, longer and no more accurate (--front: without).")


def certificate_cell(certificate: "LevelCertificate | None") -> str:
    if certificate is None:
        return "reference"
    verdict = "passed" if certificate.passed else "not passed"
    return f"{verdict}, {100 * certificate.lower_bound:+.2f}"
