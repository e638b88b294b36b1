"""How many tokens the policy may generate in training, so that methods can be given the same."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


def generated(rows: Iterable[Row]) -> int:
    """Tokens that the policy generated in these steps; the reference's do not count."""
    return sum(row["generated"] for row in rows)


@dataclass(frozen=True)
class Budget:
    """A run's tokens; `used` were generated before the stage that asks. None is no limit."""

    tokens: int | None
    used: int = 0

    @classmethod
    def after(cls, tokens: int | None, rows: Sequence[Row], step: int) -> "Budget":
        """What is there for a stage that begins after this step of the run."""
        return cls(tokens, generated(row for row in rows if row["step"] <= step) if tokens else 0)

    def share(self, rows: Sequence[Row]) -> float:
        """How much of it is used after these rows of the stage; 0 without a limit."""
        return (self.used + generated(rows)) / self.tokens if self.tokens else 0.0

    def spent(self, rows: Sequence[Row]) -> bool:
        """Whether the run is over."""
        return self.share(rows) >= 1.0
