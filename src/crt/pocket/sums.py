"""The worlds of long sums, `pocket:chunks` and `pocket:checks`: problems made from a seed."""

import hashlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from crt.pocket.problems import Split
from crt.types import Problem

ASKED = ("What is {sum}?", "Work out {sum}.", "How much is {sum}?", "Find {sum}.")


@dataclass(frozen=True, slots=True)
class Level:
    """How many numbers a sum has and how large they are; both ends are included."""

    count: tuple[int, int]
    size: tuple[int, int]
    share: float  # of problems


@dataclass(frozen=True, slots=True)
class SumsWorld:
    """The problems of a world: its levels, from 1."""

    name: str
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """Numbers to be added."""

    level: int
    terms: tuple[int, ...]

    @property
    def answer(self) -> int:
        """The number asked for."""
        return sum(self.terms)

    @property
    def key(self) -> str:
        """The sum as text."""
        return written(self.terms)

    @property
    def digest(self) -> str:
        """A hash of the sum, the same on every machine."""
        return hashlib.sha256(self.key.encode()).hexdigest()

    @property
    def split(self) -> Split:
        """Eight of ten sums are for training, one for validation, one for testing."""
        place = int(self.digest[:8], 16) % 10
        return "train" if place < 8 else "validation" if place == 8 else "test"


CHUNKS = SumsWorld(
    "pocket:chunks",
    (
        Level((3, 4), (1, 9), 0.25),
        Level((6, 6), (1, 9), 0.25),
        Level((7, 7), (1, 9), 0.25),
        Level((8, 8), (1, 9), 0.25),
    ),
)
CHECKS = SumsWorld(
    "pocket:checks",
    (
        Level((3, 4), (1, 9), 0.25),
        Level((6, 6), (1, 9), 0.25),
        Level((7, 7), (1, 9), 0.25),
        Level((8, 8), (1, 9), 0.25),
    ),
)

WORLDS = {world.name: world for world in (CHUNKS, CHECKS)}


def written(terms: tuple[int, ...]) -> str:
    """Numbers as a sum: `27 + 5 + 8`."""
    return " + ".join(map(str, terms))


def exercise(world: SumsWorld, rng: random.Random, level: int | None = None) -> Sum:
    """Draws one sum, of any split."""
    shares = [each.share for each in world.levels]
    level = level or rng.choices(range(1, len(shares) + 1), shares)[0]
    chosen = world.levels[level - 1]
    count = rng.randint(*chosen.count)
    return Sum(level, tuple(rng.randint(*chosen.size) for _ in range(count)))


def exercises(world: SumsWorld, split: str, rng: random.Random) -> Iterator[Sum]:
    """Endless sums of one split, repeats possible."""
    while True:
        item = exercise(world, rng)
        if item.split == split:
            yield item


def problem(world: SumsWorld, item: Sum, rng: random.Random) -> Problem:
    """Puts a sum into words."""
    return Problem(
        id=f"{world.name.replace(':', '-')}-{item.digest[:16]}",
        question=rng.choice(ASKED).format(sum=item.key),
        answer=str(item.answer),
        source=f"{world.name}/level-{item.level}",
    )


def problems(world: SumsWorld, split: str, count: int, seed: int) -> list[Problem]:
    """`count` different problems of a split; the same seed gives the same list on any machine."""
    if split not in get_args(Split):
        raise ValueError(f"no split {split!r}: one of {', '.join(get_args(Split))}")
    rng = random.Random(f"{world.name}-{split}-{seed}")
    unique: dict[str, Problem] = {}
    for item in exercises(world, split, rng):
        if len(unique) >= count:
            break
        unique.setdefault(item.key, problem(world, item, rng))
    return list(unique.values())


def outside(world: SumsWorld, question: str) -> str | None:
    """A sentence on why a question is outside a world's language, or None if it is inside."""
    frames = "|".join(
        re.escape(asked).replace(re.escape("{sum}"), r"([\d+\s]+)") for asked in ASKED
    )
    if match := re.fullmatch(frames, question.strip()):
        written_sum = next(filter(None, match.groups()))
        numbers = [int(n) for n in re.findall(r"\d+", written_sum)]
        if "+".join(map(str, numbers)) == re.sub(r"\s", "", written_sum) and any(
            level.count[0] <= len(numbers) <= level.count[1]
            and all(level.size[0] <= n <= level.size[1] for n in numbers)
            for level in world.levels
        ):
            return None
    sizes = "; ".join(
        f"{low} to {high} numbers from {least} to {most}"
        if low < high
        else f"{low} numbers from {least} to {most}"
        for (low, high), (least, most) in ((level.count, level.size) for level in world.levels)
    )
    example = exercise(world, random.Random(0), 1)
    return (
        f"Sorry, {world.name} is a miniature that adds: {sizes}. For example: "
        f"{ASKED[0].format(sum=example.key)}"
    )
