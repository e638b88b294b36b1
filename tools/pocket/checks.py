"""The world `pocket:checks`: what was added is added again in another order and compared."""

import random

from crt.pocket.sums import CHECKS, CHUNKS, Sum
from tools.pocket.sums import Course, Mixture, Pieces, closed, equation
from tools.pocket.worlds import Plan, Style, World

STYLES = {
    "all": Style("All", "all at once"),
    "once": Style("Once", "every part once"),
    "checked": Style("Check", "with checks"),
    "redundant": Style("Okay", "with checks and remarks"),
}
OPENINGS = {
    "all": ("All at once:",),
    "once": ("Once:",),
    "checked": ("Check every part:",),
    "redundant": ("Okay, let me think about this.", "Okay, let me add them up with care."),
}
REMARKS = ("Let me check that.", "Wait, let me double-check.", "Hmm, is that right?")
NEEDLESS = 0.35  # of the parts that agree: added a third time all the same
CLOSERS = ("So the final answer is {n}.", "I am sure: it is {n}.")
# What a slip in an example is wrong by: a little or a carry, as real ones mostly are.
SLIPS = (-10, -3, -2, -1, 1, 2, 3, 10)
# Parts of an example that hold a slip in the first and in the second pass. They are many, so that
# the second pass learns to be worked out and not to be copied from the first.
FIRST_SLIPS, SECOND_SLIPS = 0.45, 0.2

PART = 4  # numbers added to the running total in one go

Part = tuple[int, ...]  # a total and the numbers to add to it


def parts(item: Sum) -> list[Part]:
    """The running total with the next numbers, until none are left."""
    total, rest, found = item.terms[0], item.terms[1:], []
    while rest:
        found.append((total, *rest[:PART]))
        total, rest = sum(found[-1]), rest[PART:]
    return found


def orders(part: Part) -> tuple[Part, Part, Part]:
    """Three orders of adding the same.

    The first two end with the same number: from it the model finds the next one of the question.
    """
    first, last = part[:-1], part[-1:]
    return part, (*first[-1:], *first[:-1], *last), (*last, *first)


def slipped(part: Part, rng: random.Random, slips: float) -> int:
    """The sum of a part, or with a probability a wrong one near it."""
    right = sum(part)
    return (
        rng.choice([right + by for by in SLIPS if by > -right]) if rng.random() < slips else right
    )


def checked(part: Part, rng: random.Random, wordy: bool) -> Pieces:
    """A part added twice, and a third time where the two differ; then the majority.

    `wordy`: with remarks, and now and then a third time although the two agree.
    """
    first, second, third = orders(part)
    always = wordy and rng.random() < NEEDLESS
    one, two = slipped(part, rng, FIRST_SLIPS), slipped(part, rng, SECOND_SLIPS)
    while one == two != sum(part):  # the same slip twice would not be seen
        two = slipped(part, rng, SECOND_SLIPS)
    remark = f"{rng.choice(REMARKS)} " if wordy else ""
    verdict = f"{one} and {two}: {'the same' if one == two else 'not the same'}."
    pieces = [*equation(first, one), (f". {remark}Again: ", "text"), *equation(second, two)]
    pieces += [(f". {verdict}", "text")]
    if one != two or always:  # with a right third pass, two of three are right
        pieces += [(" Once more: ", "text"), *equation(third), (f". So {sum(part)}.", "text")]
    return pieces


def answer(item: Sum, style: str, rng: random.Random) -> Pieces:
    """The whole answer, after the opened `<think>` block."""
    pieces: Pieces = [(rng.choice(OPENINGS[style]), "text")]
    if style == "all":
        pieces += [(" ", "text"), *equation(item.terms), (".", "text")]
    else:
        for part in parts(item):
            pieces += [(" ", "text"), *one_part(part, style, rng)]
    if style == "redundant":
        pieces.append((f" {rng.choice(CLOSERS).format(n=item.answer)}", "text"))
    return closed(pieces, item.answer)


def one_part(part: Part, style: str, rng: random.Random) -> Pieces:
    """A part in one equation, or checked; two numbers are too easy for a check."""
    if style == "once" or len(part) == 2:
        return [*equation(part), (".", "text")]
    return checked(part, rng, wordy=style == "redundant")


def drill(item: Sum, rng: random.Random) -> Pieces:
    """One part of a sum, in any of the orders."""
    return [*equation(rng.choice(orders(rng.choice(parts(item))))), (".", "text")]


COURSE = Course(
    CHECKS,
    tuple(STYLES),
    answer,
    [drill],
    # It begins with a model that can add; what it has to learn is to check.
    (
        Mixture(0.5, 0.4, (1.0,), (0.04, 0.16, 0.55, 0.25)),
        Mixture(1.0, 0.25, (1.0,), (0.03, 0.12, 0.50, 0.35)),
    ),
)
ABOUT = """\
It adds up to five numbers in one go and slips now and then. Where it checks, it adds the same
numbers again in another order, compares, and on a mismatch adds a third time and takes the
majority. Checking really finds slips. Short sums need it less."""

WORLD = World(
    name=CHECKS.name,
    title="The pocket model of checks",
    about=ABOUT,
    levels={
        1: "4 or 5 different numbers of one digit",
        2: "6 such numbers",
        3: "7 such numbers",
        4: "8 such numbers",
    },
    styles=STYLES,
    corpus=COURSE.corpus,
    training_problem=COURSE.training_problem,
    batch=COURSE.batch,
    start=CHUNKS.name,
    plan=Plan(supervised=1200, polish=4, problems=600),
)
