"""The smallest engine: a table of answering styles per problem, trained by REINFORCE, numpy only.

Every style's accuracy and length is known, so the expected accuracy and length of a policy are
exact, and what a method does can be seen in a second. It samples, hands over a batch, receives
advantages and steps, as the real engines do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crt.algorithm.batch import Array, Batch
from crt.algorithm.objectives import Objective, Refine, Shorten
from crt.algorithm.registry import budgets
from crt.algorithm.step import Row, signal
from crt.algorithm.two_stage import Saturation

STYLES = ("bare guess", "in the head", "worked out", "worked out and checked again")


@dataclass(frozen=True, eq=False)
class Task:
    """P problems × S styles of answering, each with its chance to be right and its mean length."""

    accuracy: Array  # (P, S)
    length: Array  # (P, S) tokens


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

    def sample(self, group_size: int, rng: np.random.Generator) -> tuple[Batch, NDArray[np.intp]]:
        """A batch of every problem, and the style (P, G) each rollout was written in."""
        edges = self.probabilities.cumsum(axis=1)[:, None, :]
        shape = (len(self.logits), group_size)
        style = (rng.random((*shape, 1)) > edges).sum(axis=2).clip(max=edges.shape[2] - 1)
        right = rng.random(shape) < np.take_along_axis(self.task.accuracy, style, axis=1)
        mean = np.take_along_axis(self.task.length, style, axis=1)
        length = np.maximum(1, np.rint(mean * np.exp(0.15 * rng.standard_normal(shape))))
        return Batch(tuple(f"p{i}" for i in range(shape[0])), right, length), style

    def stepped(self, style: NDArray[np.intp], advantages: Array, rate: float) -> "Policy":
        """One policy-gradient step: ∇ log π is the style taken less the probabilities."""
        taken = np.eye(self.logits.shape[1])[style]  # (P, G, S)
        gradient = (advantages[:, :, None] * (taken - self.probabilities[:, None, :])).mean(axis=1)
        return Policy(self.task, self.logits + rate * gradient)


def make_base(problems: int, rng: np.random.Generator) -> Policy:
    """An overthinking base: it mostly works problems out and checks again, which adds nothing."""
    difficulty = rng.uniform(0.0, 1.0, (problems, 1))
    needs = np.array([0.9, 0.55, 0.1, 0.1])  # accuracy a style loses on the hardest problem
    best = np.array([0.55, 0.85, 0.93, 0.93])
    accuracy = np.clip(best - needs * difficulty, 0.02, 1.0)
    length = np.array([40.0, 180.0, 480.0, 1700.0]) * (0.6 + 0.8 * difficulty)
    logits = np.tile(np.log([0.04, 0.16, 0.20, 0.60]), (problems, 1))
    return Policy(Task(accuracy, length), logits)


@dataclass(frozen=True)
class Training:
    """How the tabular policy is trained."""

    steps: int = 400
    group_size: int = 16
    rate: float = 0.25
    reference_rollouts: int = 128  # a noisy reference is a wrong floor
    seed: int = 0  # of the budgets that a method draws; the policy cannot read them


def fit(
    policy: Policy,
    objective: Objective,
    reference: Batch,
    training: Training,
    rng: np.random.Generator,
    stop: Callable[[Sequence[float]], bool] = lambda tokens: False,
) -> tuple[Policy, list[Row]]:
    """The training loop, as every engine runs it."""
    rows: list[Row] = []
    tokens: list[float] = []
    while len(rows) < training.steps and not stop(tokens):
        batch, style = policy.sample(training.group_size, rng)
        asked = budgets(objective, training.seed, len(rows), batch.problem_ids)
        batch = replace(batch, budget=asked)
        step, objective = signal(objective, batch, reference)
        policy = policy.stepped(style, step.advantages, training.rate)
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

    reference, _ = base.sample(training.reference_rollouts, rng)
    short, rows = fit(base, shorten, reference, training, rng, saturated)
    rest = replace(training, steps=training.steps - len(rows))
    reference, _ = short.sample(training.reference_rollouts, rng)
    refined, more = fit(short, refine, reference, rest, rng)
    return short, refined, [r | {"stage": 1} for r in rows] + [r | {"stage": 2} for r in more]
