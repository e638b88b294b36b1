"""From recipes, seeds and grids to the runs of a comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crt.config import RunConfig
from crt.errors import ConfigError
from crt.experiments import fairness
from crt.experiments.grid import (
    Grid,
    Values,
    apart,
    every_combination,
    one_at_a_time,
    overrides,
    toml,
)
from crt.experiments.plan import Job
from crt.io import read_json
from crt.recipes import load_recipe

Recipes = Mapping[str, tuple[Path, Sequence[str]]]  # name → file and its own overrides


def named(words: Sequence[str], sets: Sequence[str], tuned: Sequence[Path]) -> Recipes:
    """Recipes by name: their own, or NAME=FILE; tuned settings go to the recipe they are for."""
    chosen = {name: values for path in tuned for name, values in _tuned(path).items()}
    found: dict[str, tuple[Path, Sequence[str]]] = {}
    for word in words:
        name, equals, place = word.partition("=")
        if not equals or Path(word).exists():
            name, place = "", word
        name = name or load_recipe(Path(place), sets).name
        if name in found:
            raise ConfigError(f"two recipes are called {name!r}: give names, NAME={place}.")
        found[name] = (Path(place), [*overrides(chosen.pop(name, {})), *sets])
    if chosen:
        raise ConfigError(f"--tuned has settings for {', '.join(chosen)}, which is no recipe here.")
    return found


def method_jobs(recipes: Recipes, seeds: Sequence[int]) -> list[Job]:
    """Recipes × seeds; those of a model are on the same work."""
    jobs = [
        Job(name, name, config_for(place, name, sets, seed))
        for name, (place, sets) in recipes.items()
        for seed in seeds
    ]
    for group in by_model(jobs).values():
        fairness.check([(job.method, job.config) for job in group])
    return jobs


def by_model(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    """Model → its jobs: methods are compared within a model."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.config.model.name, []).append(job)
    return groups


def tune_jobs(recipes: Recipes, grids: Mapping[str, Grid], seed: int) -> list[Job]:
    """Every combination of each recipe's grid, at one seed."""
    jobs: list[Job] = []
    for name, (place, sets) in recipes.items():
        for values in every_combination(grids.get(name, {})):
            label = spoken(name, values)
            config = config_for(place, label, [*sets, *overrides(values)], seed)
            jobs.append(Job(label, name, config, values))
    varied = {key for grid in grids.values() for keys in grid for key in apart(keys)}
    fairness.check([(job.method, job.config) for job in jobs], varied)
    return jobs


def sensitivity_jobs(
    recipes: Recipes, grids: Mapping[str, Grid], seeds: Sequence[int]
) -> list[Job]:
    """The recipe as it is, and every value of every setting alone."""
    if len(recipes) != 1 or not any(grids.values()):
        raise ConfigError(
            "sensitivity takes one recipe and --grid section.key=value,… or --grids FILE."
        )
    ((name, (place, sets)),) = recipes.items()
    grid = grids[name]
    jobs: list[Job] = []
    for seed in seeds:
        own = config_for(place, name, sets, seed)
        jobs.append(Job(name, name, own))
        for values in one_at_a_time(grid):
            label = spoken(name, values)
            config = config_for(place, label, [*sets, *overrides(values)], seed)
            if config.model_copy(update={"name": own.name}) != own:  # the recipe's own value
                jobs.append(Job(label, name, config, values))
    varied = {key for keys in grid for key in apart(keys)}
    fairness.check([(job.method, job.config) for job in jobs], varied)
    return jobs


def config_for(place: Path, name: str, sets: Sequence[str], seed: int) -> RunConfig:
    """A recipe with its changes, under the name that it has in the comparison."""
    config = load_recipe(place, [*sets, f"seed={seed}"])
    return config.model_copy(update={"name": name})


def spoken(name: str, values: Values) -> str:
    """A variant's name: the recipe's, and what is different."""
    return " ".join([name, *(f"{key}={_plain(value)}" for key, value in values.items())])


def setting(config: RunConfig, key: str) -> Any:
    """A setting's value by its dotted name; of several that go together the first one's."""
    value: Any = config.model_dump(mode="json")
    for part in apart(key)[0].split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else toml(value)


def _tuned(path: Path) -> dict[str, Values]:
    """Recipe → the settings that `tune` chose."""
    try:
        return {name: dict(found["chosen"]) for name, found in read_json(path)["recipes"].items()}
    except (KeyError, TypeError, AttributeError, ValueError):
        raise ConfigError(f"{path} was not written by `crt bench-methods tune`.") from None
