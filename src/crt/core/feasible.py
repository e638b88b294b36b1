"""What a run hands over: CRPO's promise holds for the feasible iterates, not for the last one."""

from collections.abc import Sequence
from dataclasses import dataclass

from crt.core.guard import EDGE

EQUALLY_SHORT = 0.02  # no user notices a fiftieth more tokens


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
    """The shortest that keeps the guard; if none does, the one that breaks it least.

    Of those that are as good as equally short the most accurate is taken.
    """
    if not candidates:
        raise ValueError("There is no checkpoint to choose from.")
    feasible = [candidate for candidate in candidates if candidate.feasible]
    if feasible:
        limit = (1 + EQUALLY_SHORT) * min(candidate.length for candidate in feasible)
        short = [candidate for candidate in feasible if candidate.length <= limit]
        return max(short, key=lambda c: (c.accuracy, -c.length, -c.step))
    return max(candidates, key=lambda c: (c.margin, -c.step))
