"""Rewards that look beyond the group: at the frozen reference, or at the past."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from crt.core.batch import Array, Batch
from crt.core.guard import EDGE, paired_gap
from crt.core.objectives import START, STATE, Decision, one_reward, require_between


@dataclass(frozen=True)
class O1Pruner:
    """O1-Pruner: shorter and better than the reference, r = clip(L̄_ref/L − 1 + λ·(c − Ā_ref)).

    L̄_ref and Ā_ref are the reference's mean length and accuracy on the same problem. Its paper
    clips to [−2, 4] and standardises over all samples, not per problem: `estimator = "whitened"`.
    The samples are the policy's own, or the reference's as in the paper: `sampling.source`.
    """

    accuracy_weight: float = 2.0  # λ
    lowest: float = -2.0
    highest: float = 4.0

    guarded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_between("accuracy_weight", self.accuracy_weight, 0.0, 1e3)
        require_between("lowest", self.lowest, -1e3, 0.0)
        require_between("highest", self.highest, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "O1Pruner"]:
        """A response of no tokens counts as one token long."""
        usual = reference.length.mean(axis=1, keepdims=True)  # L̄_ref
        solved = reference.accuracy_by_problem[:, None]  # Ā_ref
        shorter = usual / np.maximum(batch.length, 1.0) - 1.0
        weight = shorter + self.accuracy_weight * (batch.correct - solved)
        return one_reward(batch, reference, np.clip(weight, self.lowest, self.highest)), self


@dataclass(frozen=True)
class ShortRL:
    """Short-RL: a length reward while batch accuracy is within `accuracy_tolerance` of its best.

    r = c + w·s for correct responses, s = 0.5 within `length_tolerance` tokens of the shortest
    correct one and 0.5 − (L − L_min)/(L_max − L_min) beyond, over the correct ones; r = c
    otherwise. In its code correct and wrong differ by 3.5, so w = 1/3.5 has the same proportion.
    """

    weight: float = 1.0 / 3.5  # w
    accuracy_tolerance: float = 0.05  # τ_acc
    length_tolerance: float = 100.0  # τ_ℓ, tokens
    best_accuracy: float = field(default=0.0, metadata=STATE)

    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_between("weight", self.weight, 0.0, 1e3)
        require_between("accuracy_tolerance", self.accuracy_tolerance, 0.0, 1.0)
        require_between("length_tolerance", self.length_tolerance, 0.0, 1e9)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "ShortRL"]:
        """The bar is the best batch so far, this one included."""
        best = max(self.best_accuracy, batch.accuracy)
        margin = batch.accuracy - (best - self.accuracy_tolerance)
        correct, after = batch.correct.astype(float), replace(self, best_accuracy=best)
        if margin < -EDGE:
            decision = one_reward(batch, reference, correct, goal="accuracy")
            return replace(decision, margin=margin, rectified=1.0), after
        reward = correct + self.weight * self._length_score(batch)
        return replace(one_reward(batch, reference, reward), margin=margin), after

    def _length_score(self, batch: Batch) -> Array:
        """(P, G) s, 0 for wrong responses."""
        low = np.where(batch.correct, batch.length, np.inf).min(axis=1, keepdims=True)
        high = np.where(batch.correct, batch.length, -np.inf).max(axis=1, keepdims=True)
        place = (batch.length - low) / np.maximum(high - low, 1.0)
        beyond = batch.length > low + self.length_tolerance
        return np.where(batch.correct, np.where(beyond, 0.5 - place, 0.5), 0.0)


@dataclass(frozen=True)
class ADLP:
    """A-DLP: a price on every token that follows accuracy, r = c − λ·L, λ ← [λ + η·(Â − Â_ref)]₊.

    Accuracy above the reference raises the price, accuracy below lowers it.
    """

    price: float = field(default=1e-3, metadata=START)  # λ
    price_rate: float = 1e-3  # η

    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_between("price", self.price, 0.0, 1e3)
        require_between("price_rate", self.price_rate, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "ADLP"]:
        """The step uses λ_t; the gap moves λ for the next one."""
        reward = batch.correct - self.price * batch.length
        moved = self.price - self.price_rate * paired_gap(batch, reference).mean
        decision = replace(one_reward(batch, reference, reward), multiplier=self.price)
        return decision, replace(self, price=max(0.0, moved))
