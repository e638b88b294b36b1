"""Has Stage I stopped shortening? Judged in raw tokens: ℓ_norm shows no level (Eq. 5)."""

from collections.abc import Sequence
from dataclasses import dataclass

from crt.core.objectives import require_between


@dataclass(frozen=True)
class Saturation:
    """Stage I ends when the smoothed mean length improved too little over the last `window` steps.

    The paper says "once improvement in response length saturates" and gives no rule; this is ours.
    """

    smoothing: float = 0.9
    improvement: float = 0.02
    window: int = 20
    at_least: int = 40
    latest: float = 0.7  # of all steps, or of the run's tokens

    def __post_init__(self) -> None:
        require_between("smoothing", self.smoothing, 0.0, 0.999)
        require_between("improvement", self.improvement, 0.0, 1.0)
        require_between("window", self.window, 1, 1e6)
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
        if done < self.at_least or done <= self.window:
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
