"""The method: a graded batch in, what this step optimises and why out.

`Shorten` is Stage I (Alg. 1), `Refine` Stage II (Eq. 4), `PrimalDual` the appendix's algorithm,
`Guarded` the guard around another method's signal.
An objective is a frozen value; `step` returns the decision and the objective of the next step,
which differs only where the objective has a memory (fields marked as state).
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, cast

import numpy as np

from crt.algorithm.batch import Array, Batch, BoolArray
from crt.algorithm.guard import EDGE, excess_length, paired_gap
from crt.algorithm.length import normalised_length

Goal = Literal["length", "accuracy", "mixed", "repair"]
Estimator = Literal["group_std", "centred", "batch", "whitened"]

STATE = {"state": True, "setting": False}  # moves during training, is no setting
START = {"state": True, "setting": True}  # the setting is where it starts


@dataclass(frozen=True, eq=False)
class Term:
    """A reward (P, G), its weight in the advantage, and the rollouts that take part in it."""

    reward: Array
    among: BoolArray
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Decision:
    """What this step optimises, and why.

    `margin` is how far the constraint is from being broken; below 0 it is. `rectified` is the
    share of problems on which the step repairs the constraint instead of improving the objective.
    """

    goal: Goal
    terms: tuple[Term, ...]
    margin: float
    slack: float = 0.0
    rectified: float = 0.0
    multiplier: float | None = None  # λ, of the methods that move one
    estimator: Estimator | None = None  # the one the reward is made for; None: the run's
    line: str | None = None  # of the contract, the one this step repairs
    lines: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict[str, Any])

    @property
    def reward(self) -> Array:
        """(P, G) The weighted sum of the terms."""
        return np.sum([term.weight * term.reward for term in self.terms], axis=0)


class Dataclass(Protocol):
    """Any dataclass: its fields are visible, and so is what it remembers."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=Dataclass)


class Objective(Dataclass, Protocol):
    """Everything CRT says, and every method it is compared with, is such a frozen dataclass."""

    guarded: ClassVar[bool]
    """Whether it looks after accuracy; if it does, accuracy far below is a failure."""

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, Self]:
        """The decision for this batch, and the objective of the next step."""
        ...


def accuracy_term(batch: Batch, weight: float = 1.0) -> Term:
    """The indicator 1{y = y*}."""
    return Term(batch.correct.astype(float), np.ones_like(batch.correct), weight)


def length_term(batch: Batch, like: Array, frozen: bool = False) -> Term:
    """−ℓ_norm (Eq. 5), wrong responses included."""
    reward = -normalised_length(batch.length, like, frozen)
    return Term(reward, np.ones_like(batch.correct))


def one_reward(batch: Batch, reference: Batch, reward: Array, goal: Goal = "mixed") -> Decision:
    """A decision with one reward for all rollouts; the margin to the reference is only shown."""
    return Decision(goal, (Term(reward, np.ones_like(batch.correct)),), _shown(batch, reference))


Rule = Literal["multiplier", "switch"]


@dataclass(frozen=True)
class Shorten:
    """Stage I: the shortest responses whose accuracy stays at the reference's.

    `switch` is Alg. 1 to the letter: if Â < Â_ref − ε − η the step's reward is correctness,
    otherwise −ℓ_norm. `multiplier` is ours: the reward of every step is both, correctness with a
    weight λ (`priced_reward`), and λ ← [λ + κ·(Â_ref − Â − ε)/SE]₊, with SE the gap's standard
    error. In that unit one κ serves small and large batches.
    """

    tolerance: float = 0.0  # ε
    slack: float = 0.01  # η, of the switch
    rule: Rule = "multiplier"  # how the guard enters
    rate: float = 0.5  # κ, of the multiplier
    multiplier: float = field(default=1.0, metadata=STATE)  # λ
    variance: float | None = field(default=None, metadata=STATE)  # of the gap, averaged

    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_between("tolerance", self.tolerance, 0.0, 1.0)
        require_between("slack", self.slack, 0.0, 1.0)
        require_between("rate", self.rate, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "Shorten"]:
        """The step is decided with λ_t; its gap moves λ for the next one."""
        gap = paired_gap(batch, reference)
        if self.rule == "switch":
            margin = self.tolerance + self.slack - gap.mean
            if margin < -EDGE:
                return Decision("accuracy", (accuracy_term(batch),), margin, self.slack, 1.0), self
            return Decision("length", (length_term(batch, batch.length),), margin, self.slack), self
        violation = gap.mean - self.tolerance
        decision = priced_reward(batch, self.multiplier, margin=-violation)
        return decision, replace(self, **moved_dual(self, violation, gap.standard_error))


@dataclass(frozen=True)
class Refine:
    """Stage II: raise accuracy while length stays at that of Stage I's result.

    The length is kept while mean ℓ_norm is above that result's by no more than δ (Eq. 4), with
    both normalised by the result's frozen statistics. `switch` is the paper's: the reward is
    −ℓ_norm in a step that is longer by more than δ + η_L, otherwise correctness. `multiplier` is
    ours, Stage I the other way round: length has a weight μ (`priced_reward`), which moves with
    the excess.
    """

    length_tolerance: float = 0.02  # δ
    length_slack: float = 0.01  # η_L, of the switch
    rule: Rule = "multiplier"  # how the length is kept
    rate: float = 0.5  # κ, of the multiplier
    multiplier: float = field(default=0.0, metadata=STATE)  # μ
    variance: float | None = field(default=None, metadata=STATE)  # of the excess, averaged

    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_between("length_tolerance", self.length_tolerance, 0.0, 1.0)
        require_between("length_slack", self.length_slack, 0.0, 1.0)
        require_between("rate", self.rate, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "Refine"]:
        """The step is decided with μ_t; its excess moves μ for the next one."""
        excess = excess_length(batch, reference)
        if self.rule == "switch":
            margin = self.length_tolerance + self.length_slack - excess.mean
            if margin < -EDGE:
                shorter = length_term(batch, reference.length, frozen=True)
                return Decision("length", (shorter,), margin, self.length_slack, 1.0), self
            accuracy = accuracy_term(batch)
            return Decision("accuracy", (accuracy,), margin, self.length_slack), self
        violation = excess.mean - self.length_tolerance
        decision = priced_reward(batch, 1.0, margin=-violation, length=self.multiplier)
        decision = replace(decision, multiplier=self.multiplier)
        return decision, replace(self, **moved_dual(self, violation, excess.standard_error))


NOISE_MEMORY = 0.9  # weight of the past in the running mean of the variance
LEAST_STANDARD_ERROR = 1e-3


def moved_dual(dual: Any, violation: float, standard_error: float) -> dict[str, float]:
    """λ ← [λ + κ·violation/SE]₊, and the running mean of the variance behind SE.

    `dual` has `rate`, `multiplier` and `variance`: a method's guard, or a contract's line.
    """
    variance = standard_error**2
    if dual.variance is not None:
        variance = NOISE_MEMORY * dual.variance + (1.0 - NOISE_MEMORY) * variance
    unit = max(LEAST_STANDARD_ERROR, variance**0.5)
    return {
        "multiplier": projected(dual.multiplier + dual.rate * violation / unit),
        "variance": variance,
    }


def projected(multiplier: float) -> float:
    """[λ]₊, and no more than lets λ come back within a run after accuracy collapsed."""
    return min(max(0.0, multiplier), LARGEST_MULTIPLIER)


LARGEST_MULTIPLIER = 100.0


def priced_reward(batch: Batch, accuracy: float, margin: float, length: float = 1.0) -> Decision:
    """Both goals in one reward: r = λ·c − μ·(L/L̄ if correct else 1).

    A response costs its tokens in units of the batch's mean L̄. A wrong one costs as much as a mean
    response, so that nothing is gained by being short and wrong. Tokens are compared across
    problems, so the step saves where the tokens are: its advantages need one scale for the batch,
    not one per problem.
    """
    mean = max(1.0, batch.mean_length)  # L̄
    cost = np.where(batch.correct, batch.length / mean, 1.0)
    reward = accuracy * batch.correct - length * cost  # λ, μ
    term = Term(reward, np.ones_like(batch.correct))
    return Decision("mixed", (term,), margin, multiplier=accuracy, estimator="batch")


@dataclass(frozen=True)
class PrimalDual:
    """Primal-dual (appendix): length and λ·accuracy in one step, λ ← [λ + η_λ·ĝ]₊.

    A plain projected step for λ: an adaptive one (Adam) would ignore the size of the violation.
    """

    tolerance: float = 0.0  # ε
    multiplier: float = field(default=1.0, metadata=START)  # λ
    multiplier_rate: float = 10.0  # η_λ: 1 would leave λ where it began, a gap is 0.03 a step

    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_between("tolerance", self.tolerance, 0.0, 1.0)
        require_between("multiplier_rate", self.multiplier_rate, 0.0, 1e3)
        require_between("multiplier", self.multiplier, 0.0, LARGEST_MULTIPLIER)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "PrimalDual"]:
        """The step uses λ_t; the violation ĝ_t moves λ for the next one."""
        violation = paired_gap(batch, reference).mean - self.tolerance  # ĝ
        terms = (length_term(batch, batch.length), accuracy_term(batch, self.multiplier))
        decision = Decision("mixed", terms, margin=-violation, multiplier=self.multiplier)
        moved = projected(self.multiplier + self.multiplier_rate * violation)
        return decision, replace(self, multiplier=moved)


@dataclass(frozen=True)
class Guarded:
    """Any method's signal under CRT's guard: A = A_inner + λ·A_accuracy, λ as in Stage I.

    λ starts at 0: the inner method is itself until accuracy is lacking.
    """

    inner: Any = field(default_factory=lambda: LengthOnly(), metadata=START)  # an Objective
    tolerance: float = 0.0  # ε
    rate: float = 0.5  # κ
    multiplier: float = field(default=0.0, metadata=STATE)  # λ
    variance: float | None = field(default=None, metadata=STATE)  # of the gap, averaged

    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_between("tolerance", self.tolerance, 0.0, 1.0)
        require_between("rate", self.rate, 0.0, 1e3)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "Guarded"]:
        """What the inner method would do, and accuracy as far as it is lacking."""
        inner, after = self.inner.step(batch, reference)
        gap = paired_gap(batch, reference)
        violation = gap.mean - self.tolerance
        terms = (*inner.terms, accuracy_term(batch, self.multiplier))
        decision = replace(
            inner, goal="mixed", terms=terms, margin=-violation, multiplier=self.multiplier
        )
        dual = moved_dual(self, violation, gap.standard_error)
        return decision, replace(self, inner=after, **dual)


@dataclass(frozen=True)
class AccuracyOnly:
    """Plain GRPO: the reward is correctness. A control."""

    guarded: ClassVar[bool] = True

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "AccuracyOnly"]:
        """Always an accuracy step; the margin is shown, not used."""
        return Decision("accuracy", (accuracy_term(batch),), _shown(batch, reference)), self


@dataclass(frozen=True)
class LengthOnly:
    """No guard at all: the reward is −ℓ_norm. A control, and it collapses."""

    guarded: ClassVar[bool] = False

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "LengthOnly"]:
        """Always a length step; the margin is shown, not used."""
        term = length_term(batch, batch.length)
        return Decision("length", (term,), _shown(batch, reference)), self


def _shown(batch: Batch, reference: Batch) -> float:
    return -paired_gap(batch, reference).mean


def require_between(name: str, value: float, low: float, high: float) -> None:
    """Refuses a setting outside its range, NaN among them."""
    if not low <= value <= high:
        raise ValueError(f"{name} = {value} is not between {low:g} and {high:g}")


# --- An objective's memory as JSON, saved with every checkpoint and restored exactly --------------


def state_of(objective: Dataclass) -> dict[str, Any]:
    """The fields that change from step to step, as JSON values; empty without a memory."""
    return {name: _saved(getattr(objective, name)) for name in state_fields(objective)}


def _saved(value: Any) -> Any:
    """A contract's lines are a tuple of values with a memory each."""
    if isinstance(value, tuple):
        return [_saved(each) for each in cast(tuple[Any, ...], value)]
    return state_of(value) if _has_fields(value) else value


def _restored(current: Any, saved: Any) -> Any:
    if isinstance(current, tuple):
        lines = cast(tuple[Any, ...], current)
        if len(saved) != len(lines):
            raise ValueError(f"{len(saved)} lines were saved, the contract has {len(lines)}.")
        return tuple(_restored(line, each) for line, each in zip(lines, saved, strict=True))
    nested = _has_fields(current) and not _has_fields(saved)
    return with_state(current, saved) if nested else saved


def with_state(objective: T, saved: dict[str, Any]) -> T:
    """The objective with a saved memory; its settings stay as they are configured now."""
    names = state_fields(objective)
    if set(saved) != set(names):
        raise ValueError(
            f"The saved state has {sorted(saved)}, {type(objective).__name__} has {sorted(names)}: "
            "it was saved by another method."
        )
    values = {name: _restored(getattr(objective, name), value) for name, value in saved.items()}
    return replace(objective, **values)


def _has_fields(value: object) -> bool:
    """Whether it is an objective itself, the inner one of a `Guarded`, or a contract's line."""
    return hasattr(value, "__dataclass_fields__")


def state_fields(objective: Dataclass | type[Dataclass]) -> tuple[str, ...]:
    """Names of the fields marked as state."""
    return tuple(f.name for f in fields(objective) if f.metadata.get("state"))


def setting_fields(objective: Dataclass | type[Dataclass]) -> tuple[str, ...]:
    """Names of the fields a recipe may set."""
    return tuple(f.name for f in fields(objective) if f.metadata.get("setting", True))
