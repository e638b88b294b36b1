"""What a run hands over: CRPO's promise holds for the feasible iterates, not for the last one."""

from collections.abc import Sequence
from dataclasses import dataclass

from crt.core.guard import EDGE


@dataclass(frozen=True)
class Candidate:
    """A checkpoint and what was measured of it; below 0 its margin breaks the guard."""

    step: int
    accuracy: float
    length: float
    margin: float

    @property
    def feasible(self) -> bool:
        """Accuracy at the floor or above."""
        return self.margin >= -EDGE


def shortest_feasible(candidates: Sequence[Candidate]) -> Candidate:
    """The shortest that keeps the guard; if none does, the one that breaks it least."""
    if not candidates:
        raise ValueError("There is no checkpoint to choose from.")
    feasible = [candidate for candidate in candidates if candidate.feasible]
    if feasible:
        return min(feasible, key=lambda c: (c.length, c.step))
    return max(candidates, key=lambda c: (c.margin, -c.step))
