"""The table of styles, which is the ground truth by which methods are judged on this model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from crt.algorithm.metrics import zip_ratio
from crt.pocket import level_of, make_problems
from crt.types import Rollout
from tools.pocket.rollouts import is_correct, sample_rollouts
from tools.pocket.worlds import World

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

    level_shares: dict[int, float]  # of the measured problems
    free: Figures
    styles: dict[str, Figures]
    best_at_base: Best
    best_accuracy: Best
    front: list[Best]
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


def figures(
    rollouts: Sequence[Rollout],
    free: Sequence[Rollout],
    first_word: str,
    levels: Mapping[str, int],
) -> Figures:
    """Summary of answers; the share is that of the free ones that begin with the word.

    `levels` is by problem.
    """
    every = sorted(set(levels.values()))

    def at_level(level: int, among: Sequence[Rollout]) -> list[Rollout]:
        return [rollout for rollout in among if levels[rollout.problem_id] == level]

    def share(among: Sequence[Rollout]) -> float:
        return 100 * mean(rollout.text.startswith(first_word) for rollout in among)

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
        accuracy_by_level={n: accuracy(at_level(n, rollouts)) for n in every},
        length_by_level={n: mean(lengths(at_level(n, rollouts))) for n in every},
        share_by_level={n: share(at_level(n, free)) for n in every},
        rollouts=len(rollouts),
    )


def measure(
    world: World,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    count: int = 400,
    copies: int = 4,
    seed: int = 0,
) -> Table:
    """Measures free answers and every style, forced by its first word, on held-out problems."""
    model.eval()
    items = make_problems(world.name, "test", count, seed)
    generator = torch.Generator().manual_seed(seed)

    levels = {problem.id: level_of(problem) for problem in items}

    def answers(word: str) -> list[Rollout]:
        parts = [items[first : first + AT_ONCE] for first in range(0, len(items), AT_ONCE)]
        sampled = [
            sample_rollouts(model, tokenizer, part, copies, generator, word) for part in parts
        ]
        return [rollout for part in sampled for rollout in part.rollouts]

    free = answers("")
    free_figures = figures(free, free, "", levels)
    words = {name: style.first_word for name, style in world.styles.items()}
    styles = {name: figures(answers(word), free, word, levels) for name, word in words.items()}
    weights = {
        n: mean(level == n for level in levels.values()) for n in sorted(set(levels.values()))
    }
    return table_of(free_figures, styles, weights, count, seed)


def table_of(
    free: Figures, styles: dict[str, Figures], weights: dict[int, float], problems: int, seed: int
) -> Table:
    """What was measured, with what follows from it."""
    corners = front(styles, weights)
    highest = corners[-1]
    return Table(
        weights,
        free,
        styles,
        best(corners, min(free.accuracy, highest.accuracy)),
        highest,
        corners,
        check(free, problems),
        problems,
        seed,
    )


def derive(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures of `figures.json` with all that follows from the measured tables."""
    made = figures["made"]
    items = make_problems(made["world"], "test", figures["problems"], figures["seed"])
    levels = [level_of(item) for item in items]
    weights = {n: mean(level == n for level in levels) for n in sorted(set(levels))}
    free, styles = figures_of(figures["free"]), styles_of(figures)
    table = table_of(free, styles, weights, figures["problems"], figures["seed"])
    return {"made": made, "parameters": figures["parameters"], **table.as_json()}


def styles_of(figures: dict[str, Any]) -> dict[str, Figures]:
    """The measured styles in `figures.json`."""
    return {name: figures_of(values) for name, values in figures["styles"].items()}


def figures_of(values: dict[str, Any]) -> Figures:
    """One of its tables; JSON has made text of the levels."""
    by_level = ("accuracy_by_level", "length_by_level", "share_by_level")
    numbered = {name: {int(n): v for n, v in values[name].items()} for name in by_level}
    return Figures(**{**values, **numbered})


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


def front(styles: Mapping[str, Figures], weights: Mapping[int, float]) -> list[Best]:
    """The corners of the accuracy–length front over mixtures of styles chosen level by level.

    Begin with the shortest style everywhere, then buy accuracy where a token buys most of it; the
    last corner has the most reliable style at every level.
    """
    hulls = {
        n: envelope([(s.length_by_level[n], s.accuracy_by_level[n], k) for k, s in styles.items()])
        for n in weights
    }
    chosen = {n: hull[0] for n, hull in hulls.items()}

    def corner() -> Best:
        return Best(
            sum(weights[n] * accuracy for n, (_, accuracy, _) in chosen.items()),
            sum(weights[n] * length for n, (length, _, _) in chosen.items()),
            {n: {style: 1.0} for n, (_, _, style) in chosen.items()},
        )

    corners = [corner()]
    upgrades = [
        (slope(left, right), n, right)
        for n, hull in hulls.items()
        for left, right in pairwise(hull)
    ]
    for _, n, point in sorted(upgrades, reverse=True):
        chosen[n] = point
        corners.append(corner())
    return corners


def best(corners: Sequence[Best], target: float) -> Best:
    """The shortest mixture on a front that reaches the target accuracy."""
    if target <= corners[0].accuracy:
        return corners[0]
    for below, above in pairwise(corners):
        if target <= above.accuracy:
            part = (target - below.accuracy) / (above.accuracy - below.accuracy)
            return between(below, above, part)
    raise ValueError(f"no mixture of styles reaches {target} %")


def between(below: Best, above: Best, part: float) -> Best:
    """A mixture of two corners, `part` of it the second; they differ at one level."""

    def shares(n: int) -> dict[str, float]:
        (old,), (new,) = below.shares[n], above.shares[n]
        mixed = {old: 1.0} if old == new else {old: 1 - part, new: part}
        return {style: share for style, share in mixed.items() if share > 0}

    return Best(
        below.accuracy + part * (above.accuracy - below.accuracy),
        below.length + part * (above.length - below.length),
        {n: shares(n) for n in below.shares},
    )
