"""Counts by problem: all that the figures are made of, and small beside the responses."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from crt.algorithm.batch import Array
from crt.errors import DataError
from crt.evaluation.records import Record
from crt.types import Verdict

TruncatedIs = Literal["wrong", "grade"]
NO_ANSWER = Verdict.NO_ANSWER
MOST = 1e15  # more tokens than anybody will ever sample of one problem


@dataclass(frozen=True)
class Count:
    """One problem's rollouts in numbers; `tokens` and `truncated` are None where unknown.

    `rollouts` = `graded` + `ungraded`; `correct` and `no_answer` are among the graded.
    The zip sums are over responses that are not empty; the wrong ones have no answer or another.
    """

    data: str
    problem_id: str
    rollouts: int
    graded: int
    correct: int
    no_answer: int
    tokens: int | None
    truncated: int | None
    zip_sum: float
    zip_n: int
    zip_correct_sum: float
    zip_correct_n: int
    zip_wrong_sum: float
    zip_wrong_n: int


@dataclass(frozen=True, eq=False)
class Tally:
    """A data set's counts as arrays, (P,) each; NaN is unknown."""

    name: str
    ids: tuple[str, ...]
    rollouts: Array
    graded: Array
    correct: Array
    no_answer: Array
    tokens: Array
    truncated: Array
    zip_sum: Array
    zip_n: Array
    zip_correct_sum: Array
    zip_correct_n: Array
    zip_wrong_sum: Array
    zip_wrong_n: Array
    matched: Array | None = None  # (P, 3) at equal length: sum of R_zip, of the base's, pairs

    def select(self, ids: Sequence[str]) -> "Tally":
        """These problems, in this order."""
        row = {problem_id: index for index, problem_id in enumerate(self.ids)}
        rows = [row[problem_id] for problem_id in ids]
        arrays = {name: getattr(self, name)[rows] for name in NUMBERS}
        matched = None if self.matched is None else self.matched[rows]
        return Tally(self.name, tuple(ids), **arrays, matched=matched)


NUMBERS = tuple(field.name for field in fields(Count))[2:]


def counts(records: Iterable[Record], truncated: TruncatedIs) -> list[Count]:
    """A problem's counts, in the order in which problems first appear."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        light = replace(record, response="")  # the text may be long, and is not counted
        groups.setdefault((record.data, record.problem_id), []).append(light)
    return [_count(group, truncated) for group in groups.values()]


def standing(record: Record, truncated: TruncatedIs) -> Verdict:
    """What a response counts as: one that ran into the cap is wrong, unless it is to be graded."""
    if truncated == "wrong" and record.stop == "length" and record.verdict is not NO_ANSWER:
        return Verdict.WRONG
    return record.verdict


def tallies(rows: Sequence[Count]) -> dict[str, Tally]:
    """The counts by data set, as arrays."""
    sets: dict[str, list[Count]] = {}
    for row in rows:
        sets.setdefault(row.data, []).append(row)
    return {name: _tally(name, group) for name, group in sets.items()}


def count_of(row: Mapping[str, Any], where: str) -> Count:
    """A count read back from a file."""
    try:
        count = Count(**row)
        numbers = [float(getattr(count, name) or 0) for name in NUMBERS]
        names = isinstance(count.data, str) and isinstance(count.problem_id, str)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where} does not hold counts by problem: {error}.") from None
    ordered = 0 <= count.correct <= count.graded <= count.rollouts and count.rollouts >= 1
    if not names or not ordered or not all(0 <= number < MOST for number in numbers):
        raise DataError(f"{where}: the counts of {count.problem_id!r} contradict each other.")
    return count


def _count(group: Sequence[Record], truncated: TruncatedIs) -> Count:
    stands = [standing(record, truncated) for record in group]
    ratios = [record.zip_ratio for record in group]
    right = [r for r, s in zip(ratios, stands, strict=True) if s is Verdict.CORRECT]
    wrong = [r for r, s in zip(ratios, stands, strict=True) if s in (Verdict.WRONG, NO_ANSWER)]
    return Count(
        group[0].data,
        group[0].problem_id,
        rollouts=len(group),
        graded=len(group) - stands.count(Verdict.UNGRADED),
        correct=stands.count(Verdict.CORRECT),
        no_answer=stands.count(NO_ANSWER),
        tokens=_sum([record.tokens for record in group]),
        truncated=_sum([None if r.stop is None else int(r.stop == "length") for r in group]),
        **_zips("zip", ratios),
        **_zips("zip_correct", right),
        **_zips("zip_wrong", wrong),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    """The sum, or unknown as soon as one of them is."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _zips(name: str, ratios: Sequence[float | None]) -> dict[str, Any]:
    some = [ratio for ratio in ratios if ratio is not None]
    return {f"{name}_sum": float(sum(some)), f"{name}_n": len(some)}


def _tally(name: str, rows: Sequence[Count]) -> Tally:
    columns = {field: [getattr(row, field) for row in rows] for field in NUMBERS}
    arrays: dict[str, Any] = {
        field: np.array(column, dtype=float) for field, column in columns.items()
    }
    return Tally(name, tuple(row.problem_id for row in rows), **arrays)
