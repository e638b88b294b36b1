"""From counts by problem to figures: each with its n, its interval and its doubts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crt.algorithm.batch import Array, BoolArray
from crt.algorithm.statistics import Interval, pass_at_k
from crt.evaluation.sets import groups
from crt.evaluation.strata import Ratio, interval, same
from crt.evaluation.tally import Tally

TRUNCATED_LIMIT = 0.05  # above these shares a figure is doubtful
UNGRADED_LIMIT = 0.01
NO_ANSWER_LIMIT = 0.20

Measure = Callable[[Tally], Ratio]


def _per(share: Array, known: BoolArray) -> Ratio:
    """A mean over the problems for which it is known."""
    return np.where(known, share, 0.0), known.astype(float)


def accuracy(tally: Tally) -> Ratio:
    """Acc in %: a problem's share of correct among its graded rollouts."""
    return _per(100 * tally.correct / np.maximum(tally.graded, 1), tally.graded > 0)


def lengths(tally: Tally) -> Ratio:
    """Len in tokens; known only if every response's is."""
    known = np.full(len(tally.ids), not np.isnan(tally.tokens).any())
    return _per(tally.tokens / tally.rollouts, known)


def truncated(tally: Tally) -> Ratio:
    """Share in % that ran into the cap."""
    known = np.full(len(tally.ids), not np.isnan(tally.truncated).any())
    return _per(100 * tally.truncated / tally.rollouts, known)


def no_answer(tally: Tally) -> Ratio:
    """Share in % in which no answer was found."""
    return _per(100 * tally.no_answer / tally.rollouts, tally.rollouts > 0)


def ungraded(tally: Tally) -> Ratio:
    """Share in % that the grader could not tell; Acc leaves these out."""
    left_out = tally.rollouts - tally.graded
    return _per(100 * left_out / tally.rollouts, tally.rollouts > 0)


def passing(k: int) -> Measure:
    """pass@k in %, over the problems with at least k graded rollouts."""

    def measure(tally: Tally) -> Ratio:
        share = pass_at_k(tally.correct, tally.graded, k)
        return _per(100 * share, ~np.isnan(share))

    return measure


def _matched(tally: Tally, column: int) -> Ratio:
    """R_zip at equal length to the base's responses, ours (0) or the base's (1)."""
    rows = np.zeros((len(tally.ids), 3)) if tally.matched is None else tally.matched
    return rows[:, column], rows[:, 2]


MEASURES: dict[str, Measure] = {
    "acc": accuracy,
    "len": lengths,
    "truncated": truncated,
    "no_answer": no_answer,
    "ungraded": ungraded,
    "r_zip": lambda tally: (tally.zip_sum, tally.zip_n),
    "r_zip_matched": lambda tally: _matched(tally, 0),
    "r_zip_matched_base": lambda tally: _matched(tally, 1),
    "r_zip_correct": lambda tally: (tally.zip_correct_sum, tally.zip_correct_n),
    "r_zip_wrong": lambda tally: (tally.zip_wrong_sum, tally.zip_wrong_n),
}


@dataclass(frozen=True)
class Figures:
    """One data set's figures, or the averages of several; a figure that is not known is absent."""

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


def figures(tallies: Sequence[Tally]) -> Figures:
    """Of one data set, or the macro average of several."""
    ks = powers(int(min(tally.rollouts.min() for tally in tallies)))
    measures = {**MEASURES, **{f"pass@{k}": passing(k) for k in ks}}
    found = {name: average(measure, tallies) for name, measure in measures.items()}
    return Figures(
        sets=tuple(tally.name for tally in tallies),
        problems=sum(len(tally.ids) for tally in tallies),
        rollouts=int(sum(tally.rollouts.sum() for tally in tallies)),
        values={name: value for name, value in found.items() if value is not None},
        acc_bounds=acc_bounds(tallies),
    )


def average(measure: Measure, tallies: Sequence[Tally]) -> Interval | None:
    """The mean over data sets; None when one of them does not have the figure."""
    strata: list[list[Ratio]] = []
    for tally in tallies:
        num, den = measure(tally)
        if not (den > 0).any():
            return None
        strata.append([(num[den > 0], den[den > 0])])
    return interval(same, strata)


def all_figures(tallies: Mapping[str, Tally]) -> dict[str, dict[str, Figures]]:
    """Every data set's figures, and the averages in-domain, out-domain, own and all."""
    return {
        "sets": {name: figures([tally]) for name, tally in tallies.items()},
        "averages": {
            group: figures([tallies[name] for name in members])
            for group, members in groups(tallies).items()
        },
    }


def warnings(tallies: Mapping[str, Tally], cap: int | None, wrong: bool = True) -> list[str]:
    """A sentence for every figure that should not be trusted as it stands."""
    return [
        f"{name}: {sentence}"
        for name, tally in tallies.items()
        for sentence in (*_doubtful(tally, cap, wrong), *_unknown(tally))
    ]


def _doubtful(tally: Tally, cap: int | None, wrong: bool) -> Iterator[str]:
    total = tally.rollouts.sum()
    cut = np.nan_to_num(tally.truncated).sum() / total
    unread = (total - tally.graded.sum()) / total
    silent = tally.no_answer.sum() / total
    if cut > TRUNCATED_LIMIT:
        at = f" of {cap} tokens" if cap else ""
        counted = "counted as wrong" if wrong else "graded as they stand"
        yield (
            f"{100 * cut:.1f} % of the responses ran into the cap{at} and are {counted}: Acc and "
            "Len would both be higher with a larger cap (--max-tokens)."
        )
    if unread > UNGRADED_LIMIT:
        low, high = acc_bounds([tally])
        yield (
            f"{100 * unread:.1f} % of the responses could not be graded and are left out of Acc; "
            f"with them it lies between {low:.1f} and {high:.1f}."
        )
    if silent - cut > NO_ANSWER_LIMIT:
        yield (
            f"{100 * silent:.1f} % of the responses give no answer in \\boxed{{}}, more than ran "
            "into the cap: check the prompt and the chat template."
        )


def _unknown(tally: Tally) -> Iterator[str]:
    without = int(np.isnan(tally.tokens).sum())
    if without:
        yield (
            f"Len is unknown, responses to {without} of {len(tally.ids)} problems have no token "
            "count: give `tokens`, or a tokenizer."
        )
    if np.isnan(tally.truncated).any():
        yield (
            "which responses ran into the cap is unknown, so none is counted as wrong for it: give "
            "`stop` or `finish_reason`."
        )


def acc_bounds(tallies: Sequence[Tally]) -> tuple[float, float]:
    """Acc in % if every ungraded response were wrong, and if every one were right."""
    low = [np.mean(100 * t.correct / t.rollouts) for t in tallies]
    high = [np.mean(100 * (t.correct + t.rollouts - t.graded) / t.rollouts) for t in tallies]
    return float(np.mean(low)), float(np.mean(high))


def powers(rollouts: int) -> list[int]:
    """1, 2, 4, … up to the number of rollouts."""
    return [2**i for i in range(rollouts.bit_length()) if 2**i <= rollouts]


def interval_json(value: Interval) -> dict[str, float | int | None]:
    """JSON has no NaN: what has no value is null."""
    return {name: None if np.isnan(part) else part for name, part in value._asdict().items()}
