"""The world `pocket:chunks`: the running total is written after one, two, three or all numbers."""

import random
from functools import partial

from crt.pocket.sums import CHUNKS, Level, Sum, SumsWorld
from tools.pocket.sums import Course, Mixture, Pieces, closed, equation
from tools.pocket.worlds import Plan, Style, World

SIZES = {"one": 1, "two": 2, "three": 3, "all": 99}  # numbers added before the total is written
STYLES = {
    "one": Style("One", "one at a time"),
    "two": Style("Two", "two at a time"),
    "three": Style("Three", "three at a time"),
    "all": Style("All", "all at once"),
}


def working(item: Sum, rng: random.Random, size: int) -> Pieces:
    """Equations that each take `size` further numbers to the running total."""
    pieces: Pieces = []
    total, rest = item.terms[0], item.terms[1:]
    while rest:
        part, rest = rest[:size], rest[size:]
        pieces += [*equation((total, *part)), (". " if rest else ".", "text")]
        total += sum(part)
    return pieces


def answer(item: Sum, style: str, rng: random.Random) -> Pieces:
    """The whole answer, after the opened `<think>` block."""
    opening: Pieces = [(f"{STYLES[style].title.capitalize()}: ", "text")]
    return closed([*opening, *working(item, rng, SIZES[style])], item.answer)


# It also learns from sums of two-digit numbers. They make its additions sure, but a model of this
# size and training does not yet copy such numbers without slips, so its problems have none.
TRAINED = SumsWorld(
    CHUNKS.name,
    (
        Level((3, 4), (1, 9)),
        Level((6, 8), (1, 9)),
        Level((3, 4), (11, 49)),
        Level((5, 6), (11, 49)),
    ),
)
COURSE = Course(
    TRAINED,
    tuple(STYLES),
    answer,
    [partial(working, size=size) for size in SIZES.values()],
    # Single sums come soon, and so does copying the numbers of a question; longer chunks take time.
    (
        Mixture(0.15, 0.6, (0.7, 0.3, 0.0, 0.0), (0.8, 0.2, 0.0, 0.0)),
        Mixture(0.5, 0.4, (0.2, 0.5, 0.25, 0.05), (0.5, 0.3, 0.14, 0.06)),
        Mixture(1.0, 0.25, (0.15, 0.45, 0.3, 0.1), (0.64, 0.2, 0.1, 0.06)),
    ),
)
ABOUT = """\
It adds several numbers and writes the running total after every number, every second, every third,
or at the end. Writing less costs accuracy, little on short sums and much on long ones."""

WORLD = World(
    name=CHUNKS.name,
    title="The pocket model of chunks",
    about=ABOUT,
    levels={
        1: "3 or 4 numbers of one digit",
        2: "6 such numbers",
        3: "7 such numbers",
        4: "8 such numbers",
    },
    styles=STYLES,
    corpus=COURSE.corpus,
    training_problem=COURSE.training_problem,
    batch=COURSE.batch,
    plan=Plan(supervised=1500, polish=12),
)
