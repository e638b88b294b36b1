"""One table of data sets, and `load(name, split)`: problems from the hub, a folder or a file."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from crt.data import formats, sources
from crt.errors import DataError, did_you_mean
from crt.pocket import SPLITS as POCKET_SPLITS
from crt.pocket import WORLDS, is_world, make_problems
from crt.types import Problem

FAULTS_KEPT = 5
MOST_PROBLEMS = 10**7  # that a count may ask for


@dataclass(frozen=True)
class Loaded:
    """Problems, where they came from, and how many rows were left out, with a few reasons."""

    name: str
    problems: tuple[Problem, ...]
    origin: str
    skipped: int = 0
    faults: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """A SHA-256 of the problems in their order, for manifests."""
        return content_hash(self.problems)

    def __len__(self) -> int:
        return len(self.problems)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems)


@dataclass(frozen=True)
class HubSplit:
    """Where a split is on the hub; several configs are read one after the other."""

    id: str
    split: str
    configs: tuple[str | None, ...] = (None,)


@dataclass(frozen=True)
class DataSet:
    """A named data set: its splits on the hub, and how its rows become problems."""

    hub: Mapping[str, HubSplit] = field(default_factory=dict[str, HubSplit])
    licence: str = ""
    read: Callable[[formats.Fields], Problem] = formats.read_plain
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Where a field is, if not where `formats.COLUMNS` says."""
    files: tuple[str, ...] = ()
    """Further names of its local file."""
    prefix: str = ""
    """What a bare number or a hash is appended to, to be an id."""
    corrections: Mapping[str, str] = field(default_factory=dict[str, str])
    """How a question starts -> its answer."""
    generator: str = ""
    """The world whose problems are made, for those that are not read."""


_MATH = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra"),
    *("number_theory", "prealgebra", "precalculus"),
)

DATASETS: dict[str, DataSet] = {
    "gsm8k": DataSet(
        {split: HubSplit("openai/gsm8k", split, ("main",)) for split in ("train", "test")},
        "MIT",
        formats.read_gsm8k,
    ),
    "math": DataSet(
        {split: HubSplit("EleutherAI/hendrycks_math", split, _MATH) for split in ("train", "test")},
        "MIT",
        corrections={  # the source's box is empty; 0 by the solutions' own argument
            "For any integer $n>1$, the number of prime numbers greater than $n!+1$": "0",
            "You are given a sequence of $58$ terms; each term has the form $P+n$": "0",
        },
    ),
    "math500": DataSet({"test": HubSplit("HuggingFaceH4/MATH-500", "test")}, "MIT"),
    "sat_math": DataSet(
        {"test": HubSplit("hails/agieval-sat-math", "test")},
        "MIT",
        formats.read_multiple_choice,
        {"question": ("stem", "query"), "answer": ("answer", "gold")},
        files=("sat_math_agieval",),
    ),
    "sat_math32": DataSet(  # SAT May 2023 without figures: the 32 of the paper's harness
        {"test": HubSplit("mcaleste/sat_multiple_choice_math_may_23", "train")},
        "unknown",
        formats.read_multiple_choice,
        {
            "question": ("stem", "Question"),
            "answer": ("answer", "Answer"),
            "options": ("options", "Possible Answers"),
        },
        files=("sat_math_srl32",),
    ),
    "amc23": DataSet({"test": HubSplit("math-ai/amc23", "test")}, "problems: MAA"),
    "aime24": DataSet({"test": HubSplit("HuggingFaceH4/aime_2024", "train")}, "problems: MAA"),
    "olympiadbench": DataSet(
        {"test": HubSplit("Hothan/OlympiadBench", "train", ("OE_TO_maths_en_COMP",))},
        "Apache-2.0",
        formats.read_olympiad,
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
    "mbpp": DataSet(
        {
            split: HubSplit("google-research-datasets/mbpp", split, ("sanitized",))
            for split in ("train", "validation", "test")
        },
        "CC-BY-4.0",
        columns={"id": ("task_id", "id"), "question": ("prompt", "text", "question")},
    ),
    "humaneval": DataSet(
        {"test": HubSplit("openai/openai_humaneval", "test")},
        "MIT",
        columns={"id": ("task_id", "id"), "question": ("prompt", "question")},
    ),
    **{world: DataSet(licence="Apache-2.0", generator=world) for world in WORLDS},
}
LEVELS = r"@\d+(,\d+)*$"  # behind the name of a set whose problems are made
POCKET_COUNT = 1000  # unless a count is given: generated problems have no end


@dataclass(frozen=True)
class Selection:
    """The parts of `name[@levels][/split][:count]`."""

    name: str
    split: str
    count: int | None
    levels: tuple[int, ...] = ()  # of problems that are made; all if there are none


class Source(NamedTuple):
    """What a name stands for; `path` is its local file, if it has one."""

    selection: Selection
    dataset: DataSet
    path: Path | None


def load(
    name: str,
    split: str | None = None,
    folder: Path | str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    config: str | None = None,
    revision: str | None = None,
    seed: int = 0,
    skip_bad: bool = False,
    load_dataset: Callable[..., Any] | None = None,
) -> Loaded:
    """The problems of a named set, a hub id or a data file; `name:200` is a seeded subset.

    A file of that name in `folder` (or in the folder `CRT_DATA` names) wins over the hub. `columns`
    says in which column a field is: `{"question": "prompt"}`.
    """
    wanted, dataset, path = find(name, split, folder, config)
    split, count = wanted.split, wanted.count
    if dataset.generator:
        problems = make_problems(
            dataset.generator, split, count or POCKET_COUNT, seed, wanted.levels
        )
        return Loaded(name, tuple(problems), f"made up, {dataset.generator}")
    if path:
        rows, origin = sources.read_file(path), str(path)
    else:
        hub = dataset.hub[split]
        rows = sources.read_hub(hub.id, hub.configs, hub.split, revision, load_dataset)
        origin = f"{hub.id}@{revision or 'main'}"
    problems, faults = _read_problems(rows, wanted.name, dataset, columns or {}, skip_bad)
    if not problems:
        raise DataError(f"{origin} has no usable problem: {faults[0] if faults else 'it is empty'}")
    if count is not None and count > len(problems):
        raise DataError(f"{name!r} asks for {count} problems, but there are {len(problems)}")
    if count is not None:  # by seed, whatever their order; a smaller count is a prefix of a larger
        problems = sorted(problems, key=lambda problem: digest(str(seed), problem.id))[:count]
    return Loaded(name, tuple(problems), origin, len(faults), tuple(faults[:FAULTS_KEPT]))


def load_problems(name: str, **options: Any) -> list[Problem]:
    """The problems alone, for a script; `load` also says where they are from."""
    return list(load(name, **options).problems)


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


def is_from(name: str, dataset: str) -> bool:
    """Whether a problem's source, or an evaluation's data set, is of the data set `name`.

    Splits and counts do not matter. Levels do: `pocket` is of any level, `pocket@4` of one.
    """
    (base, levels), (other, own) = _family(name), _family(dataset)
    return base == other and (not levels or (bool(own) and set(own) <= set(levels)))


def may_hold(dataset: str, name: str) -> bool:
    """Whether there may be problems of the data set `name` in what is loaded as `dataset`."""
    (base, levels), (other, own) = _family(name), _family(dataset)
    return base == other and (not levels or not own or bool(set(own) & set(levels)))


def _family(name: str) -> tuple[str, tuple[int, ...]]:
    """A data set's name, a file's without folder and suffix, and the levels that are meant."""
    if made := re.fullmatch(r"(.+)/level-(\d+)", name):  # a made problem's source
        return made[1], (int(made[2]),)
    wanted = parse(name)
    is_file = Path(wanted.name).suffix in sources.READERS
    return Path(wanted.name).stem if is_file else wanted.name, wanted.levels


def names_split(name: str) -> bool:
    """Whether it is a named set's name with its split: `gsm8k/train`, but not `owner/name`."""
    return "/" in name and re.sub(LEVELS, "", name.partition("/")[0]) in DATASETS


def parse(name: str, split: str | None = None) -> Selection:
    """The parts of `gsm8k/train:100` or `pocket@1,2/test`; a split given twice must be the same."""
    base, _, count = name.rpartition(":") if re.search(r":\d{1,18}$", name) else (name, "", "")
    if names_split(base):
        head, _, own = base.partition("/")
        if split not in (None, own):
            raise DataError(f"{name!r} names the split {own!r}, but {split!r} was asked for")
        base, split = head, own
    if count and not 0 < int(count) <= MOST_PROBLEMS:
        raise DataError(f"{name!r}: the count must be at least 1 and at most {MOST_PROBLEMS:,}")
    levels: tuple[int, ...] = ()
    if (match := re.search(LEVELS, base)) and is_world(base[: match.start()]):
        levels = tuple(int(level) for level in match[0][1:].split(","))
        base = base[: match.start()]
    return Selection(base, split or "test", int(count) if count else None, levels)


def find(
    name: str,
    split: str | None = None,
    folder: Path | str | None = None,
    config: str | None = None,
) -> Source:
    """Where a set of the table, a data file or a hub id is."""
    selection, path = parse(name, split), None
    base, split = selection.name, selection.split
    if base in DATASETS:
        dataset = replace(DATASETS[base], prefix=DATASETS[base].prefix or base)
        splits = tuple(dataset.hub) or POCKET_SPLITS
        if split not in splits:
            raise DataError(f"{base} has no split {split!r}: it has {' and '.join(splits)}")
        path = _local_file(folder, base, split, dataset)
    elif Path(base).suffix in sources.READERS:
        dataset, path = DataSet(prefix=Path(base).stem), Path(base)
    elif re.fullmatch(r"[\w.-]+/[\w.-]+", base):
        hub = HubSplit(base, split, (config,))
        dataset = DataSet({split: hub}, prefix=base.rpartition("/")[2])
    else:
        raise DataError(
            f"{base!r} is no data set, no data file and no hub id (owner/name). "
            f"{did_you_mean(base, DATASETS)}"
        )
    return Source(selection, dataset, path)


def _local_file(folder: Path | str | None, name: str, split: str, dataset: DataSet) -> Path | None:
    """The set's file in the folder given, or in the one `CRT_DATA` names, if it is there."""
    chosen = folder or os.environ.get("CRT_DATA")
    if not chosen:
        return None
    if not Path(chosen).is_dir():
        variable = "" if folder else "CRT_DATA="
        raise DataError(f"{variable}{chosen} is not a folder: give one with the data files in it")
    stems = [f"{name}_{split}", f"{name}/{split}"]
    if len(dataset.hub) == 1:
        stems += [name, *dataset.files]
    files = (Path(chosen, f"{stem}{suffix}") for stem in stems for suffix in sources.READERS)
    return next((file for file in files if file.is_file()), None)


def content_hash(problems: Sequence[Problem]) -> str:
    return digest(*(json.dumps(problem.fields(), sort_keys=True) for problem in problems))


def digest(*texts: str) -> str:
    """A SHA-256 that is the same on every machine and in every run."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _read_problems(
    rows: Iterable[sources.Row],
    source: str,
    dataset: DataSet,
    columns: Mapping[str, str],
    skip_bad: bool,
) -> tuple[list[Problem], list[str]]:
    """The problems, and the faults of the rows left out; without `skip_bad` the first raises."""
    unknown = sorted(set(columns) - set(formats.COLUMNS))
    if unknown:
        fields = ", ".join(formats.COLUMNS)
        raise DataError(f"no field {unknown[0]!r} to map a column to: use {fields}")
    own = {field: (column,) for field, column in columns.items()}
    where = {**formats.COLUMNS, **dataset.columns, **own}
    problems: list[Problem] = []
    faults: list[str] = []
    seen: set[str] = set()
    for row in rows:
        try:
            if row.fault:
                raise DataError(row.fault)
            for column in columns.values():
                if column not in row.value:
                    present = ", ".join(map(str, row.value)) or "none"
                    raise DataError(f"no column {column!r} (columns: {present})")
            fields = formats.select_fields(row.value, where)
            for start, answer in dataset.corrections.items():
                if str(fields["question"]).startswith(start):
                    fields["answer"] = answer
            problem = dataset.read(fields)
            problem_id = _problem_id(fields["id"], problem, dataset.prefix, seen)
            problems.append(replace(problem, id=problem_id, source=source))
        except DataError as error:
            fault = f"{row.place}: {error}"
            if not skip_bad:
                raise DataError(f"{fault}; mend the row, or go on without it: --skip-bad") from None
            faults.append(fault)
    return problems, faults


def _problem_id(own: Any, problem: Problem, prefix: str, seen: set[str]) -> str:
    """The source's own id, or a hash of the content, which reordering a file does not change."""
    if own is not None and own != "":
        if isinstance(own, bool) or not isinstance(own, str | int):
            raise DataError(f"id {own!r} is neither text nor a whole number")
        problem_id = f"{prefix}-{own}" if str(own).isdigit() else str(own)
        if problem_id in seen:
            raise DataError(f"the id {problem_id!r} was used before")
    else:
        base = f"{prefix}-{digest(problem.question, problem.answer)[:12]}"
        problem_id, copy = base, 1
        while problem_id in seen:  # the same row again: a duplicate to report, not a fault
            copy += 1
            problem_id = f"{base}-{copy}"
    seen.add(problem_id)
    return problem_id
