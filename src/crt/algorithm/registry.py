"""The methods a recipe can name: one table, one class each."""

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from crt.algorithm.baselines import (
    ACPO,
    ADLP,
    ALP,
    DLER,
    DOT,
    AroraZanette,
    DapoOverlong,
    InternS2,
    Kimi,
    L1Exact,
    L1Max,
    Laconic,
    Laser,
    O1Pruner,
    PrimeRL,
    ShorterBetter,
    ShortRL,
    ThinkPrune,
)
from crt.algorithm.batch import Array
from crt.algorithm.contract import Contracted
from crt.algorithm.objectives import (
    AccuracyOnly,
    Guarded,
    LengthOnly,
    Objective,
    PrimalDual,
    Shorten,
)
from crt.algorithm.two_stage import TwoStage

Method = TwoStage | Objective

METHODS: dict[str, type[TwoStage] | type[Objective]] = {
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
    "dot": DOT,
    "dler": DLER,
    "laconic": Laconic,
    "intern_s2": InternS2,
    "prime_rl": PrimeRL,
    "alp": ALP,
    "guarded": Guarded,
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


def innermost(method: object) -> object:
    """What a guard and a contract are around."""
    around = isinstance(method, Guarded | Contracted)
    return innermost(method.inner) if around else method


def budget_styles(method: object) -> tuple[str, ...]:
    """How the prompt may state a budget; a method without one states none."""
    stated = innermost(method)
    return stated.budget_styles if isinstance(stated, StatesBudget) else ("none",)


def budgets(objective: object, seed: int, step: int, problem_ids: Sequence[str]) -> Array:
    """(P,) What each problem is asked for in this step; empty if the objective asks for nothing."""
    stating = innermost(objective)
    if not isinstance(stating, StatesBudget):
        return np.zeros(0)
    return np.array(
        [stating.budget(seed, step, problem_id) for problem_id in problem_ids], dtype=float
    )


def removed_setting(name: str, value: object) -> str | None:
    """What to write in place of a setting that older recipes have; None if it was not removed."""
    if name == "slack" and value == "auto":
        return (
            'slack = "auto" was removed: leave it out; rule = "multiplier", the default, weighs '
            'the gap by its standard error. rule = "switch" takes a number, for example 0.01.'
        )
    reason = REMOVED.get(name)
    return None if reason is None else f"{name} was removed: leave it out; {reason}"


REMOVED = {
    "smoothing": 'rule = "multiplier", the default, remembers the gap in λ.',
    "guard": "the guard is of the batch. Per problem it was noisier (docs/notes/method.md).",
    "solved": 'rule = "multiplier", the default, shortens what is solved in every step.',
    "length_on": 'rule = "multiplier" never rewards a wrong answer; rule = "switch" is the '
    "paper's formula, wrong answers included.",
    "multiplier_limit": "λ is limited to 100, which no run should reach.",
}
"""Of CRT's methods, with the reason. Tables decided it: docs/notes/method.md."""
