"""Length as the paper measures it: against the same problem's other responses."""

import numpy as np

from crt.algorithm.batch import Array


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
