"""Every method at one setting in many worlds: who keeps accuracy without being tuned?

    python -m tools.one_setting run                       hours; killed at any moment, it goes on
    python -m tools.one_setting run crt crt_1s --seeds 1
    python -m tools.one_setting page                      page and figure from the results alone

A method's setting is that of its recipe in recipes/methods: its paper's, with lengths in tokens
divided by 30, since the pocket models answer with about a thirtieth of the tokens. Nothing is
chosen in the worlds that count; `pocket` with all levels is what the divisor was chosen for, and
is left out of the averages. Results are rows in docs/results/worlds.json. A run that has its rows
there is not made again, so the work may go on elsewhere with that file alone.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crt.algorithm.metrics import AES2, aes
from crt.errors import CrtError
from crt.experiments.collect import Result, collect
from crt.experiments.plan import Job, Recipe, open_comparison, plan_comparison
from crt.experiments.schedule import Schedule
from crt.io import read_json, write_json, write_text
from crt.pocket import level_of, make_problems, path
from tools.pocket.measure import best, front, mean, styles_of

RESULTS = Path("docs/results/worlds.json")
PAGE, PICTURE = Path("docs/results/worlds.md"), Path("docs/images/worlds.png")
RECIPES = Path("recipes/methods")
TEST, ROLLOUTS = 2000, 2
WORSE = -1.0  # points: a run below this is worse than its base
LEFT_OUT = "pocket"
SETTINGS = (  # of all runs; the rest is the recipes'
    "schedule.tokens=700000",
    "schedule.steps=400",
    "schedule.save_every=15",
    "validation.problems=250",
    "validation.finalists=3",
    f"evaluation.rollouts={ROLLOUTS}",
)
METHODS = (
    *("crt", "crt_1s", "crt_paper", "crt_1s_paper", "primal_dual"),
    *("guarded_shorter_better", "guarded_kimi", "length_only", "grpo"),
    *("thinkprune", "l1_max", "o1_pruner", "shorter_better", "acpo", "kimi", "arora_zanette"),
    *("alp", "dler", "laconic", "prime_rl", "intern_s2", "a_dlp", "short_rl", "laser", "dot"),
)

Row = dict[str, Any]


@dataclass(frozen=True)
class World:
    """Problems of some levels of a pocket model."""

    model: str
    levels: tuple[int, ...] = ()  # all, if none is named

    @property
    def data(self) -> str:
        """The data set's name."""
        return self.model + (f"@{','.join(map(str, self.levels))}" if self.levels else "")

    def settings(self) -> tuple[str, ...]:
        """Overrides of a recipe."""
        return (
            f"model.name={self.model}",
            f'data.train=["{self.data}:4000"]',
            f'validation.data=["{self.data}/validation"]',
            f'evaluation.data=["{self.data}/test:{TEST}"]',
        )


WORLDS = {
    LEFT_OUT: World("pocket"),
    "stories": World("pocket", (1, 2)),
    "long stories": World("pocket", (3, 4)),
    "chunks": World("pocket:chunks"),
    "long chunks": World("pocket:chunks", (3, 4)),
    "checks": World("pocket:checks"),
    "long checks": World("pocket:checks", (3, 4)),
}


# ---- The runs


def jobs_of(world: World, methods: Sequence[str], seed: int) -> list[Job]:
    """One run per method, all on the same work."""
    settings = (*SETTINGS, *world.settings())
    return [Recipe(name, RECIPES / f"{name}.toml", settings).job(seed) for name in methods]


def carry_out(
    out: Path, worlds: Sequence[str], methods: Sequence[str], seeds: Sequence[int], at_once: int
) -> bool:
    """Seed by seed and world by world, so that every method has its first results early."""
    for seed in seeds:
        for name in worlds:
            harvest(out, name)
            done = {(r["world"], r["method"], r["seed"]) for r in rows_so_far()}
            missing = [m for m in methods if (name, m, seed) not in done]
            if not missing:
                continue
            jobs = jobs_of(WORLDS[name], missing, seed)
            comparison = plan_comparison(folder(out, name, seed), "methods", jobs)
            with comparison.locked():
                whole = Schedule(comparison, at_once, []).carry_out()
            harvest(out, name)
            if not whole:
                return False
    return True


def folder(out: Path, world: str, seed: int) -> Path:
    """Of the runs of a world with a seed."""
    return out / world.replace(" ", "-") / f"seed{seed}"


def harvest(out: Path, world: str) -> None:
    """Adds what is measured and not yet among the results."""
    rows = {key_of(row): row for row in rows_so_far()}
    for place in sorted((out / world.replace(" ", "-")).glob("seed*")):
        if (place / "comparison.json").is_file():
            for row in measured(world, place):
                rows.setdefault(key_of(row), row)
    if rows:
        write_json(RESULTS, sorted(rows.values(), key=key_of))


def measured(world: str, place: Path) -> list[Row]:
    """The rows of a comparison's runs that are measured whole, with the optimum of their world."""
    results = collect(open_comparison(place)).results
    found = Counter(result.job.name for result in results)
    whole = [r for r in results if found[r.job.name] == len(r.outcome.checkpoints)]
    return [row_of(world, result) for result in whole]


def row_of(world: str, result: Result) -> Row:
    """What is published of a run's checkpoint."""
    full = result.row()
    names = (
        *("acc", "base_acc", "len", "base_len", "aes2", "ad", "ap", "ai", "r_zip"),
        *("feasible", "outcome", "steps", "tokens", "cpu_minutes"),
    )
    base_acc = result.base["acc"].value
    lengths = {"optimum_len": optimum_length(WORLDS[world], base_acc)}
    head = {"world": world, "method": result.job.method, "seed": result.job.seed}
    error = float(np.std(result.metrics["acc"].resamples - result.base["acc"].resamples))
    return {
        **head,
        "checkpoint": result.checkpoint,
        **{name: rounded(full[name]) for name in names},
        **lengths,
        "error": round(error, 3),
    }


def rounded(value: Any) -> Any:
    """A figure to four digits after the point."""
    return round(value, 4) if isinstance(value, float) else value


def key_of(row: Row) -> tuple[Any, ...]:
    """A row's place."""
    return (list(WORLDS).index(row["world"]), row["method"], row["seed"], row["checkpoint"])


def rows_so_far() -> list[Row]:
    """What is published."""
    return read_json(RESULTS) if RESULTS.is_file() else []


def optimum_length(world: World, accuracy: float) -> float:
    """Mean tokens of the shortest choice of styles, level by level, that is so often right."""
    styles = styles_of(json.loads((path(world.model) / "figures.json").read_text()))
    levels = [level_of(item) for item in make_problems(world.model, "test", TEST, 0, world.levels)]
    weights = {n: mean(level == n for level in levels) for n in sorted(set(levels))}
    corners = front(styles, weights)
    return round(best(corners, min(accuracy, corners[-1].accuracy)).length, 2)


# ---- What they say


def saving(row: Row) -> float:
    """The share of the saving that the optimum has."""
    return (row["base_len"] - row["len"]) / (row["base_len"] - row["optimum_len"])


def points(row: Row) -> float:
    """Accuracy against the base."""
    return row["acc"] - row["base_acc"]


def score(row: Row) -> float:
    """AES2, from the means."""
    return float(aes(row["acc"], row["len"], row["base_acc"], row["base_len"], AES2))


def by_world(rows: Iterable[Row], value: Callable[[Row], float]) -> dict[str, float]:
    """World → the mean over seeds."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["world"], []).append(value(row))
    return {world: float(np.mean(values)) for world, values in found.items()}


def summary(rows: Sequence[Row]) -> Row:
    """A method over worlds and seeds; every world weighs the same."""
    gained = [points(row) for row in rows]
    scores = by_world(rows, score)
    return {
        "method": rows[0]["method"],
        "runs": len(rows),
        "aes2": float(np.mean(list(scores.values()))),
        "worst": min(scores.values()),
        "points": float(np.mean(list(by_world(rows, points).values()))),
        "lowest": min(gained),
        "kept": float(np.mean([value >= WORSE for value in gained])),
        "saved": float(np.mean(list(by_world(rows, saving).values()))),
        "ad": float(np.mean([row["ad"] or 0.0 for row in rows])),
    }


def summaries(rows: Sequence[Row], checkpoint: str) -> list[Row]:
    """Methods by their worst world, without the world that is left out."""
    counted = [r for r in rows if r["checkpoint"] == checkpoint and r["world"] != LEFT_OUT]
    methods = dict.fromkeys(row["method"] for row in counted)
    found = [summary([row for row in counted if row["method"] == method]) for method in methods]
    return sorted(found, key=lambda row: -row["worst"])


SUMMARY_HEAD = (
    "| method | runs | AES₂ | worst world | points | lowest run | kept | saved | AD % |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def summary_table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    lines = [
        f"| {r['method']} | {r['runs']} | {r['aes2']:+.2f} | {r['worst']:+.2f} "
        f"| {r['points']:+.1f} | {r['lowest']:+.1f} | {r['kept']:.0%} | {r['saved']:.0%} "
        f"| {r['ad']:.0f} |"
        for r in rows
    ]
    return "\n".join([SUMMARY_HEAD, *lines])


def world_table(rows: Sequence[Row], checkpoint: str, order: Sequence[str]) -> str:
    """Points and tokens of every method in every world, under base and optimum."""
    rows = [row for row in rows if row["checkpoint"] == checkpoint]
    worlds = [name for name in WORLDS if any(row["world"] == name for row in rows)]

    def cells(values: Sequence[Row], form: Callable[[Sequence[Row]], str]) -> str:
        of_world = [[row for row in values if row["world"] == name] for name in worlds]
        return " | ".join(form(each) if each else "–" for each in of_world)

    def average(each: Sequence[Row], name: str) -> float:
        return float(np.mean([row[name] for row in each]))

    lines = [
        f"| | {' | '.join(worlds)} |",
        "|---" * (len(worlds) + 1) + "|",
        "| base | "
        + cells(rows, lambda each: f"{average(each, 'base_acc'):.1f} %, "
                f"{average(each, 'base_len'):.0f}")
        + " |",
        "| optimum | " + cells(rows, lambda each: f"+0.0, {average(each, 'optimum_len'):.0f}")
        + " |",
    ]  # fmt: skip
    for method in order:
        own = [row for row in rows if row["method"] == method]
        form = cells(
            own,
            lambda each: (
                f"{float(np.mean([points(row) for row in each])):+.1f}, {average(each, 'len'):.0f}"
            ),
        )
        lines.append(f"| {method} | {form} |")
    return "\n".join(lines)


def page(rows: Sequence[Row]) -> str:
    """The page; what it says in words stands in its template."""
    last, chosen = summaries(rows, "last"), summaries(rows, "recommended")
    seeds = sorted({row["seed"] for row in rows})
    return "\n\n".join(
        [
            "# One setting, many worlds",
            INTRODUCTION.format(
                worlds=len({row["world"] for row in rows} - {LEFT_OUT}),
                seeds=", ".join(map(str, seeds)),
                error=float(np.mean([row["error"] for row in rows])),
            ),
            "## The last iterate",
            summary_table(last),
            "![Accuracy against saving](../images/worlds.png)",
            "## The recommended checkpoint",
            summary_table(chosen),
            "## World by world",
            "Points of accuracy against the base, and tokens; last iterates.",
            world_table(rows, "last", [row["method"] for row in last]),
            AGAIN,
        ]
    )


INTRODUCTION = """\
Every method has one setting everywhere: its paper's, with lengths in tokens divided by 30. Each run
has 700,000 training tokens. It is measured on 2,000 test problems with 2 answers each. There are
{worlds} worlds and the seeds {seeds}. The world `pocket`, by whose lengths the divisor was chosen,
is shown but not counted.

* **kept**: the share of runs at most one point below the base. The error of one run's difference is
  {error:.1f} points, so an equal model is called worse now and then.
* **saved**: the share of the possible saving, which ends at the [optimum](../concepts/worlds.md).
  Above 100 % tokens were saved that accuracy paid for, or training made a style better.
* **worst world**: the lowest AES₂ of any world, by which the rows are sorted."""
AGAIN = """\
## Again

```console
$ python -m tools.one_setting run     # hours
$ python -m tools.one_setting page
```

All rows are in [worlds.json](worlds.json)."""


def picture(rows: Sequence[Row]) -> None:
    """Accuracy against saving, a point per method."""
    from crt.reporting import style
    from crt.reporting.report import save_figure

    found = [
        {**row, "saved_percent": 100 * row["saved"], "group": row["method"], "order": 0}
        for row in summaries(rows, "last")
    ]
    x = style.axis(
        "saved_percent",
        "share of the possible saving, %",
        domain=around(r["saved_percent"] for r in found),
    )
    y = style.axis(
        "points", "accuracy against the base, points", domain=around(r["points"] for r in found)
    )
    labels = style.place_labels([{**r, "label": r["method"]} for r in found], found, x, y, 380)
    dots = style.layer(style.mark("point", filled=True, size=80, color=style.BLUE), found)
    base = style.across("points", data=[{"points": 0.0}])
    spec = style.panel(380, [base, *style.label_layers(labels), dots], found, x=x, y=y)
    title = "Mean over worlds and seeds"
    save_figure(style.Figure("worlds", title, spec, ""), PICTURE)


def around(values: Iterable[float]) -> list[float]:
    """From below the lowest to above the highest, with zero inside."""
    low, high = min(0.0, *(found := list(values))), max(0.0, *found)
    margin = 0.1 * (high - low) or 1.0
    return [low - margin, high + margin]


def main(words: Sequence[str] | None = None) -> int:
    """0 when all is done, 143 when it was asked to end."""
    parser = argparse.ArgumentParser(prog="python -m tools.one_setting", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run", help="make what is missing")
    run.add_argument("methods", nargs="*", help="all, if none is named")
    run.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    run.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    run.add_argument("--out", type=Path, default=Path("runs/worlds"))
    run.add_argument("--jobs", type=int, default=2, help="runs at once (2)")
    actions.add_parser("page", help="write page and figure")
    args = parser.parse_args(words)
    if args.action == "page":
        rows = rows_so_far()
        write_text(PAGE, page(rows) + "\n")
        picture(rows)
        return 0
    if unknown := set(args.methods) - {file.stem for file in RECIPES.glob("*.toml")}:
        parser.error(f"there is no recipes/methods/{unknown.pop()}.toml")
    done = carry_out(args.out, args.worlds, args.methods or METHODS, args.seeds, args.jobs)
    return 0 if done else 143


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CrtError as error:
        print(f"one_setting: {error}", file=sys.stderr)
        sys.exit(2)
