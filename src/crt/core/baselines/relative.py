"""Rewards that hold a response against the same problem's other responses."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crt.core.batch import Array, Batch, BoolArray
from crt.core.length import sigmoid
from crt.core.objectives import Decision, one_reward, require_between


@dataclass(frozen=True)
class ShorterBetter:
    """ShorterBetter: near the shortest correct response, r = α·c − β·|L − L*|.

    L* is the shortest correct length of the problem, the mean length if none is correct.
    """

    correct_weight: float = 2.0  # α
    penalty: float = 0.001  # β, a token

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("correct_weight", self.correct_weight, 0.0, 1e3)
        require_between("penalty", self.penalty, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "ShorterBetter"]:
        """A wrong response too is drawn towards L*."""
        mean = batch.length.mean(axis=1, keepdims=True)
        shortest = np.where(batch.correct, batch.length, np.inf).min(axis=1, keepdims=True)
        optimal = np.where(np.isfinite(shortest), shortest, mean)  # L*
        distance = np.abs(batch.length - optimal)
        reward = self.correct_weight * batch.correct - self.penalty * distance
        return one_reward(batch, reference, reward), self


@dataclass(frozen=True)
class ACPO:
    """ACPO, its RL part alone: r = c + the token length budget's term, which is DAST's.

    L_b = p·L̄_correct + (1 − p)·L_max and u = (L − L_b)/L_b, with p the problem's pass rate; the
    term is max(0.5 − 0.5u, 0.1) where correct and min(0.9u − 0.1, −0.1) where wrong. ACPO has no
    public code: the constants are DAST's. Its cold start and its thinking-mode tokens are left out.
    L_max is `longest`, in DAST the cap on generation; 0 takes the problem's longest response.
    """

    weight: float = 1.0  # of the term
    longest: int = 0  # L_max

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("weight", self.weight, 0.0, 1e3)
        require_between("longest", self.longest, 0, 1e9)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "ACPO"]:
        """Hard problems have a larger budget, and a wrong answer is to use it."""
        passed = batch.accuracy_by_problem[:, None]  # p
        own, _ = _among_correct(batch)
        longest = float(self.longest) or batch.length.max(axis=1, keepdims=True)
        budget = np.maximum(1.0, passed * own + (1.0 - passed) * longest)  # L_b
        over = (batch.length - budget) / budget  # u
        right, wrong = np.maximum(0.5 - 0.5 * over, 0.1), np.minimum(0.9 * over - 0.1, -0.1)
        term = np.where(batch.correct, right, wrong)
        return one_reward(batch, reference, batch.correct + self.weight * term), self


@dataclass(frozen=True)
class Kimi:
    """Kimi k1.5's length reward: r = c + w·λ where correct, w·min(0, λ) where wrong.

    λ = 0.5 − (L − L_min)/(L_max − L_min) over all responses of the problem, 0 if they are equal.
    """

    weight: float = 1.0  # w

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("weight", self.weight, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "Kimi"]:
        """A short wrong response is not rewarded, a long wrong one is punished."""
        low = batch.length.min(axis=1, keepdims=True)
        spread = batch.length.max(axis=1, keepdims=True) - low
        place = (batch.length - low) / np.maximum(spread, 1.0)
        score = np.where(spread > 0, 0.5 - place, 0.0)  # λ
        term = np.where(batch.correct, score, np.minimum(0.0, score))
        return one_reward(batch, reference, batch.correct + self.weight * term), self


@dataclass(frozen=True)
class AroraZanette:
    """Arora and Zanette: a correct response loses up to α by its length, r = c·(1 − α·σ(z)).

    z is the length standardised among the problem's correct responses. Their estimator is RLOO,
    which is `centred` times G/(G − 1).
    """

    penalty: float = 0.1  # α

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("penalty", self.penalty, 0.0, 1.0)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "AroraZanette"]:
        """Lengths of wrong responses play no part."""
        mean, spread = _among_correct(batch)
        standardised = (batch.length - mean) / (spread + 1e-7)  # z
        score = 1.0 - self.penalty * sigmoid(standardised)
        return one_reward(batch, reference, np.where(batch.correct, score, 0.0)), self


def _among_correct(batch: Batch) -> tuple[Array, Array]:
    """(P, 1) Mean and spread of the correct responses' lengths; 0 and 0 where none is correct."""
    right: BoolArray = batch.correct
    count = np.maximum(right.sum(axis=1, keepdims=True), 1)
    mean = np.where(right, batch.length, 0.0).sum(axis=1, keepdims=True) / count
    square = np.where(right, (batch.length - mean) ** 2, 0.0).sum(axis=1, keepdims=True) / count
    return mean, np.sqrt(square)
