"""Audit: how much a model overthinks and what could be saved, measured on its own responses.

Nobody judges but the grader. It reads a response up to the end of each sentence, at most
`MOST_SENTENCES` of them, as if it ended there. An answer is what stands in the last box; without
one it is the last number, where the right answer is a number that is not in the question.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crt.algorithm.metrics import matched_zip_ratios
from crt.algorithm.statistics import Interval
from crt.config import GradingConfig
from crt.errors import ConfigError, DataError
from crt.evaluation.completions import score, token_ends
from crt.evaluation.datasets import sets_and_averages, short_name
from crt.evaluation.evaluator import Note, Plan, Tell, evaluate
from crt.evaluation.metrics import (
    Ratio,
    all_metrics,
    effective_verdict,
    interval,
    interval_json,
    nested_json,
    same,
)
from crt.evaluation.series import is_run
from crt.evaluation.store import MANIFEST, SERIES, Evaluation, is_evaluation, load
from crt.grading.extract import CLOSE_THINKING, NUMBER, OPEN_THINKING, last_number
from crt.grading.grader import Grader, grader_identity, make_grader
from crt.grading.verifiers import FREE, Item, Task, verify
from crt.types import Problem, Rollout, Verdict

MOST_SENTENCES = 64  # of a response that are graded, evenly spaced, the last among them
MOST_CHARACTERS = 200_000  # of a response that are read: some 50,000 tokens
CUTS = (25, 50, 75)  # % of a response's tokens
NGRAM = 4  # words
CHUNK = 500  # responses graded together
PROBLEM_FIELDS = ("rollouts", "graded", "right", "mean", "shortest_solved", "after")
BINS = ("never", "up to half", "over half", "always")  # how often a problem is solved

DOUBT_WORDS = re.compile(
    r"\b(?:wait|hmm+|hold on|alternatively|actually|on second thought|oh no|hang on"
    r"|let(?:'s| me| us) (?:just |quickly )?(?:double[- ]?check|re-?check|check|re-?verify|verify"
    r"|re-?calculate|re-?compute|re-?think|re-?read|re-?consider|re-?examine|confirm|make sure"
    r"|think again|try again|go over|see if|start over)(?: (?:this|that|it|my work))?"
    r"(?: (?:once more|again|carefully))*"
    r"|double[- ]?check(?:ing)?|just to (?:be (?:sure|safe)|make sure|confirm)"
    r"|to (?:be (?:sure|safe)|make sure)|am i (?:sure|missing)|is (?:that|this) (?:right|correct)"
    r"|but let me|another way)\b",
    re.IGNORECASE,
)
# No run of characters is read twice: a response may be a hundred thousand dots or empty lines.
_END = re.compile(r"(?<![.!?])[.!?]++[\"'”’)\]*]*+(?=\s|$)|\n++")
_MARKER = re.compile(r"(?:[>*#(-]|[^\S\n])*+\d+[.)]\**")  # of a list: no sentence by itself
_LABEL = re.compile(  # numbers that count steps
    rf"^{_MARKER.pattern}(?=\s)|\b(?:step|case|part|method|option|equation|line)\s+\d+",
    re.IGNORECASE | re.MULTILINE,
)


# Where a response has its right answers


class Reading(NamedTuple):
    """What was read of a response; NaN and None are unknown."""

    text: str
    correct: bool | None
    tokens: float
    first_right: float  # share of the tokens up to the first right answer; NaN if none was seen
    at_cuts: tuple[bool, ...] | None  # whether its answer is right when it is cut there


def sentence_ends(text: str) -> list[int]:
    """Where sentences and lines end, the end of what is read among them."""
    ends: list[int] = []
    stop = min(len(text), MOST_CHARACTERS)
    for match in _END.finditer(text, 0, stop):
        if not _MARKER.fullmatch(text, ends[-1] if ends else 0, match.end()):
            ends.append(match.end())
    ends += [stop] if stop and ends[-1:] != [stop] else []
    spaced = np.linspace(0, len(ends) - 1, min(len(ends), MOST_SENTENCES)).round().astype(int)
    return [ends[place] for place in spaced]


def has_own_number(problem: Problem) -> bool:
    """The answer is a number, and the question does not have it: then to state it is to solve."""
    gold = NUMBER.fullmatch(problem.answer.strip("$ "))
    stated = {_plain(number[0]) for number in NUMBER.finditer(problem.question)}
    return bool(gold) and not problem.options and _plain(gold[0]) not in stated


def _plain(number: str) -> str:
    whole = number.replace(",", "").replace("−", "-").lstrip("-+")
    return (whole.rstrip("0").rstrip(".") if "." in whole else whole).lstrip("0")


def right_at(
    texts: Sequence[tuple[str, Problem]], grader: Grader
) -> list[tuple[list[int], list[bool]]]:
    """Of each response its sentences' ends, and whether the answer at each is right."""
    ends = [sentence_ends(text) for text, _ in texts]
    items: list[Item] = []
    for (text, problem), places in zip(texts, ends, strict=True):
        if (problem.verifier or grader.verifier) == "number":  # that one has no other place
            text, places = "", [0] * len(places)
        # it is read while it thinks: what was boxed in its thoughts counts
        parts = (text[:end].replace(OPEN_THINKING, "") for end in places)
        items += [Item(part.replace(CLOSE_THINKING, ""), problem) for part in parts]
    grades = iter(grader.grade_many(items))
    states: list[tuple[list[int], list[bool]]] = []
    for (text, problem), places in zip(texts, ends, strict=True):
        numbers = _right_numbers(text, places, problem)
        verdicts = [grade.verdict for grade in islice(grades, len(places))]
        right = [
            number if verdict is Verdict.NO_ANSWER else verdict is Verdict.CORRECT
            for verdict, number in zip(verdicts, numbers, strict=True)
        ]
        states.append((places, right))
    return states


def _right_numbers(text: str, places: Sequence[int], problem: Problem) -> Iterator[bool]:
    """Whether the last number before each place is the answer; labels of steps are none."""
    readable, right, start = has_own_number(problem), False, 0
    for end in places:
        number = last_number(_LABEL.sub("", text[start:end])).answer if readable else None
        if number is not None:
            right = bool(verify(Task("number", number, problem)).equal)
        yield right
        start = end


def read(
    rollout: Rollout,
    verdict: Verdict,
    states: tuple[Sequence[int], Sequence[bool]] | None,
    token_ends: Callable[[str], Sequence[int]] | None = None,
) -> Reading:
    """A reading of a response, with places in tokens, or in characters as if they were."""
    correct = None if verdict is Verdict.UNGRADED else verdict is Verdict.CORRECT
    tokens = float("nan") if rollout.length is None else float(rollout.length)
    if states is None:
        return Reading(rollout.text, correct, tokens, float("nan"), None)
    exact = token_ends is not None and len(rollout.text) <= MOST_CHARACTERS
    ruler: Sequence[int] = token_ends(rollout.text) if token_ends and exact else ()
    ruler = ruler or range(1, len(rollout.text) + 1)
    ends, right = states
    shares = [bisect_right(ruler, end) / len(ruler) for end in ends]
    first_right = next((at for at, state in zip(shares, right, strict=True) if state), np.nan)
    states_at = [(bisect_right(shares, cut / 100) - 1) for cut in CUTS]
    at_cuts = tuple(place >= 0 and right[place] for place in states_at)
    if correct and np.isnan(first_right):
        first_right = 1.0  # it is right, and that shows only at its end
    return Reading(rollout.text, correct, tokens, float(first_right), at_cuts)


# Figures: ratios of sums over problems, so that each has an interval over problems


FIGURES = {  # numerator and denominator of `sums`, and what the ratio is multiplied by
    "stated": ("stated", "right", 100),
    "tokens_after": ("after", "right", 1),
    "share_after": ("after", "tokens_right", 100),
    **{f"cut_{cut}": (f"right_{cut}", "read", 100) for cut in CUTS},
    "lost": ("lost", "wrong", 100),
    "len_correct": ("tokens_right", "right", 1),
    "len_wrong": ("tokens_wrong", "wrong", 1),
    "shortest": ("shortest_solved", "solved", 1),
    "mean_of_solved": ("mean_solved", "solved", 1),
    "shortest_share": ("shortest_solved", "mean_solved", 100),
    "saved_tokens": ("saved", "several", 1),
    "saved": ("saved", "mean_several", 100),
    "repeated": ("repeated", "repeatable", 100),
    "doubts": ("doubts", "tokens", 1000),
    "doubted": ("doubted", "rollouts", 100),
    "r_zip_matched_correct": ("zip_right", "pairs", 1),
    "r_zip_matched_wrong": ("zip_wrong", "pairs", 1),
}


def repeated_share(text: str) -> float:
    """1 − different n-grams / n-grams of words (seq-rep-n, Welleck et al. 2020); NaN if too few."""
    words = text[:MOST_CHARACTERS].split()
    grams = Counter(zip(*(words[place:] for place in range(NGRAM)), strict=False))
    return 1 - len(grams) / grams.total() if grams else float("nan")


def sums(readings: Sequence[Reading]) -> dict[str, float]:
    """All that the figures need of one problem; NaN is unknown."""
    right = [reading for reading in readings if reading.correct]
    wrong = [reading for reading in readings if reading.correct is False]
    read = [r for r in readings if r.correct is not None and r.at_cuts is not None]
    mean = float(np.mean([reading.tokens for reading in readings]))
    shortest = min((reading.tokens for reading in right), default=mean)
    repeated = [repeated_share(reading.text) for reading in readings]
    doubts = [len(DOUBT_WORDS.findall(reading.text[:MOST_CHARACTERS])) for reading in readings]
    texts = [part[0].text[:MOST_CHARACTERS] if part else "" for part in (right, wrong)]
    zips = matched_zip_ratios(*texts)  # the first right and the first wrong one
    several = float(len(readings) > 1)  # of one response nobody knows how short it could be
    solved = several * bool(right)
    return {
        "rollouts": len(readings),
        "graded": len(right) + len(wrong),
        "right": len(right),
        "wrong": len(wrong),
        "read": len(read),
        "tokens": sum(reading.tokens for reading in readings),
        "tokens_right": sum(reading.tokens for reading in right),
        "tokens_wrong": sum(reading.tokens for reading in wrong),
        "stated": sum(reading.first_right for reading in right),
        "after": sum(reading.tokens * (1 - reading.first_right) for reading in right),
        "lost": sum(reading.first_right <= 1 for reading in wrong) if len(read) else float("nan"),
        **{
            f"right_{cut}": sum(bool(r.at_cuts and r.at_cuts[place]) for r in read)
            for place, cut in enumerate(CUTS)
        },
        "mean": mean,
        "several": several,
        "mean_several": several * mean,
        "solved": solved,
        "mean_solved": solved * mean,
        "shortest_solved": solved * shortest,
        "saved": mean - shortest,
        "repeated": float(np.nansum(repeated)),
        "repeatable": int((~np.isnan(repeated)).sum()),
        "doubts": sum(doubts),
        "doubted": sum(count > 0 for count in doubts),
        "pairs": 0 if np.isnan(zips[0]) else 1,
        "zip_right": float(np.nan_to_num(zips[0])),
        "zip_wrong": float(np.nan_to_num(zips[1])),
    }


Rows = Sequence[Mapping[str, float]]  # the sums of each problem of a data set


def figures(sets: Sequence[Rows]) -> dict[str, Interval]:
    """Of one data set, or the average of several; what one of them does not have is absent."""
    values: dict[str, Interval] = {}
    for name, (above, below, scale) in FIGURES.items():
        strata = [ratio(rows, above, below, scale) for rows in sets]
        if all(den.size and np.isfinite([num, den]).all() for num, den in strata):
            values[name] = interval(same, [[pair] for pair in strata])
    return values


def ratio(rows: Rows, above: str, below: str, scale: float) -> Ratio:
    """(P,) both sums, of the problems on which the figure can be measured."""
    num, den = (np.array([row[name] for row in rows], float) for name in (above, below))
    some = den != 0
    return scale * num[some], den[some]


def by_difficulty(rows: Rows) -> list[dict[str, Any]]:
    """Length by how often the model solves a problem, all data sets as one."""
    graded = [row for row in rows if row["graded"] and np.isfinite(row["tokens"])]
    rates = [row["right"] / row["graded"] for row in graded]
    places = [0 if rate == 0 else 3 if rate == 1 else 1 if rate <= 0.5 else 2 for rate in rates]
    table: list[dict[str, Any]] = []
    kinds = (("all", "rollouts", "tokens"), *((k, k, f"tokens_{k}") for k in ("right", "wrong")))
    for place, name in enumerate(BINS):
        own = [row for row, at in zip(graded, places, strict=True) if at == place]
        for kind, below, above in kinds:
            num, den = ratio(own, above, below, 1)
            if den.size:
                value = interval_json(interval(same, [[(num, den)]]))
                table.append({"solved": name, "kind": kind, **(value or {})})
    return table


def stated_curve(sets: Iterable[Sequence[Reading]]) -> list[dict[str, float]]:
    """% of the right responses in which the right answer stood by so many % of the tokens."""
    places = np.array([r.first_right for readings in sets for r in readings if r.correct])
    places = places[~np.isnan(places)]
    if not places.size:
        return []
    return [{"cut": cut, "share": float(100 * np.mean(places <= cut / 100))} for cut in range(101)]


def monthly(month: "Load", length: Interval, saved: Interval | None) -> dict[str, Any]:
    """Tokens and money of a month at this length."""

    def scale(value: Interval | None, factor: float) -> dict[str, Any] | None:
        if value is None:
            return None
        ends = (factor * value.value, factor * value.low, factor * value.high)
        return interval_json(Interval(*ends, value.problems))

    per_token = month.requests * month.price / 1e6
    return {
        "requests": month.requests,
        "price_per_million": month.price,
        "tokens": scale(length, month.requests),
        "cost": scale(length, per_token),
        "saved_tokens": scale(saved, month.requests),
        "saved_cost": scale(saved, per_token),
    }


# An evaluation's audit


@dataclass(frozen=True)
class Load:
    """What a model is asked in a month, and what it costs."""

    requests: float = 0.0
    price: float = 0.0  # of a million generated tokens

    def __post_init__(self) -> None:
        if not (0 <= self.requests <= 1e15 and 0 <= self.price <= 1e9):
            raise ConfigError(
                f"--requests-per-month {self.requests:g} and --price-per-million {self.price:g} "
                "cannot be: both are 0 or more"
            )


def audit(
    evaluation: Evaluation,
    grading: GradingConfig | None = None,
    *,
    month: Load | None = None,
    tokenizer: str | None = None,
) -> dict[str, Any]:
    """Every figure of the audit as plain values, as audit.json has them."""
    grading = grading or GradingConfig()
    measure = token_ends(tokenizer) if tokenizer else None
    problems = problems_of(evaluation)
    readings = read_all(evaluation, grading, measure)
    by_set = {name: [sums(group) for group in part.values()] for name, part in readings.items()}
    nested = sets_and_averages(by_set, figures)
    metrics = nested_json(all_metrics(evaluation.counts))
    length, month = metrics["averages"]["all"].get("len"), month or Load()
    theirs, ours = evaluation.manifest["grader"], grader_identity(grading)
    doubt = f"the responses were graded by {theirs}; where they become right was read by {ours}"
    saved = nested["averages"]["all"].get("saved_tokens")
    return {
        "format": 1,
        "name": evaluation.name,
        "places": "tokens" if measure else "characters",
        "most_sentences": MOST_SENTENCES,
        "numbers": float(100 * np.mean([has_own_number(problem) for problem in problems.values()])),
        "metrics": metrics,
        "figures": {
            kind: {n: {k: interval_json(v) for k, v in part.items()} for n, part in parts.items()}
            for kind, parts in nested.items()
        },
        "by_difficulty": by_difficulty([row for rows in by_set.values() for row in rows]),
        "stated_by": stated_curve(r for part in readings.values() for r in part.values()),
        "problems": [
            {"data": name, "problem_id": key}
            | {field: None if np.isnan(row[field]) else row[field] for field in PROBLEM_FIELDS}
            for name, part in readings.items()
            for key, row in zip(part, by_set[name], strict=True)
        ],
        "month": monthly(month, Interval(**length), saved) if month.requests and length else None,
        "warnings": [*evaluation.warnings, *([] if theirs == ours else [doubt])],
    }


def read_all(
    evaluation: Evaluation,
    grading: GradingConfig,
    measure: Callable[[str], Sequence[int]] | None = None,
) -> dict[str, dict[str, list[Reading]]]:
    """Data set → problem → readings of its responses."""
    problems = problems_of(evaluation)
    truncated = evaluation.manifest["truncated"]
    readings: dict[str, dict[str, list[Reading]]] = {name: {} for name in evaluation.counts}
    rollouts = evaluation.rollouts()
    with make_grader(grading) as grader:
        while chunk := list(islice(rollouts, CHUNK)):
            keys = [(rollout.dataset, rollout.problem_id) for rollout in chunk]
            if missing := next((key for key in keys if key not in problems), None):
                raise DataError(f"{evaluation.folder}: problem {missing[1]!r} is not listed.")
            free = [(problems[key].verifier or grading.verifier) in FREE for key in keys]
            texts = [
                (rollout.text, problems[key])
                for rollout, key, is_free in zip(chunk, keys, free, strict=True)
                if is_free
            ]
            states = iter(right_at(texts, grader))
            for rollout, key, is_free in zip(chunk, keys, free, strict=True):
                verdict = effective_verdict(rollout, truncated)
                reading = read(rollout, verdict, next(states) if is_free else None, measure)
                readings[key[0]].setdefault(key[1], []).append(reading)
    return readings


def problems_of(evaluation: Evaluation) -> dict[tuple[str, str], Problem]:
    """The problems as they were written beside the responses."""
    names = [field.name for field in fields(Problem)]
    problems: dict[tuple[str, str], Problem] = {}
    try:
        for row in evaluation.problems():
            values = {name: row[name] for name in names if name in row}
            lists = {name: tuple(values.get(name) or ()) for name in ("options", "accepted")}
            problems[str(row["data"]), str(row["id"])] = Problem(**{**values, **lists})
    except (KeyError, TypeError) as error:
        raise DataError(f"{evaluation.folder}: its problems cannot be read: {error!r}.") from None
    return problems


def find_evaluation(
    source: str,
    plan: Callable[[], Plan],
    out: Path | None,
    *,
    name: str | None = None,
    tell: Tell | None = None,
    note: Note = lambda _: None,
    **scoring: Any,
) -> Evaluation:
    """An evaluation that is there, completions that are graded, or a model that is sampled."""
    path = Path(source)
    if is_evaluation(source):
        return load(path, name)
    if (path / SERIES).is_file() or is_run(path):
        inside = [file.parent for file in sorted(path.rglob(MANIFEST))]
        advice = f"name one, such as {inside[0]}" if inside else "crt eval makes them"
        raise ConfigError(f"{path} is no single evaluation: {advice}")
    if path.is_file():
        label = short_name(name or path.name.partition(".")[0])
        folder = out or Path("evaluations") / label
        return score(path, scoring.pop("data"), folder, name=name, note=note, **scoring)
    return evaluate(plan(), out, name=name, tell=tell, note=note)
