"""crt bench-methods: recipes × seeds on the same work, then the paper's tables."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crt.experiments.plan import Comparison, Job, Kind

FORMS = ("terminal", "markdown", "md", "latex", "csv", "json")
USE = """\
  crt bench-methods RECIPE... --seeds 1 2 3 --out DIR      train, evaluate and compare;
                                                           each model has a comparison of its own
  crt bench-methods tune RECIPE... --grid KEY=V1,V2 …      choose settings by one rule
  crt bench-methods sensitivity RECIPE --grid KEY=V1,V2 …  turn one setting at a time
  crt bench-methods DIR --table md                         tables of what is there
  crt bench-methods DIR --export docs/results              data, tables and figure for a page
Run again with the same words, it goes on where it was cut off."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Recipes and seeds, or a comparison that is there."""
    parser.epilog, parser.formatter_class = USE, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "words", nargs="+", metavar="RECIPE", help="recipes, NAME=RECIPE, or a comparison's folder"
    )
    parser.add_argument("--seeds", type=int, nargs="+", metavar="N", help="of training (1 2 3)")
    parser.add_argument("--seed", type=int, default=0, help="of tune, apart from the others (0)")
    parser.add_argument("--out", type=Path, help="the comparison's folder (runs/comparison)")
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE",
        help="change a setting of all recipes (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--grid", action="append", default=[], metavar="KEY=V1,V2", help="values to try"
    )
    parser.add_argument("--grids", type=Path, help="a TOML file with a grid for each recipe")
    parser.add_argument(
        "--tuned", type=Path, nargs="+", default=[], metavar="FILE", help="what tune has chosen"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at once on a CPU (1)")
    parser.add_argument("--devices", help="GPUs, one process each: 0,1")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and its cost")
    parser.add_argument("--table", choices=FORMS, help="form of the tables (terminal)")
    parser.add_argument("--intervals", action="store_true", help="show 95 %% intervals")
    parser.add_argument(
        "--export", type=Path, metavar="DIR", help="write data, tables and figure of a comparison"
    )


def run(args: argparse.Namespace) -> int:
    """0 when everything is measured, 1 when some run failed, 143 when it was asked to end."""
    from crt.errors import ConfigError
    from crt.experiments.plan import existing, opened, planned, write
    from crt.experiments.progress import dry_run

    there = existing(Path(args.words[0])) if len(args.words) == 1 else []
    if there and args.export:
        for path in there:
            exported(opened(path), args.export / path.name if len(there) > 1 else args.export)
        return 0
    if there:
        return show_all([opened(path) for path in there], args)
    if args.export:
        raise ConfigError("--export takes the folder of a comparison that is there, and no recipe.")
    if args.jobs < 1:
        raise ConfigError(f"--jobs {args.jobs}: at least 1")
    kind, groups = groups_of(args)
    comparisons = [planned(path, kind, jobs) for path, jobs in groups.items()]
    if args.dry_run:
        at_once = len(devices_of(args)) or args.jobs
        print("\n".join(line for each in comparisons for line in dry_run(each, at_once)))
        return 0
    code = 0
    for comparison in comparisons:  # one model after the other
        comparison.path.mkdir(parents=True, exist_ok=True)
        with comparison.locked():
            write(comparison)
            code = max(code, carry_out(comparison, args))
        if code == 143:
            break
    return code


def groups_of(args: argparse.Namespace) -> "tuple[Kind, dict[Path, list[Job]]]":
    """The runs of each comparison by its directory; recipes of several models are several."""
    from crt.experiments.plan import folders
    from crt.experiments.variants import by_model

    kind, jobs = jobs_of(args)
    out = args.out or Path("runs") / "comparison"
    if kind != "methods":
        return kind, {out: jobs}
    groups = by_model(jobs)
    paths = folders(out, list(groups))
    return kind, {paths[model]: found for model, found in groups.items()}


def jobs_of(args: argparse.Namespace) -> "tuple[Kind, list[Job]]":
    """What the words ask for."""
    from crt.errors import ConfigError
    from crt.experiments.grid import from_file, parsed
    from crt.experiments.variants import method_jobs, named, sensitivity_jobs, tune_jobs

    kind = args.words[0] if args.words[0] in ("tune", "sensitivity") else "methods"
    words = args.words if kind == "methods" else args.words[1:]
    if not words:
        raise ConfigError(f"{kind} needs a recipe.")
    recipes = named(words, args.overrides, args.tuned)
    seeds = list(dict.fromkeys(args.seeds or [1, 2, 3]))
    if kind == "methods":
        if args.grid or args.grids:
            raise ConfigError(
                "--grid belongs to `tune` and `sensitivity`: put it before the recipe."
            )
        return "methods", method_jobs(recipes, seeds)
    grid = parsed(args.grid)
    own = from_file(args.grids) if args.grids else {}
    unknown = [name for name in own if name not in recipes]
    if unknown:
        raise ConfigError(f"{args.grids} has a grid for {unknown[0]!r}, which is no recipe here.")
    grids = {name: {**own.get(name, {}), **grid} for name in recipes}
    if kind == "sensitivity":
        return "sensitivity", sensitivity_jobs(recipes, grids, seeds)
    return "tune", tune_jobs(recipes, grids, args.seed)


def devices_of(args: argparse.Namespace) -> list[str]:
    """GPUs by number."""
    return [each.strip() for each in (args.devices or "").split(",") if each.strip()]


def carry_out(comparison: "Comparison", args: argparse.Namespace) -> int:
    """Trains, evaluates, writes and shows."""
    from crt.experiments.results import write_results
    from crt.experiments.schedule import Schedule

    def write() -> None:
        write_results(comparison)

    def say(line: str) -> None:
        print(line, flush=True)

    schedule = Schedule(comparison, args.jobs, devices_of(args), say, write)
    done = schedule.carry_out()
    if not done:
        print(f"Stopped; everything so far is in {comparison.path}. The same command goes on.")
        return 143
    show(comparison, args)
    for name, why in schedule.failed.items():
        print(f"crt bench-methods: {name} failed: {why}", file=sys.stderr)
    return 1 if schedule.failed else 0


def exported(comparison: "Comparison", folder: Path) -> int:
    """Data, tables and figure of what is there."""
    from crt.experiments.export import export

    for path in export(comparison, folder):
        print(path)
    return 0


def show_all(comparisons: "Sequence[Comparison]", args: argparse.Namespace) -> int:
    """The tables of each model, under its name if there are several."""
    from crt.errors import ConfigError

    if len(comparisons) > 1 and args.table in ("csv", "json"):
        names = ", ".join(str(each.path) for each in comparisons)
        raise ConfigError(f"--table {args.table} takes one model's comparison: {names}.")
    for comparison in comparisons:
        if len(comparisons) > 1:
            print(f"# {comparison.jobs[0].config.model.name}\n")
        show(comparison, args)
    return 0


def show(comparison: "Comparison", args: argparse.Namespace) -> int:
    """The tables from the files as they are."""
    if comparison.kind == "tune":
        from crt.experiments.tune import TUNED, write_tuned

        print("\n".join(write_tuned(comparison)))
        print(f"# everything that was tried is in {comparison.path / TUNED}")
        return 0
    from crt.experiments.results import shown, tables_of, write_results

    found = write_results(comparison)
    built = tables_of(found)
    if built:
        print(shown(built, args.table or "terminal", args.intervals), end="")
    for missing in found.missing:
        print(f"not measured: {missing}", file=sys.stderr)
    return 0
