"""From rewards to advantages: how much better than the same problem's other rollouts."""

import numpy as np

from crt.algorithm.batch import Array, BoolArray
from crt.algorithm.objectives import Decision, Estimator


def centred(reward: Array, among: BoolArray) -> Array:
    """(P, G) Reward less its problem's mean over `among`; 0 for the others (Dr.GRPO).

    A problem without spread, a single rollout among them, has advantage 0.
    """
    count = among.sum(axis=1, keepdims=True)
    mean = np.where(among, reward, 0.0).sum(axis=1, keepdims=True) / np.maximum(count, 1)
    low = np.where(among, reward, np.inf).min(axis=1, keepdims=True)
    high = np.where(among, reward, -np.inf).max(axis=1, keepdims=True)
    return np.where(among & (high > low), reward - mean, 0.0)


def group_standardised(reward: Array, among: BoolArray) -> Array:
    """(P, G) Centred and divided by its problem's spread (GRPO), population form."""
    deviation = centred(reward, among)
    count = np.maximum(among.sum(axis=1, keepdims=True), 1)
    spread = np.sqrt((deviation**2).sum(axis=1, keepdims=True) / count)
    return deviation / (spread + 1e-6)


def batch_whitened(reward: Array, among: BoolArray) -> Array:
    """(P, G) Centred per problem and divided by the spread of the whole batch's rewards."""
    deviation = centred(reward, among)
    spread = float(reward[among].std()) if among.any() else 0.0
    return deviation / (spread + 1e-6)


def whitened(reward: Array, among: BoolArray) -> Array:
    """(P, G) Less the mean of the whole batch and divided by its spread (O1-Pruner).

    A problem is not compared with itself, so that one on which every response is good gains by it.
    """
    values = reward[among]
    if not values.size or values.max() == values.min():
        return np.zeros_like(reward)
    return np.where(among, (reward - values.mean()) / (values.std() + 1e-6), 0.0)


ESTIMATORS = {
    "group_std": group_standardised,
    "centred": centred,
    "batch": batch_whitened,
    "whitened": whitened,
}


def advantages(
    decision: Decision, estimator: Estimator = "group_std", muted: BoolArray | None = None
) -> Array:
    """(P, G) Each term's advantage by itself, then the weighted sum; 0 for muted rollouts.

    An estimator that the decision names, because its reward is made for it, comes first.
    """
    estimate = ESTIMATORS[decision.estimator or estimator]
    total = np.zeros_like(decision.terms[0].reward)
    for term in decision.terms:
        if not np.isfinite(term.reward).all() or not np.isfinite(term.weight):
            raise ValueError("A reward or its weight is not a finite number.")
        among = term.among if muted is None else term.among & ~muted
        total += term.weight * estimate(term.reward, among)
    return total
