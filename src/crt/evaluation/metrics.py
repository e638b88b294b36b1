"""From counts by problem to metrics: each with its n, its interval and its doubts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crt.algorithm.batch import Array, BoolArray
from crt.algorithm.statistics import Interval, pass_at_k
from crt.evaluation.bootstrap import Ratio, interval, same
from crt.evaluation.counts import DatasetCounts
from crt.evaluation.datasets import groups

TRUNCATED_LIMIT = 0.05  # above these shares a metric is doubtful
UNGRADED_LIMIT = 0.01
NO_ANSWER_LIMIT = 0.20

Measure = Callable[[DatasetCounts], Ratio]


def accuracy(counts: DatasetCounts) -> Ratio:
    """Acc in %: a problem's share of correct among its graded rollouts."""
    return _mean_over(100 * counts.correct / np.maximum(counts.graded, 1), counts.graded > 0)


def lengths(counts: DatasetCounts) -> Ratio:
    """Len in tokens; known only if every response's is."""
    known = np.full(len(counts.ids), not np.isnan(counts.tokens).any())
    return _mean_over(counts.tokens / counts.rollouts, known)


def truncated(counts: DatasetCounts) -> Ratio:
    """Share in % that ran into the cap."""
    known = np.full(len(counts.ids), not np.isnan(counts.truncated).any())
    return _mean_over(100 * counts.truncated / counts.rollouts, known)


def no_answer(counts: DatasetCounts) -> Ratio:
    """Share in % in which no answer was found."""
    return 100 * counts.no_answer / counts.rollouts, np.ones(len(counts.ids))


def ungraded(counts: DatasetCounts) -> Ratio:
    """Share in % that the grader could not tell; Acc leaves these out."""
    return 100 * (counts.rollouts - counts.graded) / counts.rollouts, np.ones(len(counts.ids))


def passing(k: int) -> Measure:
    """pass@k in %, over the problems with at least k graded rollouts."""

    def measure(counts: DatasetCounts) -> Ratio:
        share = pass_at_k(counts.correct, counts.graded, k)
        return _mean_over(100 * share, ~np.isnan(share))

    return measure


def _mean_over(value: Array, known: BoolArray) -> Ratio:
    """A mean over the problems for which it is known."""
    return np.where(known, value, 0.0), known.astype(float)


def _matched(counts: DatasetCounts, column: int) -> Ratio:
    """R_zip at equal length to the base's responses, ours (0) or the base's (1)."""
    rows = np.zeros((len(counts.ids), 3)) if counts.matched is None else counts.matched
    return rows[:, column], rows[:, 2]


MEASURES: dict[str, Measure] = {
    "acc": accuracy,
    "len": lengths,
    "truncated": truncated,
    "no_answer": no_answer,
    "ungraded": ungraded,
    "r_zip": lambda counts: (counts.zip_sum, counts.zip_n),
    "r_zip_matched": lambda counts: _matched(counts, 0),
    "r_zip_matched_base": lambda counts: _matched(counts, 1),
    "r_zip_correct": lambda counts: (counts.zip_correct_sum, counts.zip_correct_n),
    "r_zip_wrong": lambda counts: (counts.zip_wrong_sum, counts.zip_wrong_n),
}


@dataclass(frozen=True)
class Metrics:
    """One data set's metrics, or the averages of several; a metric that is not known is absent."""

    sets: tuple[str, ...]
    problems: int
    rollouts: int
    values: Mapping[str, Interval]  # acc, pass@k, len, …: keys of MEASURES
    acc_bounds: tuple[float, float]  # if every ungraded response were wrong, or right

    def as_json(self) -> dict[str, Any]:
        """Plain values; unknown bounds are null."""
        return {
            "sets": list(self.sets),
            "problems": self.problems,
            "rollouts": self.rollouts,
            "acc_bounds": list(self.acc_bounds),
            **{name: interval_json(value) for name, value in self.values.items()},
        }


def compute_metrics(counts: Sequence[DatasetCounts]) -> Metrics:
    """Of one data set, or the macro average of several."""
    ks = powers_of_two(int(min(each.rollouts.min() for each in counts)))
    measures = {**MEASURES, **{f"pass@{k}": passing(k) for k in ks}}
    values = {name: average(measure, counts) for name, measure in measures.items()}
    return Metrics(
        sets=tuple(each.name for each in counts),
        problems=sum(len(each.ids) for each in counts),
        rollouts=int(sum(each.rollouts.sum() for each in counts)),
        values={name: value for name, value in values.items() if value is not None},
        acc_bounds=acc_bounds(counts),
    )


def all_metrics(counts: Mapping[str, DatasetCounts]) -> dict[str, dict[str, Metrics]]:
    """Every data set's metrics, and the averages in-domain, out-domain, own and all."""
    return {
        "sets": {name: compute_metrics([each]) for name, each in counts.items()},
        "averages": {
            group: compute_metrics([counts[name] for name in members])
            for group, members in groups(counts).items()
        },
    }


def average(measure: Measure, counts: Sequence[DatasetCounts]) -> Interval | None:
    """The mean over data sets; None when one of them does not have the metric."""
    strata: list[list[Ratio]] = []
    for each in counts:
        num, den = measure(each)
        if not (den > 0).any():
            return None
        strata.append([(num[den > 0], den[den > 0])])
    return interval(same, strata)


def acc_bounds(counts: Sequence[DatasetCounts]) -> tuple[float, float]:
    """Acc in % if every ungraded response were wrong, and if every one were right."""
    low = [np.mean(100 * c.correct / c.rollouts) for c in counts]
    high = [np.mean(100 * (c.correct + c.rollouts - c.graded) / c.rollouts) for c in counts]
    return float(np.mean(low)), float(np.mean(high))


def warnings(counts: Mapping[str, DatasetCounts], cap: int | None, wrong: bool = True) -> list[str]:
    """A sentence for every metric that should not be trusted as it stands."""
    return [
        f"{name}: {sentence}"
        for name, each in counts.items()
        for sentence in (*_doubtful(each, cap, wrong), *_unknown(each))
    ]


def _doubtful(counts: DatasetCounts, cap: int | None, wrong: bool) -> Iterator[str]:
    total = counts.rollouts.sum()
    cut = np.nan_to_num(counts.truncated).sum() / total
    unread = (total - counts.graded.sum()) / total
    silent = counts.no_answer.sum() / total
    if cut > TRUNCATED_LIMIT:
        at = f" of {cap} tokens" if cap else ""
        counted = "counted as wrong" if wrong else "graded as they stand"
        yield (
            f"{100 * cut:.1f} % of the responses ran into the cap{at} and are {counted}: Acc and "
            "Len would both be higher with a larger cap (--max-tokens)."
        )
    if unread > UNGRADED_LIMIT:
        low, high = acc_bounds([counts])
        yield (
            f"{100 * unread:.1f} % of the responses could not be graded and are left out of Acc; "
            f"with them it lies between {low:.1f} and {high:.1f}."
        )
    if silent - cut > NO_ANSWER_LIMIT:
        yield (
            f"{100 * silent:.1f} % of the responses give no answer in \\boxed{{}}, more than ran "
            "into the cap: check the prompt and the chat template."
        )


def _unknown(counts: DatasetCounts) -> Iterator[str]:
    without = int(np.isnan(counts.tokens).sum())
    if without:
        yield (
            f"Len is unknown, responses to {without} of {len(counts.ids)} problems have no token "
            "count: give `tokens`, or a tokenizer."
        )
    if np.isnan(counts.truncated).any():
        yield (
            "which responses ran into the cap is unknown, so none is counted as wrong for it: give "
            "`stop` or `finish_reason`."
        )


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4, … up to `most`."""
    return [2**i for i in range(most.bit_length())]


def interval_json(value: Interval) -> dict[str, float | int | None]:
    """JSON has no NaN: what has no value is null."""
    return {name: None if np.isnan(part) else part for name, part in value._asdict().items()}


def nested_json(nested: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Metrics or comparisons of sets and averages as plain values."""
    return {
        kind: {name: each.as_json() for name, each in part.items()} for kind, part in nested.items()
    }
