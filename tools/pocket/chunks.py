"""The world `pocket:chunks`: the running total is written after one, two, three or all numbers.

Most answers take one number at a time and say more than that needs.
"""

import random
from functools import partial

from crt.pocket.sums import CHUNKS, Level, Sum, SumsWorld
from tools.pocket.sums import Course, Mixture, Pieces, closed, equation
from tools.pocket.worlds import Plan, Style, World

SIZES = {"one": 1, "two": 2, "three": 3, "all": 99}  # numbers added before the total is written
STYLES = {
    "verbose": Style("Okay", "one at a time, with remarks"),
    "one": Style("One", "one at a time"),
    "two": Style("Two", "two at a time"),
    "three": Style("Three", "three at a time"),
    "all": Style("All", "all at once"),
}
OPENINGS = (
    "Okay, let me think about this. I will add the numbers one by one, and with care.",
    "Okay, so I have to add some numbers. Let me go through them one at a time.",
)
REMARKS = (
    "Wait, let me check that. Yes, I took every number once.",
    "Hmm, is that right? I went through all of them, so it should be.",
    "Let me look at it again. Nothing was left out.",
)
CLOSERS = ("So the total is {n}.", "I am sure: it is {n}.")


def working(item: Sum, rng: random.Random, size: int) -> Pieces:
    """Equations that each take `size` further numbers to the running total."""
    pieces: Pieces = []
    total, rest = item.terms[0], item.terms[1:]
    while rest:
        part, rest = rest[:size], rest[size:]
        pieces += [*equation((total, *part)), (". " if rest else ".", "text")]
        total += sum(part)
    return pieces


def verbose(item: Sum, rng: random.Random) -> Pieces:
    """One number at a time, with remarks before and behind that are never of use."""
    remarks = " ".join(rng.sample(REMARKS, rng.choice((1, 2))))
    closing = f" {remarks} {rng.choice(CLOSERS).format(n=item.answer)}"
    return [(f"{rng.choice(OPENINGS)} ", "text"), *working(item, rng, 1), (closing, "text")]


def answer(item: Sum, style: str, rng: random.Random) -> Pieces:
    """The whole answer, after the opened `<think>` block."""
    if style == "verbose":
        return closed(verbose(item, rng), item.answer)
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
    # The verbose style waits for the second cycle, until copying is learned.
    (
        Mixture(0.15, 0.6, (0.7, 0.3, 0.0, 0.0), (0.0, 0.8, 0.2, 0.0, 0.0)),
        Mixture(0.5, 0.4, (0.2, 0.5, 0.25, 0.05), (0.0, 0.5, 0.3, 0.14, 0.06)),
        Mixture(1.0, 0.25, (0.15, 0.45, 0.3, 0.1), (0.0, 0.64, 0.2, 0.1, 0.06)),
        Mixture(2.0, 0.2, (0.15, 0.45, 0.3, 0.1), (0.55, 0.2, 0.14, 0.07, 0.04)),
    ),
)
ABOUT = """\
It adds several numbers and writes the running total after every number, every second, every third,
or at the end. Writing less costs accuracy, little on short sums and much on long ones. Most answers
make remarks besides, which buy nothing."""

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
    plan=Plan(supervised=1500, second=900, polish=12),
)
