"""Counts by problem: all that the metrics are made of, and small beside the responses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from crt.algorithm.batch import Array
from crt.algorithm.metrics import zip_ratio
from crt.types import Rollout, Verdict

TruncatedIs = Literal["wrong", "grade"]
MAX_TOKENS = 1e15  # more than anybody will ever sample of one problem


@dataclass(frozen=True)
class ProblemCounts:
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
class DatasetCounts:
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

    def select(self, ids: Sequence[str]) -> "DatasetCounts":
        """These problems, in this order."""
        row = {problem_id: index for index, problem_id in enumerate(self.ids)}
        rows = [row[problem_id] for problem_id in ids]
        arrays = {name: getattr(self, name)[rows] for name in NUMBERS}
        matched = None if self.matched is None else self.matched[rows]
        return DatasetCounts(self.name, tuple(ids), **arrays, matched=matched)


NUMBERS = tuple(field.name for field in fields(ProblemCounts))[2:]
Outcome = tuple[Verdict, int | None, str | None, float]  # verdict, length, stop, R_zip or NaN


def effective_verdict(rollout: Rollout, truncated: TruncatedIs) -> Verdict:
    """What a response counts as: one that ran into the cap is wrong, unless it is to be graded."""
    cut = truncated == "wrong" and rollout.stop == "length"
    return Verdict.WRONG if cut and rollout.verdict is not Verdict.NO_ANSWER else rollout.verdict


def count_rollouts(rollouts: Iterable[Rollout], truncated: TruncatedIs) -> list[ProblemCounts]:
    """Every problem's counts, in the order in which problems first appear; texts are not kept."""
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    for rollout in rollouts:
        verdict = effective_verdict(rollout, truncated)
        outcome = (verdict, rollout.length, rollout.stop, zip_ratio(rollout.text))
        outcomes.setdefault((rollout.dataset, rollout.problem_id), []).append(outcome)
    return [_count(*problem, group) for problem, group in outcomes.items()]


def counts_by_dataset(rows: Iterable[ProblemCounts]) -> dict[str, DatasetCounts]:
    """The counts of each data set, as arrays."""
    sets: dict[str, list[ProblemCounts]] = {}
    for row in rows:
        sets.setdefault(row.data, []).append(row)
    return {
        name: DatasetCounts(
            name,
            tuple(row.problem_id for row in group),
            **{field: np.array([getattr(r, field) for r in group], float) for field in NUMBERS},
        )
        for name, group in sets.items()
    }


def _count(data: str, problem_id: str, outcomes: Sequence[Outcome]) -> ProblemCounts:
    verdicts, lengths, stops, _ = zip(*outcomes, strict=True)
    zip_sum, zip_n = _zip_sum(outcomes, set(Verdict))
    correct_sum, correct_n = _zip_sum(outcomes, {Verdict.CORRECT})
    wrong_sum, wrong_n = _zip_sum(outcomes, {Verdict.WRONG, Verdict.NO_ANSWER})
    return ProblemCounts(
        data,
        problem_id,
        rollouts=len(outcomes),
        graded=len(outcomes) - verdicts.count(Verdict.UNGRADED),
        correct=verdicts.count(Verdict.CORRECT),
        no_answer=verdicts.count(Verdict.NO_ANSWER),
        tokens=None if None in lengths else sum(lengths),
        truncated=None if None in stops else stops.count("length"),
        zip_sum=zip_sum,
        zip_n=zip_n,
        zip_correct_sum=correct_sum,
        zip_correct_n=correct_n,
        zip_wrong_sum=wrong_sum,
        zip_wrong_n=wrong_n,
    )


def _zip_sum(outcomes: Sequence[Outcome], among: set[Verdict]) -> tuple[float, int]:
    """The sum of R_zip over the responses with these verdicts, and how many are not empty."""
    ratios = [r for verdict, _, _, r in outcomes if verdict in among and not np.isnan(r)]
    return float(sum(ratios)), len(ratios)
