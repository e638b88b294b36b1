"""A comparison's directory: which runs belong to it, and where everything is."""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from crt.algorithm.registry import name_of
from crt.config import RunConfig
from crt.errors import ConfigError, DataError
from crt.experiments.fairness import first_change
from crt.io import lock_folder, read_json, write_json
from crt.recipes import load_recipe

COMPARISON, PLAN, RUNS = "comparison.json", "plan", "runs"
EVALUATIONS, LOGS, TIMES = "evaluations", "logs", "times.jsonl"
Kind = Literal["methods", "tune", "sensitivity"]


@dataclass(frozen=True)
class Job:
    """One run: a recipe with a seed; `method` is its row in the tables."""

    method: str
    recipe: str  # by name; in a grid several methods come from one
    config: RunConfig
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])  # tried in a grid

    @property
    def name(self) -> str:
        """Of the run's directory."""
        return f"{file_name(self.method)}-seed{self.seed}"

    @property
    def seed(self) -> int:
        """Of training, and of the evaluation."""
        return self.config.seed

    @property
    def type(self) -> str:
        """The method's name in a recipe."""
        return name_of(self.config.method)


@dataclass(frozen=True)
class Comparison:
    """A directory with the runs of a comparison."""

    path: Path
    kind: Kind
    jobs: tuple[Job, ...]

    @property
    def seeds(self) -> list[int]:
        """In the order of the jobs, each once."""
        return list(dict.fromkeys(job.seed for job in self.jobs))

    @property
    def methods(self) -> dict[str, list[Job]]:
        """Row of the tables → its runs."""
        rows: dict[str, list[Job]] = {}
        for job in self.jobs:
            rows.setdefault(job.method, []).append(job)
        return rows

    def recipe(self, job: Job) -> Path:
        """The resolved configuration that the run is begun from."""
        return self.path / PLAN / f"{job.name}.json"

    def run(self, job: Job) -> Path:
        """The run's directory."""
        return self.path / RUNS / job.name

    def evaluation(self, job: Job, step: int) -> Path:
        """Where a checkpoint's evaluation is."""
        return self.path / EVALUATIONS / job.name / f"step-{step:04d}"

    def base(self, seed: int) -> Path:
        """Where the base model's evaluation is."""
        return self.path / EVALUATIONS / f"base-seed{seed}"

    def locked(self) -> AbstractContextManager[None]:
        """Only one process may carry a comparison out."""
        return lock_folder(self.path, f"{self.path} is being carried out by another process.")


def planned(path: Path, kind: Kind, jobs: Sequence[Job]) -> Comparison:
    """The comparison with these jobs and those that the directory has already; writes nothing."""
    names = [job.name for job in jobs]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise ConfigError(
            f"two runs would be called {double}: give the recipes other names, NAME=recipe.toml."
        )
    if not (path / COMPARISON).is_file():
        return Comparison(path, kind, tuple(jobs))
    there = opened(path)
    if there.kind != kind:
        raise ConfigError(f"{path} holds another kind of comparison ({there.kind}): other --out.")
    known = {job.name: job for job in there.jobs}
    for job in jobs:
        if job.name in known:
            _refuse_change(path, known[job.name], job)
    more = [job for job in jobs if job.name not in known]
    return Comparison(path, kind, (*there.jobs, *more))


def folders(path: Path, models: Sequence[str]) -> dict[str, Path]:
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


def existing(path: Path) -> list[Path]:
    """The comparison at `path`, or those of several models below it."""
    if (path / COMPARISON).is_file():
        return [path]
    return sorted(file.parent for file in path.glob(f"*/{COMPARISON}"))


def write(comparison: Comparison) -> None:
    """Each job's configuration, then the list of them."""
    try:
        for name in (PLAN, RUNS, EVALUATIONS, LOGS):
            (comparison.path / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{comparison.path} cannot be made: {error.strerror}.") from None
    for job in comparison.jobs:
        if not comparison.recipe(job).is_file():
            write_json(comparison.recipe(job), job.config.model_dump(mode="json"))
    rows = [
        {"method": job.method, "recipe": job.recipe, "name": job.name, "values": dict(job.values)}
        for job in comparison.jobs
    ]
    write_json(comparison.path / COMPARISON, {"format": 1, "kind": comparison.kind, "jobs": rows})


def opened(path: Path) -> Comparison:
    """A comparison that is there."""
    if not (path / COMPARISON).is_file():
        raise ConfigError(f"{path} is not a comparison: it has no {COMPARISON}.")
    data = read_json(path / COMPARISON)
    try:
        rows = [
            [row[key] for key in ("method", "recipe", "name", "values")] for row in data["jobs"]
        ]
        kind = data["kind"]
    except (KeyError, TypeError):
        raise DataError(f"{path / COMPARISON} is not a comparison of this version.") from None
    jobs = tuple(
        Job(method, recipe, load_recipe(path / PLAN / f"{file_name(name)}.json"), values)
        for method, recipe, name, values in rows
    )
    return Comparison(path, kind, jobs)


def file_name(text: str) -> str:
    """A method's name as part of a path."""
    return re.sub(r"[^\w.+=-]+", "-", text).strip("-.") or "method"


def _refuse_change(path: Path, known: Job, job: Job) -> None:
    changed = first_change(known.config.model_dump(mode="json"), job.config.model_dump(mode="json"))
    if changed:
        key, before, now = changed
        raise ConfigError(
            f"{path} has {job.name} with {key} = {before!r}, now it is {now!r}: give another "
            "--out, or the settings it was begun with."
        )
