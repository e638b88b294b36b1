"""Which data sets are evaluated, what they are called, and which averages they belong to."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from crt.data.datasets import Loaded, load, parse
from crt.data.sources import READERS
from crt.errors import ConfigError, DataError

T = TypeVar("T")
U = TypeVar("U")
DOMAINS = {  # the paper's; `gsm8k/train` is not among them, for the model may have seen it
    "in_domain": ("gsm8k", "math500"),
    "out_domain": ("sat_math", "sat_math32", "amc23", "aime24", "olympiadbench"),
}
TITLES = {
    "in_domain": "In-domain",
    "out_domain": "Out-domain",
    "own": "Own data sets",
    "all": "All data sets",
}


def load_sets(names: Sequence[str], **options: Any) -> list[Loaded]:
    """Loads each set once; two sets may use the same problem ids."""
    if not names:
        raise ConfigError("no data set is named: give --data, such as --data gsm8k,math500")
    if repeated := _repeated(names):
        raise ConfigError(f"data set {repeated!r} is named twice")
    sets = [_labelled(load(name, **options)) for name in names]
    if repeated := _repeated([loaded.name for loaded in sets]):
        raise ConfigError(f"two data files are called {repeated!r}: rename one of them")
    for loaded in sets:
        if repeated := _repeated([problem.id for problem in loaded]):
            raise DataError(f"problem {repeated!r} is in {loaded.name} more than once")
    return sets


def groups(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The averages there are, each with its sets; `all` is always there and last."""
    members: dict[str, tuple[str, ...]] = dict.fromkeys((*DOMAINS, "own", "all"), ())
    for name in names:
        members[_group_of(name)] += (name,)
        members["all"] += (name,)
    return {group: sets for group, sets in members.items() if sets or group == "all"}


def sets_and_averages(
    values: Mapping[str, T], compute: Callable[[Sequence[T]], U]
) -> dict[str, dict[str, U]]:
    """What `compute` makes of every data set's value, and of those in each average."""
    return {
        "sets": {name: compute([value]) for name, value in values.items()},
        "averages": {
            group: compute([values[name] for name in members])
            for group, members in groups(values).items()
        },
    }


def missing_from_average(group: str, members: Iterable[str]) -> list[str]:
    """Sets that the paper's average has and this one lacks; SAT comes in two versions."""
    have = {parse(name).name.replace("sat_math32", "sat_math") for name in members}
    return sorted({*DOMAINS[group]} - {"sat_math32"} - have) if group in DOMAINS else []


def label(name: str) -> str:
    """What a set is called in tables: a data file by its stem, wherever it lies."""
    wanted = parse(name)
    if Path(wanted.name).suffix not in READERS:
        return name
    return Path(wanted.name).stem + (f":{wanted.count}" if wanted.count else "")


def short_name(name: str) -> str:
    """A model's or a data set's name for a table or a folder."""
    return re.sub(r"[^\w.+-]+", "-", name.rstrip("/").rpartition("/")[2]).strip("-.") or "model"


def folder_label(names: Iterable[str]) -> str:
    """Several data sets as part of a folder's name."""
    return "+".join(short_name(label(name)) for name in names)


def _group_of(name: str) -> str:
    """`in_domain`, `out_domain`, or `own` for what the paper does not have."""
    try:
        wanted = parse(name)
    except DataError:
        return "own"
    if wanted.split != "test":
        return "own"
    return next((group for group, sets in DOMAINS.items() if wanted.name in sets), "own")


def _labelled(loaded: Loaded) -> Loaded:
    """With its label; a file's path is no part of what its problems are."""
    name = label(loaded.name)
    if name == loaded.name:
        return loaded
    stem = name.partition(":")[0]
    problems = tuple(replace(problem, source=stem) for problem in loaded)
    return replace(loaded, name=name, problems=problems)


def _repeated(names: Iterable[str]) -> str | None:
    """The first name that comes a second time."""
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)
