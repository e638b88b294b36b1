"""Length as the paper measures it: against the same problem's other responses."""

from typing import Literal

import numpy as np

from crt.algorithm.batch import Array, Batch, BoolArray

LengthOn = Literal["all", "correct_only", "no_credit_for_wrong", "wrong_is_endless"]


def sigmoid(z: Array) -> Array:
    """σ, written with tanh so that no z overflows."""
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def normalised_length(length: Array, like: Array, frozen: bool = False) -> Array:
    """Eq. 5: each length against its problem's mean and spread in `like`, squashed to (0, 1).

    `length` is (P, G), `like` (P, any). Statistics of the batch itself rank its responses and say
    nothing of their level (the mean is near 0.5 whatever the lengths), and no spread gives 0.5.
    Statistics of a frozen policy (`frozen`) make levels comparable; their spread is at least one
    token and a thousandth of the mean, so that a policy of constant length is no cliff.
    """
    mean = like.mean(axis=1, keepdims=True)
    spread = like.std(axis=1, keepdims=True)
    if frozen:
        spread = np.maximum(spread, np.maximum(1.0, 1e-3 * mean))
    deviation = length - mean
    flat = spread <= 1e-9 * np.maximum(1.0, mean)
    return sigmoid(np.where(flat, 0.0, deviation / np.where(flat, 1.0, spread)))


def length_reward(
    batch: Batch, like: Array, length_on: LengthOn, frozen: bool = False
) -> tuple[Array, BoolArray]:
    """−ℓ_norm (P, G), and which rollouts take part.

    `all` is the paper's formula. `correct_only` compares the correct responses among themselves
    and leaves the wrong ones alone. `no_credit_for_wrong` counts a wrong response as long as the
    longest of its problem, so that being short and wrong is never rewarded. `wrong_is_endless`
    counts it as longer than any (ℓ_norm = 1), so that a correct one is better however long it is.
    """
    reward = -normalised_length(batch.length, like, frozen)
    everyone = np.ones_like(batch.correct)
    if length_on == "correct_only":
        return reward, batch.correct
    if length_on == "no_credit_for_wrong":
        longest = reward.min(axis=1, keepdims=True)
        return np.where(batch.correct, reward, longest), everyone
    if length_on == "wrong_is_endless":
        return np.where(batch.correct, reward, -1.0), everyone
    return reward, everyone
