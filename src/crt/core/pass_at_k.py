"""pass@k: the chance that at least one of k responses is correct."""

import numpy as np
from numpy.typing import ArrayLike

from crt.core.batch import Array


def pass_at_k(correct: ArrayLike, rollouts: ArrayLike, k: int) -> Array:
    """1 − C(n−c, k)/C(n, k) for each problem with c of n correct: unbiased (Chen et al., 2021).

    (P,) each; NaN where a problem has fewer than k rollouts.
    """
    right = np.asarray(correct, dtype=float)[..., None]  # (P, 1)
    total = np.asarray(rollouts, dtype=float)[..., None]
    if k < 1 or not ((right >= 0) & (right <= total)).all():
        raise ValueError("pass@k needs k of 1 or more and 0 to n correct of n rollouts.")
    drawn = np.arange(k)  # the ratio of the binomials is Π (n−c−i)/(n−i)
    left = np.maximum(total - right - drawn, 0.0)
    all_wrong = np.prod(left / np.maximum(total - drawn, 1.0), axis=-1)
    return np.where(total[..., 0] >= k, 1.0 - all_wrong, np.nan)
