"""Rules of the guard that were tried on tables, the losers among them: docs/notes/method.md.

    python benchmarks/tables.py --candidates

One class with every knob; a candidate is a setting of it. What won is `crt.Shorten`.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from crt.algorithm.batch import Batch
from crt.algorithm.guard import Gap, paired_gap
from crt.algorithm.length import normalised_length
from crt.algorithm.objectives import Decision, Shorten, Term, accuracy_term

Signal = Literal["paper", "endless", "tokens"]


@dataclass(frozen=True)
class Candidate:
    """A length signal, and how the weight of accuracy follows the gap."""

    signal: Signal = "tokens"
    wrong: float | None = 2.0  # mean responses that a wrong one counts; None: its own length
    scale: Literal["batch", "group_std"] = "batch"  # of the advantages
    rate: float = 1.0  # κ
    unit: Literal["error", "one"] = "error"  # of the gap: its standard error, or none
    start: float = 1.0  # λ₀
    limit: float = 100.0  # of λ
    decay: float = 0.0  # of λ towards λ₀, a step
    dead_zone: float = 0.0  # units of the gap that are ignored
    proportional: float = 0.0  # weight of the averaged gap itself, besides its sum
    multiplicative: bool = False  # λ ← λ·exp(κ·gap)
    hard: bool = False  # a debt: accuracy steps while λ > 0, length steps otherwise
    by_problem: float = 0.0  # more λ for problems below their own reference by their own error
    tolerance: float = 0.0
    multiplier: float | None = None
    variance: float | None = None
    averaged: float = 0.0

    guarded: ClassVar[bool] = True

    def step(self, batch: Batch, reference: Batch) -> tuple[Decision, "Candidate"]:
        """As `Shorten` does it, with every knob."""
        gap = paired_gap(batch, reference)
        before = self.start if self.multiplier is None else self.multiplier
        after = self._moved(before, gap)
        weight = max(0.0, before + self.proportional * self.averaged)
        if self.hard:
            weight = 1e6 if (after.multiplier or 0.0) > 1e-9 else 0.0
        weights = weight + self.by_problem * self._below(batch, reference)
        return self._decision(batch, weights, -gap.mean), after

    def _moved(self, before: float, gap: Gap) -> "Candidate":
        variance = gap.standard_error**2
        if self.variance is not None:
            variance = 0.9 * self.variance + 0.1 * variance
        unit = max(1e-3, variance**0.5) if self.unit == "error" else 1.0
        violation = (gap.mean - self.tolerance) / unit
        felt = 0.0 if abs(violation) < self.dead_zone else violation
        if self.multiplicative:
            moved = max(self.start, before * np.exp(self.rate * felt))
        else:
            moved = before + self.decay * (self.start - before) + self.rate * felt
        return replace(
            self,
            multiplier=float(min(max(0.0, moved), self.limit)),
            variance=variance,
            averaged=0.8 * self.averaged + 0.2 * violation,
        )

    def _below(self, batch: Batch, reference: Batch) -> np.ndarray:
        """(P, 1) Which problems are below their own reference by more than their own error."""
        share, floor = batch.accuracy_by_problem, reference.accuracy_by_problem
        error = np.sqrt(floor * (1 - floor) / batch.correct.shape[1])
        return (floor - share > error).astype(float)[:, None]

    def _decision(self, batch: Batch, weight: np.ndarray, margin: float) -> Decision:
        everyone = np.ones_like(batch.correct)
        if self.signal == "tokens":
            cost = batch.length / batch.mean_length
            if self.wrong is not None:
                cost = np.where(batch.correct, cost, self.wrong)
            term = Term(weight * batch.correct - cost, everyone)
            return Decision("mixed", (term,), margin, estimator=self.scale)
        reward = -normalised_length(batch.length, batch.length)
        if self.signal == "endless":
            reward = np.where(batch.correct, reward, -1.0)
        accuracy = accuracy_term(batch, float(np.mean(weight)))
        return Decision("mixed", (Term(reward, everyone), accuracy), margin)


DEBT = {"rate": 1.0, "unit": "one", "start": 0.0, "limit": 0.3, "hard": True}
CANDIDATES = {
    "switch, the paper's": Shorten(rule="switch"),
    "debt, paper's length": Candidate("paper", **DEBT),
    "debt, wrong is endless": Candidate("endless", **DEBT),
    "debt, tokens": Candidate(**DEBT),
    "soft 0.4, paper's length": Candidate("paper", rate=0.4),
    "soft 0.4, wrong is endless": Candidate("endless", rate=0.4),
    "soft 1, wrong is endless": Candidate("endless"),
    "tokens, wrong its own": Candidate(wrong=None),
    "tokens, wrong 1": Candidate(wrong=1.0),
    "tokens, wrong 1.5": Candidate(wrong=1.5),
    "TOKENS, WRONG 2, RATE 1": Candidate(),
    "tokens, wrong 3": Candidate(wrong=3.0),
    "tokens, wrong 4": Candidate(wrong=4.0),
    "scaled per problem": Candidate(scale="group_std"),
    "rate 0.1": Candidate(rate=0.1),
    "rate 0.2": Candidate(rate=0.2),
    "rate 0.4": Candidate(rate=0.4),
    "rate 2": Candidate(rate=2.0),
    "rate 4": Candidate(rate=4.0),
    "rate 10, gap as it is": Candidate(rate=10.0, unit="one"),
    "starts at 0": Candidate(start=0.0),
    "limited to 4": Candidate(limit=4.0),
    "decays by 5 %": Candidate(decay=0.05),
    "dead zone of 1 error": Candidate(dead_zone=1.0),
    "proportional too": Candidate(rate=0.5, proportional=0.5),
    "multiplicative 0.1": Candidate(wrong=0.0, start=2.0, rate=0.1, multiplicative=True),
    "multiplicative 0.2": Candidate(wrong=0.0, start=2.0, rate=0.2, multiplicative=True),
    "per problem too": Candidate(by_problem=2.0),
    "half a point above": Candidate(tolerance=-0.005),
}
