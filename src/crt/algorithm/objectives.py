"""The paper's method: a graded batch in, what this step optimises and why out.

`Shorten` is Stage I (Alg. 1), `Refine` Stage II (Eq. 4), `PrimalDual` the appendix's algorithm.
An objective is a frozen value; `step` returns the decision and the objective of the next step,
which differs only where the objective has a memory (fields marked as state).
"""

from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np

from crt.algorithm.batch import Array, Batch, BoolArray
from crt.algorithm.guard import EDGE, Gap, Slack, paired_gap, slack_of
from crt.algorithm.length import LengthOn, length_reward, normalised_length

Goal = Literal["length", "accuracy", "mixed"]
Solved = Literal["rest", "shorten"]  # a problem without a wrong response, in an accuracy step

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


def either(chosen: BoolArray, one: Term, other: Term) -> Term:
    """`one` for the chosen problems (P,), `other` for the rest."""
    rows = chosen[:, None]
    return Term(np.where(rows, one.reward, other.reward), np.where(rows, one.among, other.among))


def accuracy_step(batch: Batch, shorter: Term, solved: Solved) -> Term:
    """Accuracy; with `solved = "shorten"`, length where no response is wrong."""
    accuracy = accuracy_term(batch)
    if solved == "rest":
        return accuracy
    return either(batch.accuracy_by_problem >= 1.0, shorter, accuracy)


def one_reward(batch: Batch, reference: Batch, reward: Array, goal: Goal = "mixed") -> Decision:
    """A decision with one reward for all rollouts; the margin to the reference is only shown."""
    return Decision(goal, (Term(reward, np.ones_like(batch.correct)),), _shown(batch, reference))


@dataclass(frozen=True)
class Shorten:
    """Stage I (Alg. 1): shorten while accuracy is within `tolerance + slack` of the reference.

    `guard = "problem"` asks problem by problem instead of once for the batch. `smoothing` is the
    weight of the past in the averaged gap; 0, the paper's reading, has no memory. An accuracy step
    has nothing to learn from problems without a wrong response: they rest, or go on to shorten.
    """

    tolerance: float = 0.0  # ε
    slack: Slack = 0.01  # η
    guard: Literal["batch", "problem"] = "batch"
    length_on: LengthOn = "all"
    solved: Solved = "rest"
    smoothing: float = 0.0
    average_gap: float | None = field(default=None, metadata=STATE)
    gap_noise: float = field(default=1.0, metadata=STATE)  # variance of the average / of one gap

    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_between("tolerance", self.tolerance, 0.0, 1.0)
        if self.slack != "auto":
            require_between("slack", self.slack, 0.0, 1.0)
        require_between("smoothing", self.smoothing, 0.0, 0.999)
        if self.smoothing and self.guard == "problem":
            raise ValueError(
                "smoothing averages the gap of the whole batch, so it has no use with "
                'guard = "problem": set smoothing = 0 or guard = "batch"'
            )

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "Shorten"]:
        """Length steps while the guard holds, accuracy steps where it does not."""
        gap = paired_gap(batch, reference)
        average, noise = self._averaged(gap)
        slack = slack_of(self.slack, gap.standard_error * noise**0.5)
        margin = self.tolerance + slack - average
        broken = np.full(len(batch.problem_ids), margin < -EDGE)
        if self.guard == "problem":
            broken = self._broken_problems(gap)
        shorter = Term(*length_reward(batch, batch.length, self.length_on))
        term = either(broken, accuracy_step(batch, shorter, self.solved), shorter)
        decision = Decision(_goal(broken), (term,), margin, slack, float(broken.mean()))
        if not self.smoothing:
            return decision, self
        return decision, replace(self, average_gap=average, gap_noise=noise)

    def _averaged(self, gap: Gap) -> tuple[float, float]:
        """The average gap with this batch in it, and its variance in units of one batch's."""
        if self.average_gap is None:
            return gap.mean, 1.0
        past, now = self.smoothing, 1.0 - self.smoothing
        return past * self.average_gap + now * gap.mean, past**2 * self.gap_noise + now**2

    def _broken_problems(self, gap: Gap) -> BoolArray:
        """(P,) Whose accuracy is below its own reference by more than its own slack."""
        slack = np.array([slack_of(self.slack, float(e)) for e in gap.standard_error_by_problem])
        return self.tolerance + slack - gap.by_problem < -EDGE


@dataclass(frozen=True)
class Refine:
    """Stage II (Eq. 4): raise accuracy while length stays at that of Stage I's result.

    Both lengths are normalised with the frozen statistics of the reference, Stage I's result. What
    `solved` says is the same as in Stage I.
    """

    length_tolerance: float = 0.02  # δ
    length_slack: float = 0.01  # η_L
    length_on: LengthOn = "all"
    solved: Solved = "rest"

    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_between("length_tolerance", self.length_tolerance, 0.0, 1.0)
        require_between("length_slack", self.length_slack, 0.0, 1.0)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "Refine"]:
        """Accuracy steps while the length is kept, length steps where it is not."""
        if batch.problem_ids != reference.problem_ids:
            raise ValueError("Stage II compares the same problems in batch and reference.")
        level = normalised_length(batch.length, reference.length, frozen=True).mean()
        limit = normalised_length(reference.length, reference.length, frozen=True).mean()
        margin = float(limit + self.length_tolerance + self.length_slack - level)
        shorter = Term(*length_reward(batch, reference.length, self.length_on, frozen=True))
        if margin < -EDGE:
            return Decision("length", (shorter,), margin, self.length_slack, 1.0), self
        term = accuracy_step(batch, shorter, self.solved)
        return Decision("accuracy", (term,), margin, self.length_slack), self


@dataclass(frozen=True)
class PrimalDual:
    """Primal-dual (appendix): length and λ·accuracy in one step, λ ← [λ + η_λ·ĝ]₊.

    A plain projected step for λ: an adaptive one (Adam) would ignore the size of the violation.
    """

    tolerance: float = 0.0  # ε
    multiplier: float = field(default=1.0, metadata=START)  # λ
    multiplier_rate: float = 10.0  # η_λ: 1 would leave λ where it began, a gap is 0.03 a step
    multiplier_limit: float = 20.0
    length_on: LengthOn = "all"

    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_between("tolerance", self.tolerance, 0.0, 1.0)
        require_between("multiplier_rate", self.multiplier_rate, 0.0, 1e3)
        require_between("multiplier_limit", self.multiplier_limit, 0.0, 1e6)
        require_between("multiplier", self.multiplier, 0.0, self.multiplier_limit)

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "PrimalDual"]:
        """The step uses λ_t; the violation ĝ_t moves λ for the next one."""
        violation = paired_gap(batch, reference).mean - self.tolerance  # ĝ
        length = Term(*length_reward(batch, batch.length, self.length_on))
        terms = (length, accuracy_term(batch, self.multiplier))
        decision = Decision("mixed", terms, margin=-violation, multiplier=self.multiplier)
        moved = self.multiplier + self.multiplier_rate * violation
        return decision, replace(self, multiplier=min(max(0.0, moved), self.multiplier_limit))


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

    length_on: LengthOn = "all"

    guarded: ClassVar[bool] = False

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "LengthOnly"]:
        """Always a length step; the margin is shown, not used."""
        term = Term(*length_reward(batch, batch.length, self.length_on))
        return Decision("length", (term,), _shown(batch, reference)), self


def _shown(batch: Batch, reference: Batch) -> float:
    return -paired_gap(batch, reference).mean


def _goal(broken: BoolArray) -> Goal:
    return "accuracy" if broken.all() else "mixed" if broken.any() else "length"


def require_between(name: str, value: float, low: float, high: float) -> None:
    """Refuses a setting outside its range, NaN among them."""
    if not low <= value <= high:
        raise ValueError(f"{name} = {value} is not between {low:g} and {high:g}")


# --- An objective's memory as JSON, saved with every checkpoint and restored exactly --------------


def state_of(objective: Dataclass) -> dict[str, Any]:
    """The fields that change from step to step, as JSON values; empty without a memory."""
    return {name: getattr(objective, name) for name in state_fields(objective)}


def with_state(objective: T, saved: dict[str, Any]) -> T:
    """The objective with a saved memory; its settings stay as they are configured now."""
    names = state_fields(objective)
    if set(saved) != set(names):
        raise ValueError(
            f"The saved state has {sorted(saved)}, {type(objective).__name__} has {sorted(names)}: "
            "it was saved by another method."
        )
    return replace(objective, **saved)


def state_fields(objective: Dataclass | type[Dataclass]) -> tuple[str, ...]:
    """Names of the fields marked as state."""
    return tuple(f.name for f in fields(objective) if f.metadata.get("state"))


def setting_fields(objective: Dataclass | type[Dataclass]) -> tuple[str, ...]:
    """Names of the fields a recipe may set."""
    return tuple(f.name for f in fields(objective) if f.metadata.get("setting", True))
