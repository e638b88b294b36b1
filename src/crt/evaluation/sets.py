"""Which data sets are evaluated, and which averages they belong to."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from crt.data.datasets import Loaded, load, parse
from crt.data.sources import READERS
from crt.errors import ConfigError, DataError

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
PAPER = {  # what the paper averages over, to say when an average is over something else
    "in_domain": {"gsm8k", "math500"},
    "out_domain": {"sat_math", "amc23", "aime24", "olympiadbench"},
}


def load_sets(names: Sequence[str], **options: Any) -> list[Loaded]:
    """Each set once; problem ids may be the same in two sets, for they are kept apart."""
    if not names:
        raise ConfigError("no data set is named: give --data, such as --data gsm8k,math500")
    double = sorted({name for name in names if list(names).count(name) > 1})
    if double:
        raise ConfigError(f"data set {double[0]!r} is named twice")
    sets = [_named(load(name, **options)) for name in names]
    same = next((a.name for i, a in enumerate(sets) if a.name in [b.name for b in sets[:i]]), None)
    if same:
        raise ConfigError(f"two data files are called {same!r}: rename one of them")
    for each in sets:
        _check_ids(each)
    return sets


def group_of(name: str) -> str:
    """`in_domain`, `out_domain`, or `own` for what the paper does not have."""
    try:
        wanted = parse(name)
    except DataError:
        return "own"
    if wanted.split != "test":
        return "own"
    return next((group for group, members in DOMAINS.items() if wanted.name in members), "own")


def groups(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The averages there are, each with its sets; `all` is always there and last."""
    every = tuple(names)
    found = {group: tuple(n for n in every if group_of(n) == group) for group in (*DOMAINS, "own")}
    return {**{group: members for group, members in found.items() if members}, "all": every}


def missing(group: str, members: Iterable[str]) -> list[str]:
    """Sets that the paper's average has and this one lacks."""
    have = {parse(name).name.replace("sat_math32", "sat_math") for name in members}
    return sorted(PAPER.get(group, set()) - have)


def label(name: str) -> str:
    """What a set is called in tables: a data file by its stem, wherever it lies."""
    wanted = parse(name)
    if Path(wanted.name).suffix not in READERS:
        return name
    return Path(wanted.name).stem + (f":{wanted.count}" if wanted.count else "")


def _named(loaded: Loaded) -> Loaded:
    """With its label; a file's path is no part of what its problems are."""
    name = label(loaded.name)
    if name == loaded.name:
        return loaded
    stem = name.partition(":")[0]
    problems = tuple(replace(problem, source=stem) for problem in loaded)
    return replace(loaded, name=name, problems=problems)


def _check_ids(loaded: Loaded) -> None:
    seen: set[str] = set()
    for problem in loaded:
        if problem.id in seen:
            raise DataError(f"problem {problem.id!r} is in {loaded.name} more than once")
        seen.add(problem.id)
