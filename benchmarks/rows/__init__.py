"""The benchmarks: each module yields its rows as they are measured."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

SIZES = ("1M", "30M", "135M")

ROWS = {  # module → the rows it can measure, in the order of the page
    "steps": ("step-pocket", "step-135M", "guard-cached", "guard-fresh"),
    "sampling": tuple(
        f"sampling-{size}-{other}" for size in SIZES for other in ("generate", "vllm")
    ),
    "grading": ("grading",),
    "evaluating": ("evaluation",),
    "serving_clients": ("serving",),
    "starting": ("start-help", "start-import"),
    "growing": ("growth-tokens", "growth-report", "growth-memory", "large-step"),
}
NAMES = tuple(name for names in ROWS.values() for name in names)


@dataclass(frozen=True)
class Setting:
    """What every benchmark is given."""

    wanted: frozenset[str]  # rows
    repeats: int
    cores: int  # of every contender
    folder: Path  # for what it needs on disk
    small: bool = False  # everything as little as it can be: to see that it works

    def wants(self, *names: str) -> bool:
        """Whether one of these rows is to be measured."""
        return not self.wanted.isdisjoint(names)


def chosen(only: Collection[str]) -> frozenset[str]:
    """The rows of these names, or whose names begin with them; all without any."""
    if not only:
        return frozenset(NAMES)
    return frozenset(
        name for name in NAMES if any(name == o or name.startswith(f"{o}-") for o in only)
    )
