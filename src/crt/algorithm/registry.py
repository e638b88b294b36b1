"""The methods a recipe can name: one table, one class each."""

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from crt.algorithm.baselines import (
    ACPO,
    ADLP,
    AroraZanette,
    DapoOverlong,
    Kimi,
    L1Exact,
    L1Max,
    Laser,
    O1Pruner,
    ShorterBetter,
    ShortRL,
    ThinkPrune,
)
from crt.algorithm.batch import Array
from crt.algorithm.objectives import AccuracyOnly, LengthOnly, PrimalDual, Shorten
from crt.algorithm.two_stage import TwoStage

OneStage = (
    Shorten
    | PrimalDual
    | AccuracyOnly
    | LengthOnly
    | ThinkPrune
    | L1Exact
    | L1Max
    | O1Pruner
    | ShorterBetter
    | ACPO
    | Kimi
    | AroraZanette
    | DapoOverlong
    | Laser
    | ShortRL
    | ADLP
)
Method = TwoStage | OneStage

METHODS: dict[str, type[Method]] = {
    "crt": TwoStage,
    "crt_1s": Shorten,
    "primal_dual": PrimalDual,
    "grpo": AccuracyOnly,
    "length_only": LengthOnly,
    "thinkprune": ThinkPrune,
    "l1_exact": L1Exact,
    "l1_max": L1Max,
    "o1_pruner": O1Pruner,
    "shorter_better": ShorterBetter,
    "acpo": ACPO,
    "kimi": Kimi,
    "arora_zanette": AroraZanette,
    "dapo_overlong": DapoOverlong,
    "laser": Laser,
    "short_rl": ShortRL,
    "a_dlp": ADLP,
}


def name_of(method: Method) -> str:
    """The method's name in a recipe."""
    return next(name for name, kind in METHODS.items() if isinstance(method, kind))


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
    return np.array(
        [objective.budget(seed, step, problem_id) for problem_id in problem_ids], dtype=float
    )
