"""Word problems of graded difficulty, made from a seed, in three splits that share no problem."""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from crt.types import Problem

Split = Literal["train", "validation", "test"]

LEVELS = (1, 2, 3, 4)
LEVEL_SHARES = (0.3, 0.3, 0.2, 0.2)
SOURCE = "pocket"

NAMES = {
    **dict.fromkeys(("Tom", "Ben", "Sam", "Max", "Leo", "Dan"), "He"),
    **dict.fromkeys(("Ann", "Eve", "Mia", "Zoe", "Amy", "Kim"), "She"),
}
THINGS = ("pens", "books", "coins", "cards", "eggs", "apples", "stamps", "cups", "nuts", "beads")
HOLDERS = ("boxes", "bags", "packs", "jars")
GAINS = ("buys {n} more", "finds {n} more", "gets {n} more", "makes {n} more")
LOSSES = ("loses {n}", "sells {n}", "gives {n} away", "breaks {n}")
ENDS = ("have now", "have in the end", "have then")


@dataclass(frozen=True, slots=True)
class Exercise:
    """The arithmetic of a problem: a start, packs of `(size, count)`, then changes, in order."""

    level: int
    start: int
    packs: tuple[tuple[int, int], ...]
    changes: tuple[int, ...]

    @property
    def packed(self) -> int:
        """What all packs hold together."""
        return sum(size * count for size, count in self.packs)

    @property
    def answer(self) -> int:
        """The number asked for."""
        return self.start + self.packed + sum(self.changes)

    @property
    def key(self) -> str:
        """The arithmetic as text: the same for every wording of it."""
        packs = "".join(f"+{size}*{count}" for size, count in self.packs)
        return f"{self.start}{packs}" + "".join(f"{change:+d}" for change in self.changes)


def two_digits(rng: random.Random, highest: int) -> int:
    """A number from 12 that is not a multiple of ten, so that breaking it down means something."""
    return rng.choice([n for n in range(12, highest + 1) if n % 10])


def change(rng: random.Random, have: int) -> int:
    """A two-digit gain, or a two-digit loss that leaves something."""
    amount = rng.randint(11, 99)
    return -amount if amount < have and rng.random() < 0.5 else amount


def packs_of(rng: random.Random, level: int) -> tuple[tuple[int, int], ...]:
    """The packs of a problem: none, one small number of them, two kinds, or a dozen and more."""
    if level == 1:
        return ()
    if level == 2:
        return ((two_digits(rng, 99), rng.randint(2, 9)),)
    if level == 3:
        return tuple((two_digits(rng, 59), rng.randint(2, 9)) for _ in range(2))
    return ((two_digits(rng, 99), two_digits(rng, 39)),)


def exercise(rng: random.Random, level: int | None = None) -> Exercise:
    """Draws one exercise, of any split."""
    level = level or rng.choices(LEVELS, LEVEL_SHARES)[0]
    packs = packs_of(rng, level)
    start = rng.randint(12, 99) if level == 1 else 0
    have = start + sum(size * count for size, count in packs)
    changes: list[int] = []
    for _ in range(2 if level == 1 else 1):
        changes.append(change(rng, have))
        have += changes[-1]
    return Exercise(level, start, packs, tuple(changes))


def digest(item: Exercise) -> str:
    """A stable hash of the arithmetic, so that no rewording crosses from one split to another."""
    return hashlib.sha256(item.key.encode()).hexdigest()


def split_of(item: Exercise) -> Split:
    """Eight of ten problems are for training, one for validation, one for testing."""
    place = int(digest(item)[:8], 16) % 10
    return "train" if place < 8 else "validation" if place == 8 else "test"


def exercises(split: str, rng: random.Random) -> Iterator[Exercise]:
    """Endless exercises of one split, repeats possible."""
    while True:
        item = exercise(rng)
        if split_of(item) == split:
            yield item


# How a problem is told: names, things, orders and turns of phrase


def pack_phrase(size: int, count: int, things: str, rng: random.Random) -> str:
    """Several holders of the same size, in one of three phrases."""
    holder = rng.choice(HOLDERS)
    return rng.choice(
        (
            f"{count} {holder} of {size} {things}",
            f"{count} {holder} with {size} {things} each",
            f"{size} {things} in each of {count} {holder}",
        )
    )


def opening(
    name: str, start: int, packs: tuple[tuple[int, int], ...], things: str, rng: random.Random
) -> str:
    """What there is at first."""
    if not packs:
        return f"{name} {rng.choice(('has', 'starts with'))} {start} {things}."
    phrases = [pack_phrase(size, count, things, rng) for size, count in packs]
    if len(phrases) == 1:
        return f"{name} {rng.choice(('has', 'buys'))} {phrases[0]}."
    if rng.random() < 0.5:
        return f"{name} has {phrases[0]} and {phrases[1]}."
    return f"{name} has {phrases[0]}. {NAMES[name]} also has {phrases[1]}."


def following(name: str, changes: tuple[int, ...], rng: random.Random) -> str:
    """What happens next."""
    # a gain or a loss, as a verb with its number
    verbs = [rng.choice(GAINS if n > 0 else LOSSES).format(n=abs(n)) for n in changes]
    if len(verbs) == 2 and rng.random() < 0.5:
        return f"{NAMES[name]} {verbs[0]} and then {verbs[1]}."
    first = rng.choice((NAMES[name], f"Then {NAMES[name].lower()}"))
    later = [f"Later {NAMES[name].lower()} {verb}." for verb in verbs[1:]]
    return " ".join([f"{first} {verbs[0]}.", *later])


def wording(
    start: int, packs: tuple[tuple[int, int], ...], changes: tuple[int, ...], rng: random.Random
) -> str:
    """The whole problem; now and then it is the question that comes first."""
    name, things = rng.choice(list(NAMES)), rng.choice(THINGS)
    question = f"How many {things} does {name} {rng.choice(ENDS)}?"
    if packs and changes[0] > 0 and rng.random() < 0.25:
        phrases = [pack_phrase(size, count, things, rng) for size, count in packs]
        story = f"{name} has {changes[0]} {things}. {NAMES[name]} also has {' and '.join(phrases)}."
    else:
        story = f"{opening(name, start, packs, things, rng)} {following(name, changes, rng)}"
    return f"{question} {story}" if rng.random() < 0.2 else f"{story} {question}"


def problem(item: Exercise, rng: random.Random) -> Problem:
    """Puts an exercise into words."""
    return Problem(
        id=f"{SOURCE}-{digest(item)[:16]}",
        question=wording(item.start, item.packs, item.changes, rng),
        answer=str(item.answer),
        source=f"{SOURCE}/level-{item.level}",
    )


def level_of(item: Problem) -> int:
    """The difficulty of a problem made here, 1 to 4."""
    return int(item.source.rsplit("-", 1)[1])


def problems(split: str, count: int, seed: int) -> list[Problem]:
    """`count` different problems of a split; the same seed gives the same list on any machine."""
    if split not in get_args(Split):
        raise ValueError(f"no split {split!r}: one of {', '.join(get_args(Split))}")
    rng = random.Random(f"{split}-{seed}")
    unique: dict[str, Problem] = {}
    for item in exercises(split, rng):
        if len(unique) >= count:
            break
        unique.setdefault(item.key, problem(item, rng))
    return list(unique.values())
