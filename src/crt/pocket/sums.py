"""The worlds of long sums, `pocket:chunks` and `pocket:checks`: problems made from a seed."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from crt.pocket.problems import digest, split_of
from crt.types import Problem

ASKED = ("What is {sum}?", "Work out {sum}.", "How much is {sum}?", "Find {sum}.")


@dataclass(frozen=True, slots=True)
class Level:
    """How many numbers a sum has and how large they are; both ends are included."""

    count: tuple[int, int]
    size: tuple[int, int]


@dataclass(frozen=True, slots=True)
class SumsWorld:
    """The problems of a world: its levels, from 1, which come equally often."""

    name: str
    levels: tuple[Level, ...]
    distinct: bool = False  # no number twice in a sum


@dataclass(frozen=True, slots=True)
class Sum:
    level: int
    terms: tuple[int, ...]

    @property
    def answer(self) -> int:
        return sum(self.terms)

    @property
    def key(self) -> str:
        return written(self.terms)


CHUNKS, CHECKS = (
    SumsWorld(name, tuple(Level(count, (1, 9)) for count in counts), distinct)
    for name, counts, distinct in (
        ("pocket:chunks", ((3, 4), (6, 6), (7, 7), (8, 8)), False),
        ("pocket:checks", ((4, 5), (6, 6), (7, 7), (8, 8)), True),
    )
)
WORLDS = {world.name: world for world in (CHUNKS, CHECKS)}


def written(terms: tuple[int, ...]) -> str:
    """Numbers as a sum: `27 + 5 + 8`."""
    return " + ".join(map(str, terms))


def exercise(world: SumsWorld, rng: random.Random, level: int | None = None) -> Sum:
    """Draws one sum, of any split."""
    level = level or rng.choices(range(1, len(world.levels) + 1))[0]
    chosen = world.levels[level - 1]
    count = rng.randint(*chosen.count)
    if world.distinct:
        low, high = chosen.size
        return Sum(level, tuple(rng.sample(range(low, high + 1), count)))
    return Sum(level, tuple(rng.randint(*chosen.size) for _ in range(count)))


def exercises(world: SumsWorld, split: str, rng: random.Random) -> Iterator[Sum]:
    """Endless sums of one split, repeats possible."""
    while True:
        item = exercise(world, rng)
        if split_of(item.key) == split:
            yield item


def problem(world: SumsWorld, item: Sum, rng: random.Random) -> Problem:
    return Problem(
        id=f"{world.name.replace(':', '-')}-{digest(item.key)[:16]}",
        question=rng.choice(ASKED).format(sum=item.key),
        answer=str(item.answer),
        source=f"{world.name}/level-{item.level}",
    )


def problems(world: SumsWorld, split: str, seed: int) -> Iterator[Problem]:
    """Endless problems of a split, repeats possible; the same from a seed on any machine."""
    rng = random.Random(f"{world.name}-{split}-{seed}")
    return (problem(world, item, rng) for item in exercises(world, split, rng))


def outside(world: SumsWorld, question: str) -> str | None:
    """A sentence on why a question is outside a world's language, or None if it is inside."""
    frames = "|".join(
        re.escape(asked).replace(re.escape("{sum}"), r"([\d+\s]+)") for asked in ASKED
    )
    if match := re.fullmatch(frames, question.strip()):
        written_sum = next(filter(None, match.groups()))
        numbers = [int(n) for n in re.findall(r"\d+", written_sum)]
        plain = "+".join(map(str, numbers)) == re.sub(r"\s", "", written_sum)
        if world.distinct and len(set(numbers)) < len(numbers):
            plain = False
        if plain and any(
            level.count[0] <= len(numbers) <= level.count[1]
            and all(level.size[0] <= n <= level.size[1] for n in numbers)
            for level in world.levels
        ):
            return None
    kind = "different numbers" if world.distinct else "numbers"
    sizes = "; ".join(
        f"{low} to {high} {kind} from {least} to {most}"
        if low < high
        else f"{low} {kind} from {least} to {most}"
        for (low, high), (least, most) in ((level.count, level.size) for level in world.levels)
    )
    example = exercise(world, random.Random(0), 1)
    return (
        f"Sorry, {world.name} is a miniature that adds: {sizes}. For example: "
        f"{ASKED[0].format(sum=example.key)}"
    )
