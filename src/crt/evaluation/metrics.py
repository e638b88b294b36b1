"""From graded responses to counts by problem, and from counts to metrics with their intervals."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from crt.algorithm.batch import Array
from crt.algorithm.metrics import zip_ratio
from crt.algorithm.statistics import Interval, pass_at_k
from crt.evaluation.datasets import sets_and_averages
from crt.types import Rollout, Verdict

TruncatedIs = Literal["wrong", "grade"]
MAX_TOKENS = 1e15  # more than anybody will ever sample of one problem
ZIPPED = {  # whose R_zip is summed: all responses, the correct and the wrong ones
    "zip": set(Verdict),
    "zip_correct": {Verdict.CORRECT},
    "zip_wrong": {Verdict.WRONG, Verdict.NO_ANSWER},
}
NUMBERS = (
    *("rollouts", "graded", "correct", "no_answer", "tokens", "thinking", "truncated"),
    *(f"{name}_{part}" for name in ZIPPED for part in ("sum", "n")),
)
TRUNCATED_LIMIT = 0.05  # above these shares a metric is doubtful
UNGRADED_LIMIT = 0.01
NO_ANSWER_LIMIT = 0.20
RESAMPLES = 2000
LEVEL = 0.95
SEED = 0  # of the bootstrap: the same rollouts give the same interval everywhere

NEWER = ("thinking",)  # counts that evaluations of earlier versions lack
Outcome = tuple[Verdict, int | None, int | None, str | None, float]
"""Verdict, length, tokens of thinking, stop, R_zip or NaN."""
Ratio = tuple[Array, Array]  # (P,) numerator and denominator: the metric is Σ num / Σ den
Stratum = Sequence[Ratio]  # the ratios of one data set, all over the same problems


# Counts by problem: all that the metrics are made of, and small beside the responses


@dataclass(frozen=True, eq=False)
class DatasetCounts:
    """A data set's counts by problem, (P,) each; NaN is unknown.

    `rollouts` = `graded` + `ungraded`; `correct` and `no_answer` are among the graded.
    The zip sums are over responses that are not empty; the wrong ones have no answer or another.
    """

    name: str
    ids: tuple[str, ...]
    rollouts: Array
    graded: Array
    correct: Array
    no_answer: Array
    tokens: Array
    thinking: Array  # of the tokens
    truncated: Array
    zip_sum: Array
    zip_n: Array
    zip_correct_sum: Array
    zip_correct_n: Array
    zip_wrong_sum: Array
    zip_wrong_n: Array
    matched: Array  # (P, 3) at equal length: sum of R_zip, of the base's, pairs; 0 if not read

    def select(self, ids: Sequence[str]) -> "DatasetCounts":
        """These problems, in this order."""
        row = {problem_id: index for index, problem_id in enumerate(self.ids)}
        rows = [row[problem_id] for problem_id in ids]
        arrays = {name: getattr(self, name)[rows] for name in (*NUMBERS, "matched")}
        return replace(self, ids=tuple(ids), **arrays)


def effective_verdict(rollout: Rollout, truncated: TruncatedIs) -> Verdict:
    """What a response counts as: one that ran into the cap is wrong, unless it is to be graded."""
    cut = truncated == "wrong" and rollout.stop == "length"
    return Verdict.WRONG if cut and rollout.verdict is not Verdict.NO_ANSWER else rollout.verdict


def count_rollouts(rollouts: Iterable[Rollout], truncated: TruncatedIs) -> list[dict[str, Any]]:
    """A row per problem, in the order in which problems first appear; None is unknown."""
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    for rollout in rollouts:
        verdict = effective_verdict(rollout, truncated)
        lengths = rollout.length, rollout.thinking
        outcome = (verdict, *lengths, rollout.stop, zip_ratio(rollout.text))
        outcomes.setdefault((rollout.dataset, rollout.problem_id), []).append(outcome)
    return [
        {"data": data, "problem_id": problem_id, **_count(group)}
        for (data, problem_id), group in outcomes.items()
    ]


def _count(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    verdicts, lengths, thinking, stops, _ = zip(*outcomes, strict=True)
    counts: dict[str, float | None] = {
        "rollouts": len(outcomes),
        "graded": len(outcomes) - verdicts.count(Verdict.UNGRADED),
        "correct": verdicts.count(Verdict.CORRECT),
        "no_answer": verdicts.count(Verdict.NO_ANSWER),
        "tokens": None if None in lengths else sum(lengths),
        "thinking": None if None in thinking else sum(thinking),
        "truncated": None if None in stops else stops.count("length"),
    }
    for name, among in ZIPPED.items():
        ratios = [ratio for verdict, *_, ratio in outcomes if verdict in among]
        known = [ratio for ratio in ratios if not np.isnan(ratio)]
        counts |= {f"{name}_sum": float(sum(known)), f"{name}_n": len(known)}
    return counts


def counts_by_dataset(rows: Iterable[Mapping[str, Any]]) -> dict[str, DatasetCounts]:
    """The counts of each data set, as arrays."""
    sets: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        sets.setdefault(row["data"], []).append(row)
    return {
        name: DatasetCounts(
            name,
            tuple(row["problem_id"] for row in group),
            **{
                key: np.array([row.get(key) if key in NEWER else row[key] for row in group], float)
                for key in NUMBERS
            },
            matched=np.zeros((len(group), 3)),
        )
        for name, group in sets.items()
    }


# Metrics of a data set as ratios


def accuracy(counts: DatasetCounts) -> Ratio:
    """Acc in %: a problem's share of correct among its graded rollouts."""
    return _mean_over(100 * counts.correct / np.maximum(counts.graded, 1), counts.graded > 0)


def lengths(counts: DatasetCounts) -> Ratio:
    """Len in tokens; known only if every response's is."""
    return _per_rollout(counts, counts.tokens)


def _thinking(counts: DatasetCounts) -> Array:
    """Tokens of thinking; not known of a model that marks none."""
    return np.where(counts.thinking.sum() > 0, counts.thinking, np.nan)


def passing(k: int) -> Callable[[DatasetCounts], Ratio]:
    """pass@k in %, over the problems with at least k graded rollouts."""

    def measure(counts: DatasetCounts) -> Ratio:
        share = pass_at_k(counts.correct, counts.graded, k)
        return _mean_over(100 * share, ~np.isnan(share))

    return measure


def _per_rollout(counts: DatasetCounts, total: Array) -> Ratio:
    """A problem's total over its rollouts; the metric is unknown if any problem's total is."""
    known = np.full(len(counts.ids), not np.isnan(total).any())
    return _mean_over(total / counts.rollouts, known)


def _mean_over(value: Array, known: Any) -> Ratio:
    """A mean over the problems for which it is known."""
    return np.where(known, value, 0.0), known.astype(float)


Measure = Callable[[DatasetCounts], Ratio]
MEASURES: dict[str, Measure] = {  # shares in %; Acc leaves out what the grader could not tell
    "acc": accuracy,
    "len": lengths,
    "thinking": lambda counts: _per_rollout(counts, _thinking(counts)),
    "answer": lambda counts: _per_rollout(counts, counts.tokens - _thinking(counts)),
    "truncated": lambda counts: _per_rollout(counts, 100 * counts.truncated),
    "no_answer": lambda counts: _per_rollout(counts, 100 * counts.no_answer),
    "ungraded": lambda counts: _per_rollout(counts, 100 * (counts.rollouts - counts.graded)),
    "r_zip": lambda counts: (counts.zip_sum, counts.zip_n),
    "r_zip_matched": lambda counts: (counts.matched[:, 0], counts.matched[:, 2]),
    "r_zip_matched_base": lambda counts: (counts.matched[:, 1], counts.matched[:, 2]),
    "r_zip_correct": lambda counts: (counts.zip_correct_sum, counts.zip_correct_n),
    "r_zip_wrong": lambda counts: (counts.zip_wrong_sum, counts.zip_wrong_n),
}


# Intervals of macro averages: problems are redrawn within each data set, sets weigh the same


def interval(statistic: Callable[..., Array], strata: Sequence[Stratum]) -> Interval:
    """A function of macro averages of ratios, with its interval.

    Each ratio is taken within a data set, then averaged over the data sets; `statistic` takes
    these averages and works element by element. With one data set and denominators of 1 it is
    `crt.algorithm.statistics.bootstrap`. The interval is NaN where some resample has no value.
    """
    problems = sum(len(stratum[0][0]) for stratum in strata)
    value, resamples = resample(statistic, strata)
    if not np.isfinite(resamples).all() or not np.isfinite(value):
        return Interval(value, float("nan"), float("nan"), problems)
    low, high = np.quantile(resamples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, min(float(low), value), max(float(high), value), problems)


def resample(statistic: Callable[..., Array], strata: Sequence[Stratum]) -> tuple[float, Array]:
    """The value, and (R,) what it is in each resample; draws depend on the sizes alone."""
    values = [np.array([[num, den] for num, den in stratum]) for stratum in strata]  # (K, 2, P)
    sums = [v @ _draws(v.shape[2], SEED + i).T for i, v in enumerate(values)]  # (K, 2, R)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.mean([np.divide(*v.sum(axis=2).T) for v in values], axis=0)  # (K,)
        resampled = np.mean([s[:, 0] / s[:, 1] for s in sums], axis=0)  # (K, R)
    return float(statistic(*whole)), np.asarray(statistic(*resampled))


@lru_cache(maxsize=24)
def _draws(problems: int, seed: int) -> Array:
    """(R, P): how often each problem is drawn; kept, for drawing takes longer than all the rest."""
    rng = np.random.default_rng(seed)
    shares = np.full(problems, 1.0 / problems)
    return rng.multinomial(problems, shares, size=RESAMPLES).astype(float)


def same(value: Array) -> Array:
    """The average itself."""
    return value


def average(measure: Measure, counts: Sequence[DatasetCounts]) -> Interval | None:
    """The mean over data sets; None when one of them does not have the metric."""
    strata: list[list[Ratio]] = []
    for each in counts:
        num, den = measure(each)
        if not (den > 0).any():
            return None
        strata.append([(num[den > 0], den[den > 0])])
    return interval(same, strata)


# Metrics of data sets and of their averages


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
    most = int(min(each.rollouts.min() for each in counts))
    measures = {**MEASURES, **{f"pass@{k}": passing(k) for k in powers_of_two(most)}}
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
    return sets_and_averages(counts, compute_metrics)


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


def interval_json(value: Interval | None) -> dict[str, float | int | None] | None:
    """JSON has no NaN: what has no value is null."""
    if value is None:
        return None
    return {name: None if np.isnan(part) else part for name, part in value._asdict().items()}


def nested_json(nested: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Metrics or comparisons of sets and averages as plain values."""
    return {
        kind: {name: each.as_json() for name, each in part.items()} for kind, part in nested.items()
    }
