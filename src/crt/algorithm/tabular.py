"""A laboratory in numpy: tables of answering styles per problem, trained by REINFORCE.

Every style's accuracy and length is known, so the expected accuracy and length of a policy are
exact, so is the shortest policy as accurate as the base, and what a method does can be seen in a
second. It samples, hands over a batch, receives advantages and steps, as the real engines do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from crt.algorithm.batch import Array, Batch, BoolArray
from crt.algorithm.objectives import Estimator, Objective, Refine, Shorten
from crt.algorithm.registry import budgets
from crt.algorithm.step import Row, signal
from crt.algorithm.two_stage import Saturation


@dataclass(frozen=True)
class World:
    """How a kind of problem answers to each style; a problem's difficulty is uniform in [0, 1]."""

    best: tuple[float, ...]  # accuracy of each style on the easiest problem
    loss: tuple[float, ...]  # what it loses on the hardest
    tokens: tuple[float, ...] = (40.0, 180.0, 480.0, 900.0, 1700.0)
    shares: tuple[float, ...] = (0.03, 0.10, 0.20, 0.27, 0.40)  # of the base's responses


_CHECKS = World((0.55, 0.80, 0.90, 0.94, 0.97), (0.90, 0.60, 0.35, 0.22, 0.12))
WORLDS = {
    "free": World((0.55, 0.85, 0.93, 0.93, 0.93), (0.90, 0.55, 0.10, 0.10, 0.10)),
    "checks": _CHECKS,
    "smooth": World((0.80, 0.88, 0.93, 0.95, 0.96), (0.80, 0.45, 0.30, 0.22, 0.17)),
    "hard": World((0.20, 0.40, 0.60, 0.70, 0.75), (0.20, 0.40, 0.50, 0.50, 0.45)),
    "easy": World((0.90, 0.97, 0.99, 0.995, 0.995), (0.50, 0.20, 0.05, 0.02, 0.01)),
    "long": replace(_CHECKS, tokens=tuple(6 * each for each in _CHECKS.tokens)),
    "terse": replace(_CHECKS, tokens=tuple(each / 6 for each in _CHECKS.tokens)),
}
"""Redundancy buys nothing (`free`); checking does (`checks`); accuracy falls gradually with length
(`smooth`); nearly nothing, or nearly everything, is solved; the same with other lengths."""

OVERTHINKING = World(
    (0.55, 0.85, 0.93, 0.93),
    (0.90, 0.55, 0.10, 0.10),
    (40.0, 180.0, 480.0, 1700.0),
    (0.04, 0.16, 0.20, 0.60),
)
"""A guess, in the head, worked out, worked out and checked again, which adds nothing."""


@dataclass(frozen=True, eq=False)
class Task:
    """P problems × S styles of answering, each with its chance to be right and its mean length.

    With a contract `length` is the cost, `numbers` what else is measured of a style, and `within`
    the problems of each data set.
    """

    accuracy: Array  # (P, S)
    length: Array  # (P, S) tokens
    numbers: Mapping[str, Array] = field(default_factory=dict[str, Array])  # (P, S) each
    within: Mapping[str, BoolArray] = field(default_factory=dict[str, BoolArray])  # (P,) each


@dataclass(frozen=True, eq=False)
class Policy:
    """Which style each problem is answered in: softmax of the logits (P, S)."""

    task: Task
    logits: Array

    @property
    def probabilities(self) -> Array:
        """(P, S)"""
        weight = np.exp(self.logits - self.logits.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True)

    @property
    def accuracy(self) -> float:
        """Expected, not sampled."""
        return float((self.probabilities * self.task.accuracy).sum(axis=1).mean())

    @property
    def length(self) -> float:
        """Expected tokens, not sampled."""
        return float((self.probabilities * self.task.length).sum(axis=1).mean())

    def sample(
        self,
        group_size: int,
        rng: np.random.Generator,
        noise: float = 0.15,
        rows: NDArray[np.intp] | None = None,
    ) -> tuple[Batch, NDArray[np.intp]]:
        """A batch, and the style (P, G) each rollout was written in; `rows`: of these problems.

        `noise` is the spread of a style's log length on one problem.
        """
        rows = np.arange(len(self.logits)) if rows is None else rows
        edges = self.probabilities[rows].cumsum(axis=1)[:, None, :]
        shape = (len(rows), group_size)
        style = (rng.random((*shape, 1)) > edges).sum(axis=2).clip(max=edges.shape[2] - 1)
        right = rng.random(shape) < np.take_along_axis(self.task.accuracy[rows], style, axis=1)
        mean = np.take_along_axis(self.task.length[rows], style, axis=1)
        spread = np.exp(noise * rng.standard_normal(shape) - noise**2 / 2)  # of mean 1
        length = np.maximum(1, np.rint(mean * spread))
        numbers = self.task.numbers.items()
        measured = {n: spread * np.take_along_axis(v[rows], style, axis=1) for n, v in numbers}
        within = {name: flags[rows] for name, flags in self.task.within.items()}
        ids = tuple(f"p{i}" for i in rows)
        return Batch(ids, right, length, measured=measured, within=within), style

    def stepped(
        self,
        style: NDArray[np.intp],
        advantages: Array,
        rate: float,
        rows: NDArray[np.intp] | None = None,
    ) -> "Policy":
        """One policy-gradient step: ∇ log π is the style taken less the probabilities."""
        rows = np.arange(len(self.logits)) if rows is None else rows
        taken = np.eye(self.logits.shape[1])[style]  # (P, G, S)
        expected = self.probabilities[rows][:, None, :]
        logits = self.logits.copy()
        logits[rows] += rate * (advantages[:, :, None] * (taken - expected)).mean(axis=1)
        return Policy(self.task, logits)


def make_base(problems: int, rng: np.random.Generator, world: World = OVERTHINKING) -> Policy:
    """The model before training, on problems of every difficulty."""
    difficulty = rng.uniform(0.0, 1.0, (problems, 1))
    accuracy = np.clip(np.array(world.best) - np.array(world.loss) * difficulty, 0.01, 1.0)
    length = np.array(world.tokens) * (0.6 + 0.8 * difficulty)
    return Policy(Task(accuracy, length), np.tile(np.log(world.shares), (problems, 1)))


def optimum(base: Policy) -> tuple[float, float]:
    """Accuracy and length of the shortest choice of styles that is as accurate as the base.

    The price of accuracy at which the cheapest styles are accurate enough is found by bisection;
    what is left is less than the step of a single problem.
    """
    task, low, high = base.task, 0.0, 1e7  # tokens per unit of accuracy
    for _ in range(80):
        price = (low + high) / 2
        if _cheapest(task, price)[0] < base.accuracy:
            low = price
        else:
            high = price
    return _cheapest(task, high)


def _cheapest(task: Task, price: float) -> tuple[float, float]:
    style = (task.length - price * task.accuracy).argmin(axis=1)[:, None]
    chosen = (np.take_along_axis(values, style, axis=1) for values in (task.accuracy, task.length))
    accuracy, length = (float(values.mean()) for values in chosen)
    return accuracy, length


@dataclass(frozen=True)
class Training:
    """How the tabular policy is trained."""

    steps: int = 400
    group_size: int = 16
    rate: float = 0.25
    reference_rollouts: int = 128  # a noisy reference is a wrong floor
    problems_per_step: int | None = None  # None: all
    noise: float = 0.15
    seed: int = 0  # of the budgets that a method draws; the policy cannot read them


def fit(
    policy: Policy,
    objective: Objective,
    reference: Batch,
    training: Training,
    rng: np.random.Generator,
    stop: Callable[[Sequence[float]], bool] = lambda tokens: False,
    estimator: Estimator = "group_std",
    path: list[Policy] | None = None,
) -> tuple[Policy, list[Row]]:
    """The training loop, as every engine runs it; `path` receives the policy of every step."""
    rows: list[Row] = []
    tokens: list[float] = []
    problems = len(policy.logits)
    count = min(training.problems_per_step or problems, problems)
    while len(rows) < training.steps and not stop(tokens):
        chosen = np.arange(problems)
        if count < problems:
            chosen = rng.choice(problems, count, replace=False)
        batch, style = policy.sample(training.group_size, rng, training.noise, chosen)
        asked = budgets(objective, training.seed, len(rows), batch.problem_ids)
        batch = replace(batch, budget=asked)
        step, objective = signal(objective, batch, reference, estimator)
        policy = policy.stepped(style, step.advantages, training.rate, chosen)
        if path is not None:
            path.append(policy)
        rows.append(
            step.row | {"expected_accuracy": policy.accuracy, "expected_tokens": policy.length}
        )
        tokens.append(batch.mean_length)
    return policy, rows


def fit_two_stages(
    base: Policy,
    shorten: Shorten,
    refine: Refine,
    saturation: Saturation,
    training: Training,
    rng: np.random.Generator,
) -> tuple[Policy, Policy, list[Row]]:
    """Stage I from the base until length saturates, Stage II from its result: both results."""

    def saturated(tokens: Sequence[float]) -> bool:
        return saturation.reached(tokens, training.steps)

    reference, _ = base.sample(training.reference_rollouts, rng, training.noise)
    short, rows = fit(base, shorten, reference, training, rng, saturated)
    rest = replace(training, steps=training.steps - len(rows))
    reference, _ = short.sample(training.reference_rollouts, rng, training.noise)
    refined, more = fit(short, refine, reference, rest, rng)
    return short, refined, [r | {"stage": 1} for r in rows] + [r | {"stage": 2} for r in more]
