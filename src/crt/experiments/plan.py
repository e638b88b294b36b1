"""A comparison: recipes × seeds × grids become runs that do the same work, in one directory."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

from crt.algorithm.registry import name_of
from crt.config import RunConfig
from crt.errors import ConfigError, DataError
from crt.io import lock_folder, make_folder, read_json, write_json
from crt.recipes import load_recipe, parse_value, read_table

COMPARISON, PLAN, RUNS = "comparison.json", "plan", "runs"
EVALUATIONS, LOGS, TIMES = "evaluations", "logs", "times.jsonl"
# Settings, or sections of them, in which compared recipes must agree.
SAME_WORK = (
    "engine", "model", "data", "prompt", "sampling.max_tokens", "sampling.temperature",
    "sampling.top_p", "grading", "reference", "validation", "evaluation", "schedule.tokens",
    "schedule.save_every",
)  # fmt: skip
SAME_STEPS = ("schedule.steps", "schedule.problems_per_step", "sampling.group_size")
STATED_BUDGET = ("prompt.budget", "prompt.budget_tokens")  # the method's own, like its settings

Kind = Literal["methods", "tune"]
Grid = dict[str, list[Any]]  # setting → values; settings joined by + have the same value
Values = Mapping[str, Any]  # setting → the value that a run tries


@dataclass(frozen=True)
class Job:
    """One run: a recipe with a seed; `method` is its row in the tables."""

    method: str
    recipe: str  # by name; in a grid several methods come from one
    config: RunConfig
    values: Values = field(default_factory=dict[str, Any])  # tried in a grid

    @property
    def name(self) -> str:
        return f"{file_name(self.method)}-seed{self.seed}"

    @property
    def seed(self) -> int:
        """The seed of training and of the evaluation."""
        return self.config.seed

    @property
    def type(self) -> str:
        """The method's name in a recipe."""
        return name_of(self.config.method)


@dataclass(frozen=True)
class Recipe:
    """A recipe's file under the name it has in the comparison, with its overrides."""

    name: str
    path: Path
    overrides: tuple[str, ...]

    def job(self, seed: int, values: Values | None = None) -> Job:
        """A run of it; a variant's method is named after the recipe and what is different."""
        values = values or {}
        plain = (f"{key}={v if isinstance(v, str) else toml(v)}" for key, v in values.items())
        method = " ".join([self.name, *plain])
        config = load_recipe(self.path, [*self.overrides, *overrides(values), f"seed={seed}"])
        return Job(method, self.name, config.model_copy(update={"name": method}), values)


@dataclass(frozen=True)
class Comparison:
    path: Path
    kind: Kind
    jobs: tuple[Job, ...]

    @property
    def seeds(self) -> list[int]:
        return list(dict.fromkeys(job.seed for job in self.jobs))

    @property
    def methods(self) -> dict[str, list[Job]]:
        """Row of the tables → its runs."""
        return group_jobs(self.jobs, lambda job: job.method)

    def recipe(self, job: Job) -> Path:
        """The resolved configuration that the run is begun from."""
        return self.path / PLAN / f"{job.name}.json"

    def run(self, job: Job) -> Path:
        return self.path / RUNS / job.name

    def evaluation(self, job: Job, step: int) -> Path:
        return self.path / EVALUATIONS / job.name / f"step-{step:04d}"

    def base(self, seed: int) -> Path:
        return self.path / EVALUATIONS / f"base-seed{seed}"

    def locked(self) -> AbstractContextManager[None]:
        """Only one process may carry a comparison out; its directory is made."""
        make_folder(self.path)
        return lock_folder(self.path, f"{self.path} is being carried out by another process.")


# Recipes and grids, as the command line and files give them


def name_recipes(
    words: Sequence[str], sets: Sequence[str], tuned: Sequence[Path]
) -> dict[str, Recipe]:
    """Recipes by their own name or NAME=FILE; tuned settings go to the recipe they are for."""
    chosen = {name: values for path in tuned for name, values in _read_tuned(path).items()}
    recipes: dict[str, Recipe] = {}
    for word in words:
        name, equals, file = word.partition("=")
        if not name or not equals or Path(word).exists():
            name, file = load_recipe(Path(word), sets).name, word
        if name in recipes:
            raise ConfigError(f"two recipes are called {name!r}: give names, NAME={file}.")
        recipes[name] = Recipe(name, Path(file), (*overrides(chosen.pop(name, {})), *sets))
    if chosen:
        raise ConfigError(f"--tuned has settings for {', '.join(chosen)}, which is no recipe here.")
    return recipes


def _read_tuned(path: Path) -> dict[str, Values]:
    """Recipe → the settings that `tune` chose."""
    try:
        recipes = read_json(path)["recipes"]
        return {name: dict(recipe["chosen"]) for name, recipe in recipes.items()}
    except (KeyError, TypeError, AttributeError, ValueError):
        raise ConfigError(f"{path} was not written by `crt bench-methods tune`.") from None


def load_grids(
    words: Sequence[str], file: Path | None, recipes: Collection[str]
) -> dict[str, Grid]:
    """Recipe → its grid: its table in the file, and what `--grid` gives to all."""
    own = read_grids(file) if file else {}
    unknown = [name for name in own if name not in recipes]
    if unknown:
        raise ConfigError(f"{file} has a grid for {unknown[0]!r}, which is no recipe here.")
    common = parse_grid(words)
    return {name: {**own.get(name, {}), **common} for name in recipes}


def parse_grid(words: Sequence[str]) -> Grid:
    """`--grid section.key=v1,v2,…`; values are TOML, bare words are text."""
    grid: Grid = {}
    for word in words:
        key, _, values = (part.strip() for part in word.partition("="))
        if not key or not values:
            raise ConfigError(f"--grid {word}: write it as section.key=value,value,….")
        if key in grid:
            raise ConfigError(f"--grid {key} is given twice: name all its values in one.")
        listed = parse_value(f"[{values}]")
        if isinstance(listed, str):  # bare words are not a list of TOML
            listed = [parse_value(text) for text in values.split(",")]
        grid[key] = listed
    return grid


def read_grids(path: Path) -> dict[str, Grid]:
    """Recipe's name → its grid, from a TOML file: `[name]` and `"section.key" = [v1, v2]`."""
    grids = read_table(path)
    for name, grid in grids.items():
        if not isinstance(grid, dict) or not all(isinstance(v, list) and v for v in grid.values()):
            raise ConfigError(
                f'{path}: [{name}] is not a grid; write "section.key" = [value, value] in it.'
            )
    return grids


def overrides(values: Values) -> list[str]:
    """The values as `--set` takes them."""
    return [f"{key}={toml(value)}" for keys, value in values.items() for key in split_keys(keys)]


def split_keys(keys: str) -> list[str]:
    """`one.key+other.key` is two settings that have the same value."""
    return [key.strip() for key in keys.split("+")]


def toml(value: Any) -> str:
    """A value as it is written in a recipe; TOML writes plain values and lists as JSON does."""
    return json.dumps(value, ensure_ascii=False, default=str)


# From recipes to runs


def make_jobs(
    kind: Kind, recipes: Mapping[str, Recipe], grids: Mapping[str, Grid], seeds: Sequence[int]
) -> list[Job]:
    """Recipes × seeds × variants, all on the same work; methods are compared within a model.

    `tune` tries every combination of a grid, a comparison the recipe and then each value alone.
    """
    jobs: list[Job] = []
    for recipe, seed in product(recipes.values(), seeds):
        grid = grids.get(recipe.name, {})
        if kind == "tune":
            combinations = (dict(zip(grid, v, strict=True)) for v in product(*grid.values()))
            jobs += [recipe.job(seed, values) for values in combinations]
            continue
        own = recipe.job(seed)
        each_alone = [{key: value} for key, values in grid.items() for value in values]
        others = [recipe.job(seed, values) for values in each_alone]
        # the recipe's own value of a setting is run once
        jobs += [own, *(job for job in others if set(differences(own, job)) - {"name"})]
    varied = [keys for grid in grids.values() for keys in grid]
    for group in group_jobs(jobs, model_of).values() if kind == "methods" else [jobs]:
        check_same_work(group, varied)
    return jobs


def model_of(job: Job) -> str:
    """Methods are compared within a model."""
    return job.config.model.name


def group_jobs(jobs: Sequence[Job], key: Callable[[Job], str]) -> dict[str, list[Job]]:
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(key(job), []).append(job)
    return groups


def check_same_work(jobs: Sequence[Job], varied: Collection[str] = ()) -> None:
    """Refuses jobs that would not do the same work; `varied` settings are meant to differ."""
    first, *others = jobs
    sections = SAME_WORK if first.config.schedule.tokens else (*SAME_WORK, *SAME_STEPS)
    may_differ = {*STATED_BUDGET, *(key for keys in varied for key in split_keys(keys))}
    for other in others:
        for key, (ours, theirs) in differences(first, other).items():
            is_work = any(f"{key}.".startswith(f"{section}.") for section in sections)
            if is_work and key not in may_differ:
                raise ConfigError(
                    f"{first.method} and {other.method} differ in {key}: {_shorten(ours)} and "
                    f"{_shorten(theirs)}. A comparison is on the same work: change a recipe, or "
                    f"set it for all with --set {key}=…."
                )
    if not first.config.evaluation.data:
        raise ConfigError(
            f"{first.method} has no evaluation.data: name held-out problems, for example "
            "--set 'evaluation.data=[\"pocket/test:200\"]'."
        )


def differences(one: Job, other: Job) -> dict[str, tuple[Any, Any]]:
    ours, theirs = (flatten(job.config.model_dump(mode="json")) for job in (one, other))
    both = {key: (ours.get(key), theirs.get(key)) for key in [*ours, *theirs]}
    return {key: (own, new) for key, (own, new) in both.items() if own != new}


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted name → value, of every setting."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


# The directory


def plan_comparisons(path: Path, kind: Kind, jobs: Sequence[Job]) -> list[Comparison]:
    """What is to be carried out in `path`; methods of several models are several comparisons."""
    if kind != "methods":
        return [plan_comparison(path, kind, jobs)]
    groups = group_jobs(jobs, model_of)
    paths = model_folders(path, list(groups))
    return [plan_comparison(paths[model], kind, group) for model, group in groups.items()]


def plan_comparison(path: Path, kind: Kind, jobs: Sequence[Job]) -> Comparison:
    """The comparison with these jobs and those that the directory has already; writes nothing."""
    names = [job.name for job in jobs]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise ConfigError(
            f"two runs would be called {double}: give the recipes other names, NAME=recipe.toml."
        )
    if not (path / COMPARISON).is_file():
        return Comparison(path, kind, tuple(jobs))
    existing = open_comparison(path)
    if existing.kind != kind:
        raise ConfigError(
            f"{path} holds another kind of comparison ({existing.kind}): other --out."
        )
    planned = {job.name: job for job in existing.jobs}
    for job in jobs:
        before = planned.setdefault(job.name, job)
        for key, (old, new) in differences(before, job).items():
            raise ConfigError(
                f"{path} has {job.name} with {key} = {old!r}, now it is {new!r}: give another "
                "--out, or the settings it was begun with."
            )
    return Comparison(path, kind, tuple(planned.values()))


def write_plan(comparison: Comparison) -> None:
    for name in ("", PLAN, RUNS, EVALUATIONS, LOGS):
        make_folder(comparison.path / name)
    for job in comparison.jobs:
        if not comparison.recipe(job).is_file():
            write_json(comparison.recipe(job), job.config.model_dump(mode="json"))
    rows = [
        {"method": job.method, "recipe": job.recipe, "name": job.name, "values": dict(job.values)}
        for job in comparison.jobs
    ]
    write_json(comparison.path / COMPARISON, {"format": 1, "kind": comparison.kind, "jobs": rows})


def open_comparison(path: Path) -> Comparison:
    if not (path / COMPARISON).is_file():
        raise ConfigError(f"{path} is not a comparison: it has no {COMPARISON}.")
    data = read_json(path / COMPARISON)
    try:
        kind = data["kind"]
        jobs = tuple(
            Job(
                row["method"],
                row["recipe"],
                load_recipe(path / PLAN / f"{file_name(row['name'])}.json"),
                row["values"],
            )
            for row in data["jobs"]
        )
    except (KeyError, TypeError):
        raise DataError(f"{path / COMPARISON} is not a comparison of this version.") from None
    return Comparison(path, kind, jobs)


def find_comparisons(path: Path) -> list[Path]:
    """The comparison at `path`, or those of several models below it."""
    if (path / COMPARISON).is_file():
        return [path]
    return sorted(file.parent for file in path.glob(f"*/{COMPARISON}"))


def model_folders(path: Path, models: Sequence[str]) -> dict[str, Path]:
    """Model → its comparison's directory: a folder of its own below `path` if there are several."""
    short = {model: file_name(model.rstrip("/").rpartition("/")[2]) for model in models}
    if len(set(short.values())) < len(short):
        short = {model: file_name(model) for model in models}
    if len(short) == 1 and not all((path / name / COMPARISON).is_file() for name in short.values()):
        return dict.fromkeys(models, path)
    if (path / COMPARISON).is_file():
        raise ConfigError(
            f"{path} holds the comparison of one model, and there are several here: "
            f"{', '.join(models)}. Give another --out."
        )
    return {model: path / name for model, name in short.items()}


def file_name(text: str) -> str:
    """A method's name as part of a path."""
    return re.sub(r"[^\w.+=-]+", "-", text).strip("-.") or "method"
