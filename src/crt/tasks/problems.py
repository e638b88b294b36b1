"""From rows to problems: columns, stable ids, duplicates, bad rows, subsets and hashes."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from crt.errors import DataError
from crt.tasks.answers import Fields, Parts
from crt.tasks.readers import Row
from crt.types import Problem

FIELDS: dict[str, tuple[str, ...]] = {  # field -> columns it may stand in, the first there wins
    "id": ("id", "unique_id"),
    "question": ("question", "problem"),
    "answer": ("answer",),
    "solution": ("solution",),
    "options": ("options", "choices"),
    "tolerance": ("tolerance",),
    "multiple": ("multiple",),
}
FAULTS_KEPT = 5
Collected = tuple[list[Problem], list[str]]


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
class Form:
    """How a source's rows become problems."""

    source: str  # the name its problems carry
    prefix: str  # what a bare number, or a hash, becomes part of, to be an id
    normalise: Callable[[Fields], Parts]
    columns: Mapping[str, tuple[str, ...]]  # where a field stands, if not where FIELDS says
    required: frozenset[str] = frozenset()  # columns the user named: a row without one is bad
    corrections: Mapping[str, str] | None = None  # how the question starts -> the answer


def collect(rows: Iterator[Row], form: Form, *, skip_bad: bool = False) -> Collected:
    """The problems, and the faults of the rows left out; without `skip_bad` the first raises."""
    problems: list[Problem] = []
    faults: list[str] = []
    seen: set[str] = set()
    for row in rows:
        try:
            problems.append(_problem(row, form, seen))
        except DataError as error:
            fault = f"{row.place}: {error}"
            if not skip_bad:
                raise DataError(f"{fault}; mend the row, or go on without it: --skip-bad") from None
            faults.append(fault)
    return problems, faults


def user_columns(columns: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The user's `field: column`, checked."""
    unknown = sorted(set(columns) - set(FIELDS))
    if unknown:
        raise DataError(f"no field {unknown[0]!r} to map a column to: use {', '.join(FIELDS)}")
    return {name: (column,) for name, column in columns.items()}


def subset(problems: Sequence[Problem], count: int, seed: int, name: str) -> tuple[Problem, ...]:
    """`count` problems by seed, whatever their order; a smaller count is a prefix of a larger."""
    if count > len(problems):
        raise DataError(f"{name!r} asks for {count} problems, but there are {len(problems)}")
    ranked = sorted(problems, key=lambda problem: digest(str(seed), problem.id))
    return tuple(ranked[:count])


def content_hash(problems: Sequence[Problem]) -> str:
    """A SHA-256 of everything the problems say, in their order."""
    return digest(*(json.dumps(asdict(problem), sort_keys=True) for problem in problems))


def digest(*texts: str) -> str:
    """A SHA-256 that is the same on every machine and in every run."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _problem(row: Row, form: Form, seen: set[str]) -> Problem:
    if row.fault:
        raise DataError(row.fault)
    fields = _fields(row.value, form)
    correction = _correction(fields.get("question"), form.corrections or {})
    if correction is not None:
        fields["answer"] = correction
    parts = form.normalise(fields)
    return Problem(
        _id(fields.get("id"), parts, form.prefix, seen),
        parts.question,
        parts.answer,
        form.source,
        parts.options,
        parts.tolerance,
    )


def _fields(value: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """The row's fields by our names; a column the user named must be there."""
    for column in form.required:
        if column not in value:
            has = ", ".join(map(str, value)) or "none"
            raise DataError(f"no column {column!r} (columns: {has})")
    fields: dict[str, Any] = {}
    for name, columns in {**FIELDS, **form.columns}.items():
        fields[name] = next((value[c] for c in columns if value.get(c) is not None), None)
    return fields


def _correction(question: Any, corrections: Mapping[str, str]) -> str | None:
    if not isinstance(question, str):
        return None
    starts = (start for start in corrections if question.startswith(start))
    return next((corrections[start] for start in starts), None)


def _id(own: Any, parts: Parts, prefix: str, seen: set[str]) -> str:
    """The source's own id, or a hash of the content, which reordering a file does not change."""
    if own is not None and own != "":
        if isinstance(own, bool) or not isinstance(own, str | int):
            raise DataError(f"id {own!r} is neither text nor a whole number")
        made = f"{prefix}-{own}" if str(own).isdigit() else str(own)
        if made in seen:
            raise DataError(f"the id {made!r} was used before")
    else:
        base = f"{prefix}-{digest(parts.question, parts.answer)[:12]}"
        made, copy = base, 1
        while made in seen:  # the same row again: a duplicate to report, not a fault
            copy += 1
            made = f"{base}-{copy}"
    seen.add(made)
    return made
