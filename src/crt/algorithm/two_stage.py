"""Two stages: when Stage I is over, where Stage II starts, and what a run hands over."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from crt.algorithm.guard import EDGE
from crt.algorithm.objectives import Guarded, PrimalDual, Refine, Shorten, require_between

Start = Literal["feasible", "plausible"]
"""What Stage II starts from: Stage I's shortest checkpoint that keeps the guard, or the shortest
that may, within the noise of its measurement. Stage II raises accuracy, so what a start lacks can
be made good; the length of a longer one stays."""


@dataclass(frozen=True)
class Saturation:
    """Stage I ends at `latest`; with a `window`, sooner, when length no longer improves.

    It no longer does when the smoothed mean length fell by less than `improvement` over the last
    `window` steps. The paper says "once improvement in response length saturates" and gives no
    rule. Under a multiplier length falls and rises until λ has settled, so there is no window.
    """

    window: int = 0  # steps; 0: `latest` alone
    smoothing: float = 0.9  # weight of the past in the smoothed mean length
    improvement: float = 0.02  # share of the length
    at_least: int = 40  # steps
    latest: float = 0.7  # of all steps, or of the run's tokens

    def __post_init__(self) -> None:
        require_between("smoothing", self.smoothing, 0.0, 0.999)
        require_between("improvement", self.improvement, 0.0, 1.0)
        require_between("window", self.window, 0, 1e6)
        require_between("at_least", self.at_least, 0, 1e6)
        require_between("latest", self.latest, 0.0, 1.0)

    def reached(
        self, mean_tokens: Sequence[float], total_steps: int, tokens_spent: float = 0.0
    ) -> bool:
        """After these steps' mean lengths, one a step from the first, is Stage I over?

        `tokens_spent` is the share of the run's token budget that is used, 0 without one.
        """
        done = len(mean_tokens)
        if max(done / total_steps, tokens_spent) >= self.latest:
            return True
        if not self.window or done < self.at_least or done <= self.window:
            return False
        level = smoothed(mean_tokens, self.smoothing)
        before, now = level[-1 - self.window], level[-1]
        return now > (1.0 - self.improvement) * before


def smoothed(values: Sequence[float], past: float) -> list[float]:
    """Exponential average that starts at the first value."""
    level: list[float] = []
    for value in values:
        level.append(past * level[-1] + (1.0 - past) * value if level else value)
    return level


@dataclass(frozen=True)
class TwoStage:
    """CRT: Stage I, then Stage II from its shortest checkpoint that may keep the guard."""

    shorten: Shorten = field(default_factory=Shorten)
    refine: Refine = field(default_factory=Refine)
    saturation: Saturation = field(default_factory=Saturation)
    start: Start = "plausible"  # the checkpoint of Stage I that Stage II starts from

    def __post_init__(self) -> None:
        if self.saturation.latest >= 1:
            raise ValueError(
                "saturation.latest = 1 leaves no step for Stage II: set it below 1, "
                'or use type = "crt_1s" for Stage I alone'
            )


def guard_of(method: object) -> Shorten:
    """The guard a checkpoint is judged by: the method's own, or the reference's accuracy."""
    if isinstance(method, TwoStage):
        return method.shorten
    if isinstance(method, Shorten):
        return method
    own = method.tolerance if isinstance(method, PrimalDual | Guarded) else 0.0
    return Shorten(tolerance=own)


EQUALLY_SHORT = 0.05  # a twentieth more tokens is no reason to take the less accurate one


@dataclass(frozen=True)
class Candidate:
    """A checkpoint and what was measured of it; below 0 its margin breaks the guard."""

    step: int
    accuracy: float
    length: float
    margin: float
    standard_error: float = 0.0  # of the margin

    @property
    def feasible(self) -> bool:
        """Accuracy at the floor or above, by more than the measurement's own noise."""
        return is_feasible(self.margin, self.standard_error)

    @property
    def plausible(self) -> bool:
        """Accuracy at the floor or above, or below it by no more than the measurement's noise."""
        return is_plausible(self.margin, self.standard_error)


def is_feasible(margin: float, standard_error: float) -> bool:
    """The burden of proof is the checkpoint's: the noisier its measurement, the harder it is."""
    return margin >= standard_error - EDGE


def is_plausible(margin: float, standard_error: float) -> bool:
    """Nothing measured speaks against it."""
    return margin >= -standard_error - EDGE


def candidates_of(records: Mapping[int, Mapping[str, Any]]) -> list[Candidate]:
    """Checkpoints by their records, step → record, without those that could not be graded."""
    return [
        Candidate(
            step,
            record["accuracy"],
            record.get("cost", record["tokens"]),
            record["margin"],
            record.get("standard_error", 0.0),
        )
        for step, record in records.items()
        if record.get("margin") is not None
    ]


def shortest_feasible(candidates: Sequence[Candidate]) -> Candidate:
    """The shortest that keeps the guard; if none does, the shortest that may."""
    feasible = [candidate for candidate in candidates if candidate.feasible]
    return _shortest(feasible) if feasible else shortest_plausible(candidates)


def shortest_plausible(candidates: Sequence[Candidate]) -> Candidate:
    """The shortest that may keep the guard; if none may, the one that breaks it least.

    A long one whose figure is better by noise alone is no better.
    """
    if not candidates:
        raise ValueError("There is no checkpoint to choose from.")
    plausible = [candidate for candidate in candidates if candidate.plausible]
    return _shortest(plausible) if plausible else max(candidates, key=lambda c: (c.margin, -c.step))


def next_to_confirm(
    candidates: Sequence[Candidate], confirmed: Container[int], rule: Start
) -> Candidate:
    """The one to hand over unless a finer measurement speaks against it.

    `confirmed` are the steps that were measured again; those of them that failed `rule` are out.
    """
    left = [c for c in candidates if c.step not in confirmed or getattr(c, rule)]
    return shortest_plausible(left or candidates)


def _shortest(candidates: Sequence[Candidate]) -> Candidate:
    """Of those that are as good as equally short the most accurate."""
    limit = (1 + EQUALLY_SHORT) * min(candidate.length for candidate in candidates)
    short = [candidate for candidate in candidates if candidate.length <= limit]
    return max(short, key=lambda c: (c.accuracy, -c.length, -c.step))
