"""Rewards that hold a response against a number of tokens: a limit, a budget, a target."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from crt.core.batch import Array, Batch
from crt.core.budgets import drawn
from crt.core.objectives import STATE, Decision, one_reward, require_between

LONGEST = 1e9  # tokens; no limit makes sense beyond


@dataclass(frozen=True)
class ThinkPrune:
    """ThinkPrune: only a correct response within the limit counts, r = c · 1[L ≤ k].

    k is the first of `limits` for `steps_per_round` steps, then the next. Its paper cuts the
    generation at k; here the response is written to its end and found too long, which gives the
    same reward, shows the true length, and trains the tokens beyond k too.
    """

    limits: tuple[int, ...] = (4000, 3000, 2000)  # k, one a round
    steps_per_round: int = 100
    steps_taken: int = field(default=0, metadata=STATE)

    guarded: ClassVar[bool] = False
    budget_styles: ClassVar[tuple[str, ...]] = ("thinkprune", "number", "none")

    def __post_init__(self) -> None:
        if not self.limits:
            raise ValueError("limits = [] leaves nothing to keep to: give a limit for every round")
        for limit in self.limits:
            require_between("limits", limit, 1, LONGEST)
        require_between("steps_per_round", self.steps_per_round, 1, 1e9)

    def limit(self, step: int) -> int:
        """k in this step, counted from 0; the last round goes on to the end."""
        return self.limits[min(step // self.steps_per_round, len(self.limits) - 1)]

    def budget(self, seed: int, step: int, problem_id: str) -> int:
        """The limit, where the prompt states it."""
        return self.limit(step)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "ThinkPrune"]:
        """One more step of the round."""
        reward = batch.correct & (batch.length <= self.limit(self.steps_taken))
        after = replace(self, steps_taken=self.steps_taken + 1)
        return one_reward(batch, reference, reward.astype(float)), after


@dataclass(frozen=True)
class L1Exact:
    """L1-Exact: as many tokens as the prompt asks for, r = c − α·|n − L|.

    n is drawn uniformly from [low, high] for every problem of every step.
    """

    penalty: float = 3e-4  # α
    low: int = 100
    high: int = 4000

    guarded: ClassVar[bool] = False
    budget_styles: ClassVar[tuple[str, ...]] = ("l1-exact", "number")

    def __post_init__(self) -> None:
        _require_range(self.penalty, self.low, self.high)

    def budget(self, seed: int, step: int, problem_id: str) -> int:
        """n ~ U(low, high)."""
        return drawn(seed, step, problem_id, self.low, self.high)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "L1Exact"]:
        """Too short costs as much as too long, also where the answer is wrong."""
        reward = batch.correct - self.penalty * np.abs(_asked(batch) - batch.length)
        return one_reward(batch, reference, reward), self


@dataclass(frozen=True)
class L1Max:
    """L1-Max: at most the tokens the prompt asks for, r = c · clip(α·(n − L) + δ, 0, 1).

    n is drawn uniformly from [low, high] for every problem of every step.
    """

    penalty: float = 3e-4  # α
    offset: float = 0.5  # δ
    low: int = 100
    high: int = 4000

    guarded: ClassVar[bool] = False
    budget_styles: ClassVar[tuple[str, ...]] = ("l1-max", "number")

    def __post_init__(self) -> None:
        _require_range(self.penalty, self.low, self.high)
        require_between("offset", self.offset, 0.0, 1.0)

    def budget(self, seed: int, step: int, problem_id: str) -> int:
        """n ~ U(low, high)."""
        return drawn(seed, step, problem_id, self.low, self.high)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "L1Max"]:
        """A wrong response earns nothing, so being short cannot make up for it."""
        within = self.penalty * (_asked(batch) - batch.length) + self.offset
        return one_reward(batch, reference, batch.correct * np.clip(within, 0.0, 1.0)), self


@dataclass(frozen=True)
class Laser:
    """LASER: a bonus for a correct response within the target, r = c + β·c·1[L ≤ L_T].

    In its paper the bonus is 0.5 and correct and wrong differ by 1.5, so β = 1/3 has the same
    proportion.
    """

    target: int = 4096  # L_T
    bonus: float = 0.5 / 1.5  # β

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("target", self.target, 1, LONGEST)
        require_between("bonus", self.bonus, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "Laser"]:
        """Beyond the target nothing is lost but the bonus."""
        short = batch.correct & (batch.length <= self.target)
        reward = np.where(short, 1.0 + self.bonus, batch.correct.astype(float))
        return one_reward(batch, reference, reward), self


@dataclass(frozen=True)
class DapoOverlong:
    """DAPO's soft overlong punishment: r = c + clip((L_max − B − L)/B, −1, 0)·penalty.

    Free up to `limit − buffer` tokens, then linear down to −penalty at `limit`. In its paper the
    punishment is 1 and correct and wrong differ by 2, so a penalty of 0.5 has the same proportion.
    """

    limit: int = 20480  # L_max
    buffer: int = 4096  # B
    penalty: float = 0.5

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("limit", self.limit, 1, LONGEST)
        require_between("buffer", self.buffer, 1, self.limit)
        require_between("penalty", self.penalty, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "DapoOverlong"]:
        """Right or wrong, what runs into the buffer is punished."""
        over = np.clip((self.limit - self.buffer - batch.length) / self.buffer, -1.0, 0.0)
        return one_reward(batch, reference, batch.correct + self.penalty * over), self


def _asked(batch: Batch) -> Array:
    """(P, 1) n, the tokens each problem's prompt asked for."""
    if not batch.budget.size:
        raise ValueError("L1 rewards keeping to a stated budget, and this batch has none.")
    return batch.budget[:, None]


def _require_range(penalty: float, low: int, high: int) -> None:
    require_between("penalty", penalty, 0.0, 1e3)
    require_between("low", low, 1, LONGEST)
    require_between("high", high, low, LONGEST)
