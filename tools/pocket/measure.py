"""The table of styles, which is the ground truth by which methods are judged on this model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from crt.algorithm.metrics import zip_ratio
from crt.pocket.problems import LEVELS, level_of, problems
from crt.types import Rollout
from tools.pocket.rollouts import is_correct, sample_rollouts
from tools.pocket.styles import FIRST_WORD, STYLES

AT_ONCE = 64  # problems in one batch
CHECKED = 256  # problems of a check that the shipped model is as measured


@dataclass(frozen=True)
class Figures:
    """Answers of one style, or free ones: percent right and mean tokens, in all and by level."""

    share: float  # of free answers that begin with this style's first word, percent
    accuracy: float
    length: float
    length_spread: float  # standard deviation
    zip_ratio: float
    accuracy_by_level: dict[int, float]
    length_by_level: dict[int, float]
    share_by_level: dict[int, float]
    rollouts: int


@dataclass(frozen=True)
class Best:
    """The shortest mean length at an accuracy, and the mixture of styles by level that gives it."""

    accuracy: float
    length: float
    shares: dict[int, dict[str, float]]


@dataclass(frozen=True)
class Check:
    """Where free answers to other held-out problems, one each, must lie in percent and tokens."""

    problems: int
    accuracy: tuple[float, float]
    length: tuple[float, float]


@dataclass(frozen=True)
class Table:
    """Everything measured of one model."""

    free: Figures
    styles: dict[str, Figures]
    best_at_base: Best
    best_accuracy: Best
    check: Check
    problems: int
    seed: int

    def as_json(self) -> dict[str, Any]:
        """Plain dictionaries, as `figures.json` holds them."""
        return asdict(self)


def mean(values: Iterable[float]) -> float:
    """The mean; NaN where there is nothing."""
    found = list(values)
    return sum(found) / len(found) if found else float("nan")


def spread(values: Sequence[float]) -> float:
    """The standard deviation."""
    middle = mean(values)
    return mean((value - middle) ** 2 for value in values) ** 0.5


def check(free: Figures, measured: int, problems: int = CHECKED) -> Check:
    """Intervals for a check on `problems` answers: 3.5 standard errors of the difference.

    Answers to one problem are alike, so what was measured counts as one answer per problem.
    """
    unit = 3.5 * (1 / problems + 1 / measured) ** 0.5
    right = unit * (free.accuracy * (100 - free.accuracy)) ** 0.5
    long = unit * free.length_spread
    return Check(
        problems,
        (free.accuracy - right, min(100.0, free.accuracy + right)),
        (free.length - long, free.length + long),
    )


def style_of(text: str) -> str:
    """The style whose first word an answer begins with; `other` where there is none."""
    return next((s for s, word in FIRST_WORD.items() if text.startswith(word)), "other")


def figures(
    rollouts: Sequence[Rollout],
    free: Sequence[Rollout],
    style: str | None,
    levels: Mapping[str, int],
) -> Figures:
    """Summary of answers; its shares are counted among the free ones. `levels` is by problem."""

    def at_level(level: int, among: Sequence[Rollout]) -> list[Rollout]:
        return [rollout for rollout in among if levels[rollout.problem_id] == level]

    def share(among: Sequence[Rollout]) -> float:
        return 100 * mean(style is None or style_of(rollout.text) == style for rollout in among)

    def accuracy(among: Sequence[Rollout]) -> float:
        return 100 * mean(map(is_correct, among))

    def lengths(among: Sequence[Rollout]) -> list[float]:
        return [float(rollout.length or 0) for rollout in among]

    return Figures(
        share=share(free),
        accuracy=accuracy(rollouts),
        length=mean(lengths(rollouts)),
        length_spread=spread(lengths(rollouts)),
        zip_ratio=mean(zip_ratio(rollout.text) for rollout in rollouts if rollout.text),
        accuracy_by_level={n: accuracy(at_level(n, rollouts)) for n in LEVELS},
        length_by_level={n: mean(lengths(at_level(n, rollouts))) for n in LEVELS},
        share_by_level={n: share(at_level(n, free)) for n in LEVELS},
        rollouts=len(rollouts),
    )


def measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    count: int = 400,
    copies: int = 4,
    seed: int = 0,
) -> Table:
    """Measures free answers and every style, forced by its first word, on held-out problems."""
    model.eval()
    items = problems("test", count, seed)
    generator = torch.Generator().manual_seed(seed)

    levels = {problem.id: level_of(problem) for problem in items}

    def answers(word: str) -> list[Rollout]:
        parts = [items[first : first + AT_ONCE] for first in range(0, len(items), AT_ONCE)]
        sampled = [
            sample_rollouts(model, tokenizer, part, copies, generator, word) for part in parts
        ]
        return [rollout for part in sampled for rollout in part.rollouts]

    free = answers("")
    free_figures = figures(free, free, None, levels)
    styles = {style: figures(answers(FIRST_WORD[style]), free, style, levels) for style in STYLES}
    weights = {n: mean(level_of(item) == n for item in items) for n in LEVELS}
    highest = max_accuracy(styles, weights)
    return Table(
        free_figures,
        {str(style): row for style, row in styles.items()},
        best(styles, weights, min(free_figures.accuracy, highest)),
        best(styles, weights, highest),
        check(free_figures, count),
        count,
        seed,
    )


def max_accuracy(styles: dict[Any, Figures], weights: dict[int, float]) -> float:
    """The accuracy of the most reliable style at every level."""
    return sum(
        weights[n] * max(row.accuracy_by_level[n] for row in styles.values()) for n in LEVELS
    )


def envelope(points: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Points of (length, accuracy, style) that no mixture of others beats, shortest first."""
    kept: list[tuple[float, float, str]] = []
    for point in sorted(points):
        if kept and point[1] <= kept[-1][1]:
            continue
        while len(kept) > 1 and slope(kept[-2], point) >= slope(kept[-2], kept[-1]):
            kept.pop()
        kept.append(point)
    return kept


def slope(left: tuple[float, float, str], right: tuple[float, float, str]) -> float:
    """Accuracy gained per token."""
    return (right[1] - left[1]) / max(right[0] - left[0], 1e-9)


def best(styles: dict[Any, Figures], weights: dict[int, float], target: float) -> Best:
    """The shortest mixture of styles, chosen level by level, that reaches the target accuracy.

    Begin with the shortest style everywhere, then buy accuracy where a token buys most of it.
    """
    hulls = {
        n: envelope([(s.length_by_level[n], s.accuracy_by_level[n], k) for k, s in styles.items()])
        for n in LEVELS
    }
    shares = {n: {hulls[n][0][2]: 1.0} for n in LEVELS}
    length = sum(weights[n] * hulls[n][0][0] for n in LEVELS)
    accuracy = sum(weights[n] * hulls[n][0][1] for n in LEVELS)
    upgrades = [
        (slope(left, right), n, left, right)
        for n in LEVELS
        for left, right in zip(hulls[n], hulls[n][1:], strict=False)
    ]
    for _, n, left, right in sorted(upgrades, reverse=True):
        gain = weights[n] * (right[1] - left[1])
        part = min(1.0, max(0.0, target - accuracy) / gain) if gain > 0 else 0.0
        if part > 0:
            shares[n] = {left[2]: 1 - part, right[2]: part}
            accuracy += part * gain
            length += part * weights[n] * (right[0] - left[0])
    return Best(accuracy, length, {n: {k: v for k, v in s.items() if v} for n, s in shares.items()})
