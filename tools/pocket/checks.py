"""The world `pocket:checks`: what was added is added again in another order and compared."""

import random

from crt.pocket.sums import CHECKS, CHUNKS, Sum
from tools.pocket.sums import Course, Mixture, Pieces, closed, equation
from tools.pocket.worlds import Plan, Shape, Style, World

STYLES = {
    "quick": Style("Quick", "every part in one go"),
    "once": Style("Once", "once"),
    "checked": Style("Check", "with checks"),
    "redundant": Style("Okay", "with checks and remarks"),
}
OPENINGS = {
    "quick": ("Quick:",),
    "once": ("Once:",),
    "checked": ("Check every part:",),
    "redundant": ("Okay, let me think about this.", "Okay, let me add them up with care."),
}
REMARKS = ("Let me check that.", "Wait, let me double-check.", "Hmm, is that right?")
NEEDLESS = 0.35  # of the parts that agree: added a third time all the same
CLOSERS = ("So the final answer is {n}.", "I am sure: it is {n}.")
# What a part is wrong by in an example: what is added wrongly is wrong by a carry or by one.
SLIPS = (-100, -20, -11, -10, -9, -2, -1, 1, 2, 9, 10, 11, 20, 100)
# Parts of an example that hold a slip in the first and in the second pass. They are many, so that
# the second pass learns to be worked out and not to be copied from the first.
FIRST_SLIPS, SECOND_SLIPS = 0.5, 0.25

Part = tuple[int, int, int]  # a total and two numbers to add


def parts(item: Sum) -> list[Part]:
    """The running total with the next two numbers, until none are left."""
    total, found = item.terms[0], []
    for first, second in zip(item.terms[1::2], item.terms[2::2], strict=True):
        found.append((total, first, second))
        total += first + second
    return found


def orders(part: Part) -> tuple[Part, Part, Part]:
    """Three orders of adding the same, which share no intermediate result."""
    total, first, second = part
    return (total, first, second), (total, second, first), (first, second, total)


def pass_over(order: Part, rng: random.Random, slips: float = 0.0) -> tuple[Pieces, int]:
    """Two additions, and what comes out; with a probability one of the two results is wrong."""
    first, second, third = order
    wrong = rng.choice((0, 1)) if rng.random() < slips else None
    middle = slipped(first + second, rng) if wrong == 0 else first + second
    result = slipped(middle + third, rng) if wrong == 1 else middle + third
    line = equation((first, second), middle)
    return [*line, (", ", "text"), *equation((middle, third), result)], result


def slipped(result: int, rng: random.Random) -> int:
    """A wrong result near the right one."""
    return rng.choice([result + by for by in SLIPS if result + by > 0])


def checked(part: Part, rng: random.Random, wordy: bool) -> Pieces:
    """A part added twice, and a third time where the two differ; then the majority.

    `wordy`: with remarks, and now and then a third time although the two agree.
    """
    always = wordy and rng.random() < NEEDLESS
    first, second, third = orders(part)
    pieces, one = pass_over(first, rng, FIRST_SLIPS)
    again, two = pass_over(second, rng, SECOND_SLIPS)
    while one == two != sum(part):  # the same slip twice would not be seen
        again, two = pass_over(second, rng, SECOND_SLIPS)
    verdict = "The same." if one == two else "Not the same."
    pieces += [(". ", "text"), *remark(rng, wordy), ("Again: ", "text"), *again]
    pieces += [(f". {verdict}", "text")]
    if one != two or always:
        last, three = pass_over(third, rng)
        result = one if one == two else three  # two of three, or the last
        pieces += [(" Once more: ", "text"), *last, (f". So {result}.", "text")]
    return pieces


def remark(rng: random.Random, wordy: bool) -> Pieces:
    """A remark that says nothing."""
    return [(f"{rng.choice(REMARKS)} ", "text")] if wordy else []


def quick(part: Part) -> Pieces:
    """A part in one equation."""
    return [*equation(part), (".", "text")]


def once(part: Part, rng: random.Random) -> Pieces:
    """A part in two additions."""
    return [*pass_over(part, rng)[0], (".", "text")]


def answer(item: Sum, style: str, rng: random.Random) -> Pieces:
    """The whole answer, after the opened `<think>` block."""
    pieces: Pieces = [(rng.choice(OPENINGS[style]), "text")]
    for part in parts(item):
        if style == "quick":
            own = quick(part)
        elif style == "once":
            own = once(part, rng)
        else:
            own = checked(part, rng, wordy=style == "redundant")
        pieces += [(" ", "text"), *own]
    if style == "redundant":
        pieces.append((f" {rng.choice(CLOSERS).format(n=item.answer)}", "text"))
    return closed(pieces, item.answer)


def drill_quick(item: Sum, rng: random.Random) -> Pieces:
    """One part of a sum in one go."""
    return quick(rng.choice(parts(item)))


def drill_once(item: Sum, rng: random.Random) -> Pieces:
    """One part of a sum in two additions, in any of the orders."""
    return once(rng.choice(orders(rng.choice(parts(item)))), rng)


COURSE = Course(
    CHECKS,
    tuple(STYLES),
    answer,
    [drill_quick, drill_once],
    # It begins with a model that can add; what it has to learn is to check.
    (
        Mixture(0.5, 0.25, (0.2, 0.8), (0.08, 0.22, 0.55, 0.15)),
        Mixture(1.0, 0.25, (0.2, 0.8), (0.06, 0.19, 0.40, 0.35)),
    ),
)
ABOUT = """It adds numbers two at a time and slips now and then. Where it checks, it adds the same
numbers again in another order, compares, and on a mismatch adds a third time and takes the
majority. Checking really finds slips. Short sums of small numbers do not need it."""

WORLD = World(
    name=CHECKS.name,
    title="The pocket model of checks",
    about=ABOUT,
    levels={
        1: "3 numbers up to 20",
        2: "3 numbers of two digits",
        3: "5 numbers of two digits",
        4: "7 numbers of two digits",
    },
    styles=STYLES,
    corpus=COURSE.corpus,
    training_problem=COURSE.training_problem,
    batch=COURSE.batch,
    start=CHUNKS.name,
    plan=Plan(supervised=500, polish=4),
    shape=Shape(hidden=128, heads=4),
)
