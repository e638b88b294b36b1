"""A contract: what must not break while a cost falls, in any number of lines.

A metric is one function of a batch. It gives every rollout a credit, (P, G). The mean of a
problem's credits is the problem's value, and a step that repairs a line rewards its credits.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np

from crt.algorithm.batch import TOKENS, Array, Batch, BoolArray
from crt.algorithm.guard import EDGE, gap_between
from crt.algorithm.objectives import (
    LEAST_STANDARD_ERROR,
    STATE,
    Decision,
    Guarded,
    Objective,
    Shorten,
    Term,
    length_term,
    moved_dual,
    priced_reward,
)
from crt.algorithm.statistics import pass_at_k
from crt.algorithm.two_stage import is_feasible, is_plausible
from crt.errors import DataError

Metric = Callable[[Batch], Array]
T = TypeVar("T")

PASS = re.compile(r"pass@([1-9]\d*)")
RELATIVE = re.compile(r"(?:(\d+\.?\d*|\.\d+)\s*[*×]\s*)?reference")


def accuracy(batch: Batch) -> Array:
    """1 for a correct rollout."""
    return batch.correct.astype(float)


def pass_at(k: int) -> Metric:
    """pass@k: a wrong rollout has the chance that one of k − 1 others is right, a right one has 1.

    The mean is Chen et al.'s unbiased estimate. Where the others fail a right rollout stands out.
    """

    def credit(batch: Batch) -> Array:
        others = batch.correct.shape[1] - 1
        if others + 1 < k:
            raise ValueError(f"pass@{k} needs {k} rollouts of a problem; there are {others + 1}.")
        if k == 1:
            return accuracy(batch)
        right = np.minimum(batch.correct.sum(axis=1), others)
        return np.where(
            batch.correct, 1.0, pass_at_k(right, np.full_like(right, others), k - 1)[:, None]
        )

    return credit


def metric_of(name: str) -> Metric:
    """By name: accuracy, pass@k, or what was measured of every rollout."""
    if match := PASS.fullmatch(name):
        return pass_at(int(match[1]))
    return accuracy if name == "accuracy" else partial(_measured, name=name)


def _measured(batch: Batch, name: str) -> Array:
    if name == TOKENS == batch.cost:
        return batch.length
    return _known(batch.measured, name)


def _known(known: Mapping[str, T], name: str) -> T:
    if name not in known:
        raise DataError(
            f"a line is about {name}, which was not measured: give the trainer and `batch_of` the "
            "contract's `measures`."
        )
    return known[name]


def is_share(metric: str) -> bool:
    """Whether a metric lies between 0 and 1."""
    return metric in ("accuracy", "format") or PASS.fullmatch(metric) is not None


@dataclass(frozen=True)
class Standing:
    """How a line stands in a batch, in the metric's unit; with a margin below 0 it is broken."""

    value: float
    bound: float
    margin: float
    standard_error: float

    @property
    def unit(self) -> float:
        """1 for shares, for tokens about as many as are allowed: lines can be compared in it."""
        return max(1.0, abs(self.bound))


@dataclass(frozen=True)
class Line:
    """One promise: a metric, of all problems or of one data set, not below or not above a bound.

    The bound is a number, `reference`, or a multiple of it such as `1.1 * reference`, problem by
    problem. λ is the line's debt: what it was broken by so far, in units of that noise.
    """

    metric: str
    at_least: float | str | None = None
    at_most: float | str | None = None
    data: str = ""
    tolerance: float = 0.0
    rate: float = 2.0  # κ
    multiplier: float = field(default=1.0, metadata=STATE)  # λ
    variance: float | None = field(default=None, metadata=STATE)

    @property
    def name(self) -> str:
        """As logs and tables call it."""
        of = f" of {self.data}" if self.data else ""
        words = f"at most {self.at_most}" if self.at_least is None else f"at least {self.at_least}"
        return f"{self.metric}{of} {words}"

    @property
    def sign(self) -> float:
        """1 where more is better."""
        return -1.0 if self.at_least is None else 1.0

    @property
    def bound(self) -> tuple[float, float]:
        """Multiple of the reference's value, and what is added to it: one of them is 0."""
        bound = self.at_most if self.at_least is None else self.at_least
        if isinstance(bound, str):
            match = RELATIVE.fullmatch(bound.strip())
            if match is None:
                raise ValueError(f"{bound!r} is neither a number nor a multiple of the reference")
            return float(match[1] or 1.0), 0.0
        return 0.0, float(bound or 0.0)

    @property
    def measure(self) -> str:
        """What is measured of a rollout: a response without an answer has no long one, either."""
        return "answered" if self.metric == "answer" and self.sign > 0 else self.metric

    def credits(self, batch: Batch) -> Array:
        """(P, G) What every rollout adds to its problem's value."""
        return metric_of(self.measure)(batch)

    def rows(self, batch: Batch) -> BoolArray:
        """(P,) The problems that it is about."""
        everyone = np.ones(len(batch.problem_ids), dtype=bool)
        return _known(batch.within, self.data) if self.data else everyone

    def wanted(self, reference: Batch) -> Array:
        """(P, any) What the credits are compared with."""
        multiple, constant = self.bound
        if not multiple:
            return np.full((len(reference.problem_ids), 1), constant)
        return multiple * self.credits(reference)

    def standing(self, batch: Batch, reference: Batch, slack: float = 0.0) -> Standing | None:
        """On the same problems; None where none of them is the line's. `slack` is in its unit."""
        rows = self.rows(batch)
        if not rows.any():
            return None
        wanted, found = self.wanted(reference)[rows], self.credits(batch)[rows]
        gap = gap_between(*((wanted, found) if self.sign > 0 else (found, wanted)))
        value, bound = float(found.mean()), float(wanted.mean())
        margin = self.tolerance + slack * max(1.0, abs(bound)) - gap.mean
        return Standing(value, bound, margin, gap.standard_error)

    def repair(self, batch: Batch, standing: Standing) -> Term:
        """The reward of a step that repairs it: its credits, on its problems alone."""
        credits = self.sign * self.credits(batch) / standing.unit
        among = np.broadcast_to(self.rows(batch)[:, None], credits.shape)
        return Term(np.where(among, credits, 0.0), among)

    def moved(self, standing: Standing) -> "Line":
        """Its debt after this batch, by the rule of Stage I."""
        violation, error = -standing.margin / standing.unit, standing.standard_error / standing.unit
        return replace(self, **moved_dual(self, violation, error))


@dataclass(frozen=True)
class Contracted:
    """Any number of constraints as CRPO has them: each step repairs the one most in debt.

    `inner` is a stage of CRT, or another method in its guard; the lines stand in for its own
    constraint on accuracy. With a multiplier every step lowers the cost and the repair is weighted
    by the debt λ. With a switch a step does one of both, and only what it is broken by in this
    step counts.
    """

    inner: Any = field(metadata=STATE)  # Shorten, Refine or Guarded
    lines: tuple[Line, ...] = field(metadata=STATE)
    slack: float = 0.01  # η of the switch

    guarded: ClassVar[bool] = True

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "Contracted"]:
        """What the inner method would do if accuracy were not its own concern, and the repair."""
        switch = getattr(self.inner, "rule", None) == "switch"
        slack = self.slack if switch else 0.0
        stands = [(line, line.standing(batch, reference, slack)) for line in self.lines]
        known = [(line, standing) for line, standing in stands if standing is not None]
        decision, inner = unguarded(self.inner, batch, reference)
        if switch:
            broken = [each for each in known if each[1].margin < -EDGE * each[1].unit]
            worst = max(broken, key=lambda each: noise_units(each[1]), default=None)
            decision = decision if worst is None else switched(batch, *worst, self.slack)
            lines = self.lines
        else:
            worst = max(known, key=lambda each: each[0].multiplier, default=None)
            decision = decision if worst is None else weighted(decision, batch, *worst)
            lines = tuple(line if s is None else line.moved(s) for line, s in stands)
        if worst is None and known and isinstance(self.inner, Shorten):
            decision = replace(decision, margin=binding([s for _, s in known]).margin, slack=slack)
        decision = replace(
            decision,
            line=None if worst is None else worst[0].name,
            lines={line.name: shown(line, s, switch) for line, s in known},
        )
        return decision, replace(self, inner=inner, lines=lines)


def unguarded(objective: Any, batch: Batch, reference: Batch) -> tuple[Decision, Any]:
    """A step of the objective without its own constraint on accuracy, and what follows it."""
    if isinstance(objective, Guarded):
        decision, inner = objective.inner.step(batch, reference)
        return decision, replace(objective, inner=inner)
    if isinstance(objective, Shorten):
        if objective.rule == "multiplier":
            return priced_reward(batch, 0.0, margin=0.0), objective
        return Decision("length", (length_term(batch, batch.length),), 0.0), objective
    return objective.step(batch, reference)


def noise_units(standing: Standing) -> float:
    """How far a line is broken, in standard errors of its gap."""
    return -standing.margin / max(LEAST_STANDARD_ERROR * standing.unit, standing.standard_error)


def switched(batch: Batch, line: Line, standing: Standing, slack: float) -> Decision:
    """A step for this line alone. Correctness has the run's estimator, as in Alg. 1.

    Other credits tell problems apart by their size, so they have one scale for the batch.
    """
    plain, term = line.metric == "accuracy", line.repair(batch, standing)
    goal, estimator = ("accuracy", None) if plain else ("repair", "batch")
    share = float(line.rows(batch).mean())
    return Decision(goal, (term,), standing.margin, slack, share, estimator=estimator)


def weighted(decision: Decision, batch: Batch, line: Line, standing: Standing) -> Decision:
    """The step with the line's credits, weighted by its debt λ."""
    repair = line.repair(batch, standing)
    terms = (*decision.terms, replace(repair, weight=line.multiplier))
    if decision.estimator == "batch":  # one reward, as Stage I has it
        (term,) = decision.terms
        terms = (replace(term, reward=term.reward + line.multiplier * repair.reward),)
    return replace(
        decision, goal="mixed", terms=terms, margin=standing.margin, multiplier=line.multiplier
    )


def shown(line: Line, standing: Standing, switch: bool) -> dict[str, float | None]:
    """A line's figures in the row of a step."""
    return {
        "value": standing.value,
        "bound": standing.bound,
        "margin": standing.margin,
        "standard_error": standing.standard_error,
        "multiplier": None if switch else line.multiplier,
    }


def under_contract(objective: Objective, lines: Sequence[Line], slack: float = 0.01) -> Objective:
    """The objective of a stage with these lines for its guard; without any it stays as it is."""
    if not lines:
        return objective
    stage: Any = objective
    dual = {"rate": stage.rate, "multiplier": stage.multiplier}
    return Contracted(objective, tuple(replace(line, **dual) for line in lines), slack)


def inner_of(objective: Objective) -> Objective:
    """What a contract is around; another objective as it is."""
    return objective.inner if isinstance(objective, Contracted) else objective


def with_inner(objective: Objective, inner: Objective) -> Objective:
    """The same contract around this objective, or the objective itself without one."""
    return replace(objective, inner=inner) if isinstance(objective, Contracted) else inner


def binding(standings: Sequence[Standing]) -> Standing:
    """The line that decides whether all are kept: the fewest standard errors from its bound.

    One that is not feasible comes before all that are, however small their errors.
    """

    def kept(standing: Standing) -> tuple[bool, bool, float]:
        margin, error = (n / standing.unit for n in (standing.margin, standing.standard_error))
        verdicts = is_feasible(margin, error), is_plausible(margin, error)
        return *verdicts, -noise_units(standing)

    return min(standings, key=kept)
