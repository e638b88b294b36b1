"""The benchmarks: each module yields its rows as they are measured."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

SIZES = ("1M", "5M", "30M")
SHAPES = ("8x16", "16x16")
OTHERS = ("generate", "continuous", "vllm")

ROWS = {  # module → the rows it can measure, in the order of the page
    "steps": ("step", "guard-cached", "guard-fresh"),
    "sampling": (
        *(f"sampler-{size}-{shape}-{o}" for size in SIZES for shape in SHAPES for o in OTHERS),
        *(f"sgemm-{size}" for size in SIZES),
    ),
    "grading": ("grading-serial", "grading-pool"),
    "evaluating": ("evaluation",),
    "serving_clients": ("serving",),
    "starting": ("start-help", "start-import"),
    "growing": (
        "growth-tokens",
        "growth-problems",
        "growth-group",
        "growth-cap",
        "growth-report",
        "growth-memory",
    ),
}
NAMES = tuple(name for names in ROWS.values() for name in names)


@dataclass(frozen=True)
class Setting:
    """What every benchmark is told."""

    wanted: frozenset[str]  # rows
    repeats: int
    threads: int
    folder: Path  # for what it needs on disk
    small: bool = False  # everything as little as it can be: to see that it works

    def wants(self, *names: str) -> bool:
        """Whether one of these rows is to be measured."""
        return not self.wanted.isdisjoint(names)


def chosen(only: Collection[str]) -> frozenset[str]:
    """The rows of these names, or whose names begin with them; all without any."""
    found = {n for n in NAMES if not only or any(n == o or n.startswith(f"{o}-") for o in only)}
    return frozenset(found)
