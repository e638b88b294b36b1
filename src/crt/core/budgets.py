"""Token budgets that a method states in the prompt: a pure function of seed, step and problem."""

import hashlib
from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from crt.core.batch import Array


@runtime_checkable
class StatesBudget(Protocol):
    """An objective that asks for a number of tokens in the prompt."""

    budget_styles: ClassVar[tuple[str, ...]]
    """The values of `prompt.budget` it can be trained with."""

    def budget(self, seed: int, step: int, problem_id: str) -> int:
        """The tokens asked for; `step` counts from 0."""
        ...


def budget_styles(method: object) -> tuple[str, ...]:
    """How the prompt may state a budget; a method without one states none."""
    return method.budget_styles if isinstance(method, StatesBudget) else ("none",)


def budgets(objective: object, seed: int, step: int, problem_ids: Sequence[str]) -> Array:
    """(P,) What each problem is asked for in this step; empty if the objective asks for nothing."""
    if not isinstance(objective, StatesBudget):
        return np.zeros(0)
    return np.array([objective.budget(seed, step, each) for each in problem_ids], dtype=float)


def drawn(seed: int, step: int, problem_id: str, low: int, high: int) -> int:
    """Uniform in [low, high], the same whenever the same problem of the same step is asked."""
    digest = hashlib.sha256(f"{seed} {step} {problem_id}".encode()).digest()
    return low + int.from_bytes(digest[:8], "big") % (high - low + 1)
