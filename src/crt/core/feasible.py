"""What a run hands over: CRPO's promise holds for the feasible iterates, not for the last one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crt.core.guard import EDGE

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
        return self.margin >= -self.standard_error - EDGE


def is_feasible(margin: float, standard_error: float) -> bool:
    """The burden of proof is the checkpoint's: the noisier its measurement, the harder it is."""
    return margin >= standard_error - EDGE


def candidates_of(records: Mapping[int, Mapping[str, Any]]) -> list[Candidate]:
    """Checkpoints by their records, step → record, without those that could not be graded."""
    return [
        Candidate(
            step,
            record["accuracy"],
            record["tokens"],
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


def _shortest(candidates: Sequence[Candidate]) -> Candidate:
    """Of those that are as good as equally short the most accurate."""
    limit = (1 + EQUALLY_SHORT) * min(candidate.length for candidate in candidates)
    short = [candidate for candidate in candidates if candidate.length <= limit]
    return max(short, key=lambda c: (c.accuracy, -c.length, -c.step))
