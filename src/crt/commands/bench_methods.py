"""crt bench-methods: recipes × seeds on the same work, then the paper's tables."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from crt.errors import ConfigError

if TYPE_CHECKING:
    from crt.experiments.plan import Comparison

FORMS = ("terminal", "markdown", "md", "latex", "csv", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Each model has a comparison of its own. Run again with the same words, the command goes\n"
        "on where it was cut off; `tune` chooses settings by one rule; `--grid` adds a variant of\n"
        "each recipe per value; the folder of a comparison shows what is there."
    )
    add = parser.add_argument
    add("words", nargs="+", metavar="RECIPE", help="recipes, NAME=RECIPE, or a comparison's folder")
    add("--seeds", type=int, nargs="+", metavar="N", help="of training (1 2 3)")
    add("--seed", type=int, default=0, help="of tune, apart from the others (0)")
    add("--out", type=Path, help="the comparison's folder (runs/comparison)")
    add(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE",
        help="change a setting of all recipes (may be repeated)",
    )  # fmt: skip
    add("--grid", action="append", default=[], metavar="KEY=V1,V2", help="values to try")
    add("--grids", type=Path, help="a TOML file with a grid for each recipe")
    add("--tuned", type=Path, nargs="+", default=[], metavar="FILE", help="what tune has chosen")
    add("--jobs", type=int, help="processes at once on a CPU (one per core for small models)")
    add(
        "--devices",
        type=lambda text: text.split(","),
        default=[],
        help="GPUs, one process each: 0,1",
    )
    add("--dry-run", action="store_true", help="print the plan and its cost")
    add("--table", choices=FORMS, default="terminal", help="form of the tables (terminal)")
    add("--intervals", action="store_true", help="show 95 %% intervals")
    add("--export", type=Path, metavar="DIR", help="write data, tables and figure of a comparison")


def run(args: argparse.Namespace) -> int:
    """0 when everything is measured, 1 when some run failed, 143 when it was asked to end."""
    from crt.experiments.plan import find_comparisons, open_comparison
    from crt.experiments.results import export, show
    from crt.experiments.schedule import describe_plan
    from crt.sampling.workers import processes_for_model

    existing = find_comparisons(Path(args.words[0])) if len(args.words) == 1 else []
    if existing and args.export:
        print(*export(list(map(open_comparison, existing)), args.export), sep="\n")
        return 0
    if existing:
        show(list(map(open_comparison, existing)), args.table, args.intervals)
        return 0
    if args.export:
        raise ConfigError("--export takes the folder of a comparison that is there, and no recipe.")
    if args.jobs is not None and args.jobs < 1:
        raise ConfigError(f"--jobs {args.jobs}: at least 1")
    comparisons = plan(args)
    models = {job.config.model.name for comparison in comparisons for job in comparison.jobs}
    # one per core for small models; a large one has all cores as threads
    args.jobs = args.jobs or min(map(processes_for_model, models), default=1)
    if args.dry_run:
        for comparison in comparisons:
            print(*describe_plan(comparison, len(args.devices) or args.jobs), sep="\n")
        return 0
    return carry_out(comparisons, args)


def plan(args: argparse.Namespace) -> "list[Comparison]":
    from crt.experiments import plan

    kind = "tune" if args.words[0] == "tune" else "methods"
    words = args.words if kind == "methods" else args.words[1:]
    if not words:
        raise ConfigError(f"{kind} needs a recipe.")
    recipes = plan.name_recipes(words, args.overrides, args.tuned)
    grids = plan.load_grids(args.grid, args.grids, recipes)
    seeds = [args.seed] if kind == "tune" else list(dict.fromkeys(args.seeds or [1, 2, 3]))
    jobs = plan.make_jobs(kind, recipes, grids, seeds)
    return plan.plan_comparisons(args.out or Path("runs") / "comparison", kind, jobs)


def carry_out(comparisons: "list[Comparison]", args: argparse.Namespace) -> int:
    """Trains, evaluates and shows, one model after the other."""
    from crt.experiments.results import show
    from crt.experiments.schedule import Schedule

    code = 0
    for comparison in comparisons:
        with comparison.locked():
            schedule = Schedule(comparison, args.jobs, args.devices)
            if not schedule.carry_out():
                return 143
            show([comparison], args.table, args.intervals)
        for name, reason in schedule.failed.items():
            print(f"crt bench-methods: {name} failed: {reason}", file=sys.stderr)
            code = 1
    return code
