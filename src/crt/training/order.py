"""Which problems each step works on: fixed by the seed, so that a run can go on from any step."""

from collections.abc import Sequence

import numpy as np

from crt.types import Problem


def problem_order(
    problems: Sequence[Problem], per_step: int, steps: int, seed: int
) -> list[list[Problem]]:
    """A list of problems a step; every pass through the data is shuffled anew.

    A pass ends where a whole step no longer fits, so that no step has a problem twice.
    """
    steps_a_pass = len(problems) // per_step
    order: list[list[Problem]] = []
    for number in range(steps):
        epoch, place = divmod(number, steps_a_pass)
        shuffled = np.random.default_rng([seed, epoch]).permutation(len(problems))
        chosen = shuffled[place * per_step : (place + 1) * per_step]
        order.append([problems[i] for i in chosen])
    return order


def held_out(
    problems: Sequence[Problem], count: int, seed: int
) -> tuple[list[Problem], list[Problem]]:
    """The problems without `count` of them, and those."""
    chosen = set(np.random.default_rng([seed, 1 << 31]).permutation(len(problems))[:count].tolist())
    kept = [problem for i, problem in enumerate(problems) if i not in chosen]
    return kept, [problem for i, problem in enumerate(problems) if i in chosen]
