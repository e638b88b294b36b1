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
        """Accuracy at the floor or above."""
        return self.margin >= -EDGE

    @property
    def doubtful(self) -> bool:
        """Not feasible, but by no more than the measurement's own noise."""
        return not self.feasible and self.margin >= -self.standard_error


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
    """The shortest that keeps the guard.

    If none does, the shortest that may: a long one whose figure is better by noise alone is no
    better. If none may, the one that breaks it least.
    """
    if not candidates:
        raise ValueError("There is no checkpoint to choose from.")
    for some in ([c for c in candidates if c.feasible], [c for c in candidates if c.doubtful]):
        if some:
            return _shortest(some)
    return max(candidates, key=lambda c: (c.margin, -c.step))


def _shortest(candidates: Sequence[Candidate]) -> Candidate:
    """Of those that are as good as equally short the most accurate."""
    limit = (1 + EQUALLY_SHORT) * min(candidate.length for candidate in candidates)
    short = [candidate for candidate in candidates if candidate.length <= limit]
    return max(short, key=lambda c: (c.accuracy, -c.length, -c.step))
