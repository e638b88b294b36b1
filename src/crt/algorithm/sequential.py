"""A test of a bounded mean that is valid at every look, and so may stop as soon as it can tell.

Somebody bets, value by value, that the mean is above a bound. Unless it is, no bet makes money on
average, so the wealth ever grows from 1 to 1/α with a chance of at most α, however often one looks
(Ville's inequality). The betting is that of Waudby-Smith and Ramdas (2024, JRSS-B 86:1), the
mixture of fixed bets a small universal portfolio (Cover 1991; Orabona and Jun 2024).
"""

from dataclasses import dataclass
from math import log
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from crt.algorithm.batch import Array

BETS: Array = np.array(
    [2.0**-power for power in range(7)]
)  # shares of the wealth at stake: the larger for the less noise

State = Literal["accepted", "rejected", "undecided"]


@dataclass(frozen=True)
class Look:
    """What may be said after so many values; each bound holds by itself, at every look at once."""

    state: State
    problems: int
    mean: float
    lower_bound: float
    upper_bound: float


def log_wealth(values: ArrayLike, bound: float) -> Array:
    """(T,) log of the wealth after each value in [−1, 1], betting that their mean is above `bound`.

    A share s of the wealth becomes s·(1 + x)/(1 + bound), whose mean is at most s if the bet is
    lost; the rest stays. The wealth is the average over the shares in `BETS`.
    """
    factor = (1 + np.asarray(values, dtype=float)) / (1 + bound)
    with np.errstate(divide="ignore"):  # all at stake, and all lost
        single = np.cumsum(np.log((1 - BETS[:, None]) + BETS[:, None] * factor), axis=1)  # (B, T)
    wealth: Array = np.logaddexp.reduce(single, axis=0) - log(len(BETS))
    return wealth


def sequential_test(values: ArrayLike, floor: float, level: float = 0.95) -> Look:
    """Is the mean of values in [−1, 1] above `floor` (accepted), or below it (rejected)?

    Each wrong verdict has a chance of at most 1 − level. What comes after the verdict is not used.
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not values.size or not (np.abs(values) <= 1).all():
        raise ValueError("A sequential test needs at least one value, and all from −1 to 1.")
    if not (-1 < floor < 1 and 0 < level < 1):
        raise ValueError("The floor is between −1 and 1, the level between 0 and 1.")
    enough = log(1 / (1 - level))
    for_it = _first(log_wealth(values, floor) >= enough)
    against = _first(log_wealth(-values, -floor) >= enough)
    used = values[: min(for_it, against, values.size)]
    state: State = "undecided"
    if min(for_it, against) <= values.size:
        state = "accepted" if for_it < against else "rejected"
    bounds = lower_bound(used, level), -lower_bound(-used, level)
    return Look(state, len(used), float(used.mean()), *bounds)


def lower_bound(values: Array, level: float = 0.95) -> float:
    """The largest mean that the values exclude from below; the wealth falls as the bound rises."""
    low, high, enough = -1.0, float(values.mean()), log(1 / (1 - level))
    while high - low > 1e-6:
        middle = (low + high) / 2
        excluded = log_wealth(values, middle)[-1] >= enough
        low, high = (middle, high) if excluded else (low, middle)
    return low


def _first(reached: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> int:
    """The number of values after which it is reached for the first time; past the end if never."""
    return int(np.argmax(reached)) + 1 if reached.any() else len(reached) + 1
