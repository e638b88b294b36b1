"""One table of data sets, and `load(name, split)`: problems from the hub, a folder or a file."""

import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crt.errors import DataError, did_you_mean
from crt.tasks import answers, readers
from crt.tasks.problems import FAULTS_KEPT, Form, Loaded, collect, subset, user_columns
from crt.types import Problem

Columns = Mapping[str, str]  # the user's: question=…, answer=…


@dataclass(frozen=True)
class Hub:
    """Where a split is on the hub; several configs are read one after the other."""

    id: str
    split: str
    configs: tuple[str | None, ...] = (None,)


@dataclass(frozen=True)
class DataSet:
    """A named data set: its splits on the hub, its columns and what its answers look like."""

    hub: Mapping[str, Hub] = field(default_factory=dict[str, Hub])
    licence: str = ""
    normalise: Callable[[answers.Fields], answers.Parts] = answers.plain
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    files: tuple[str, ...] = ()  # further names of its local file
    prefix: str = ""  # what a bare number becomes part of, to be an id
    corrections: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # question's start -> answer
    generator: str = ""  # module:function(split, count, seed) -> list[Problem]


_MATH = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)

DATASETS: dict[str, DataSet] = {
    "gsm8k": DataSet(
        {split: Hub("openai/gsm8k", split, ("main",)) for split in ("train", "test")},
        "MIT",
        answers.gsm8k,
    ),
    "math": DataSet(
        {split: Hub("EleutherAI/hendrycks_math", split, _MATH) for split in ("train", "test")},
        "MIT",
        corrections={  # the source's box is empty; 0 by the solutions' own argument
            "For any integer $n>1$, the number of prime numbers greater than $n!+1$": "0",
            "You are given a sequence of $58$ terms; each term has the form $P+n$": "0",
        },
    ),
    "math500": DataSet({"test": Hub("HuggingFaceH4/MATH-500", "test")}, "MIT"),
    "sat_math": DataSet(
        {"test": Hub("hails/agieval-sat-math", "test")},
        "MIT",
        answers.choice,
        {"question": ("stem", "query"), "answer": ("answer", "gold")},
        files=("sat_math_agieval",),
    ),
    "sat_math32": DataSet(  # SAT May 2023 without figures: the 32 of the paper's harness
        {"test": Hub("mcaleste/sat_multiple_choice_math_may_23", "train")},
        "unknown",
        answers.choice,
        {
            "question": ("stem", "Question"),
            "answer": ("answer", "Answer"),
            "options": ("options", "Possible Answers"),
        },
        files=("sat_math_srl32",),
    ),
    "amc23": DataSet({"test": Hub("math-ai/amc23", "test")}, "problems: MAA"),
    "aime24": DataSet({"test": Hub("HuggingFaceH4/aime_2024", "train")}, "problems: MAA"),
    "olympiadbench": DataSet(
        {"test": Hub("Hothan/OlympiadBench", "train", ("OE_TO_maths_en_COMP",))},
        "Apache-2.0",
        answers.olympiad,
        {
            "answer": ("final_answer", "raw_answer", "answer"),
            "multiple": ("is_multiple_answer",),
            "tolerance": ("error",),
        },
        prefix="olympiad",
        corrections={  # `t(0,4]` and `\frac{1}{2},\sqrt{x}` in the source
            "A circle $\\omega$ of radius 1 is given. A collection $T$ of triangles": "(0,4]",
            "If $\\log _{2} x-2 \\log _{2} y=2$, determine $y$": "\\frac{1}{2}\\sqrt{x}",
        },
    ),
    "pocket": DataSet(licence="Apache-2.0", generator="crt.pocket.problems:problems"),
}
POCKET_SPLITS = ("train", "validation", "test")
POCKET_COUNT = 1000  # when no count is asked for: the made-up problems have no end


@dataclass(frozen=True)
class Wanted:
    """What `name[/split][:count]` asks for."""

    name: str
    split: str
    count: int | None


def load(
    name: str,
    split: str | None = None,
    folder: Path | str | None = None,
    *,
    columns: Columns | None = None,
    config: str | None = None,
    revision: str | None = None,
    seed: int = 0,
    skip_bad: bool = False,
    load_dataset: Callable[..., Any] | None = None,
) -> Loaded:
    """The problems of a named set, a hub id or a data file; `name:200` is a seeded subset.

    A file of that name in `folder` (or in the folder `CRT_DATA` names) wins over the hub.
    """
    wanted = parse(name, split)
    dataset = describe(wanted, config)
    if dataset.generator:
        made = _generated(dataset.generator, wanted, seed)
        return Loaded(name, tuple(made), dataset.generator)
    path = local_file(wanted, dataset, data_folder(folder))
    if path:
        rows, origin = readers.rows(path), str(path)
    else:
        hub = dataset.hub[wanted.split]
        rows = readers.hub_rows(hub.id, hub.configs, hub.split, revision, load_dataset)
        origin = f"{hub.id}@{revision or 'main'}"
    problems, faults = collect(rows, _form(wanted.name, dataset, columns or {}), skip_bad=skip_bad)
    if not problems:
        raise DataError(f"{origin} has no usable problem: {faults[0] if faults else 'it is empty'}")
    if wanted.count is not None:
        problems = subset(problems, wanted.count, seed, name)
    return Loaded(name, tuple(problems), origin, len(faults), tuple(faults[:FAULTS_KEPT]))


def load_mixture(names: Sequence[str], split: str = "train", **options: Any) -> Loaded:
    """Several sets as one, in order: `["gsm8k", "math"]` is the paper's training data."""
    parts = [load(name, None if names_split(name) else split, **options) for name in names]
    problems = tuple(problem for part in parts for problem in part)
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise DataError(f"problem {problem.id!r} is in {', '.join(names)} more than once")
        seen.add(problem.id)
    return Loaded(
        "+".join(names),
        problems,
        ", ".join(part.origin for part in parts),
        sum(part.skipped for part in parts),
        tuple(fault for part in parts for fault in part.faults),
    )


def names_split(name: str) -> bool:
    """Whether it is a named set's name with its split: `gsm8k/train`, but not `owner/name`."""
    return "/" in name and name.partition("/")[0] in DATASETS


def parse(name: str, split: str | None = None) -> Wanted:
    """`gsm8k/train:100` taken apart; a split said twice must be the same."""
    base, _, count = name.rpartition(":") if re.search(r":\d+$", name) else (name, "", "")
    if names_split(base):
        head, _, own = base.partition("/")
        if split not in (None, own):
            raise DataError(f"{name!r} names the split {own!r}, but {split!r} was asked for")
        base, split = head, own
    if count and int(count) == 0:
        raise DataError(f"{name!r} asks for no problems: the count must be at least 1")
    return Wanted(base, split or "test", int(count) if count else None)


def describe(wanted: Wanted, config: str | None = None) -> DataSet:
    """The table's entry, or one made for a data file or a hub id."""
    if wanted.name in DATASETS:
        dataset = DATASETS[wanted.name]
        splits = tuple(dataset.hub) or POCKET_SPLITS
        if wanted.split not in splits:
            has = " and ".join(splits)
            raise DataError(f"{wanted.name} has no split {wanted.split!r}: it has {has}")
        return replace(dataset, prefix=dataset.prefix or wanted.name)
    if Path(wanted.name).suffix in readers.READERS:
        return DataSet(prefix=Path(wanted.name).stem)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", wanted.name):
        hub = Hub(wanted.name, wanted.split, (config,))
        return DataSet({wanted.split: hub}, prefix=wanted.name.rpartition("/")[2])
    raise DataError(
        f"{wanted.name!r} is no data set, no data file and no hub id (owner/name). "
        f"{did_you_mean(wanted.name, DATASETS)}"
    )


def data_folder(folder: Path | str | None) -> Path | None:
    """The folder given, or the one `CRT_DATA` names; None if there is neither."""
    chosen = folder or os.environ.get("CRT_DATA")
    if not chosen:
        return None
    if not Path(chosen).is_dir():
        told = "" if folder else "CRT_DATA="
        raise DataError(f"{told}{chosen} is not a folder: give one with the data files in it")
    return Path(chosen)


def local_file(wanted: Wanted, dataset: DataSet, folder: Path | None) -> Path | None:
    """The data file itself, or the set's file in the folder, or None for the hub."""
    if wanted.name not in DATASETS:
        return Path(wanted.name) if not dataset.hub else None
    if folder is None:
        return None
    stems = [f"{wanted.name}_{wanted.split}", f"{wanted.name}/{wanted.split}"]
    if len(dataset.hub) == 1:
        stems += [wanted.name, *dataset.files]
    files = (folder / f"{stem}{suffix}" for stem in stems for suffix in readers.READERS)
    return next((file for file in files if file.is_file()), None)


def _form(source: str, dataset: DataSet, columns: Columns) -> Form:
    mapped = user_columns(columns)
    return Form(
        source,
        dataset.prefix,
        dataset.normalise,
        {**dataset.columns, **mapped},
        frozenset(columns.values()),
        dataset.corrections,
    )


def _generated(generator: str, wanted: Wanted, seed: int) -> Sequence[Problem]:
    """Made-up problems, from a function that is imported only when it is asked for."""
    module, _, function = generator.partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise DataError(f"{wanted.name} is not in this installation: {error}") from None
    return make(wanted.split, wanted.count or POCKET_COUNT, seed)
