"""Worked answers to one exercise, from a bare guess to broken down with every redundancy."""

import random
from typing import Literal, get_args

from crt.pocket.problems import Exercise

Style = Literal["guess", "head", "broken", "redundant"]
STYLES: tuple[Style, ...] = get_args(Style)

# The first word decides the style, so that measuring can force one.
FIRST_WORD: dict[Style, str] = {
    "guess": "Guess",
    "head": "In",
    "broken": "Steps",
    "redundant": "Okay",
}

OPENERS = (
    "Okay, so I need to find how many there are in the end.",
    "Okay, let me think about this.",
    "Okay, let me think about this step by step.",
    "Okay, so I need to work this out. Let me break it down.",
)
CHECKS = (
    "Wait, let me double-check that.",
    "Wait, let me check that again.",
    "Hmm, let me make sure that is right.",
)
RELIEFS = ("Yes, that is right.", "Okay, that is the same.", "Good, that is correct.")
AGAIN = ("Alternatively, do it the other way round.", "Let me do it another way to be sure.")
FILLERS = ("Hmm, I think that is correct.", "So far so good.", "Let me think.")
CLOSERS = ("So the final answer is {n}.", "So there are {n} in the end.", "I am sure: it is {n}.")


def signed(have: int, amount: int) -> str:
    """One gain or loss as an equation."""
    sign = "+" if amount > 0 else "-"
    return f"{have} {sign} {abs(amount)} = {have + amount}."


def undone(have: int, amount: int) -> str:
    """The same gain or loss checked backwards."""
    return signed(have + amount, -amount)


def places(number: int) -> tuple[int, ...]:
    """Tens and ones of a number: 37 is 30 and 7, 7 is 7."""
    return (number,) if number < 10 else (number // 10 * 10, number % 10)


def products(item: Exercise) -> list[tuple[int, int]]:
    """The products of tens and ones that make up all packs."""
    return [
        (left, right)
        for size, count in item.packs
        for right in places(count)
        for left in places(size)
    ]


def totals(pairs: list[tuple[int, int]]) -> str:
    """Products one by one with the running total behind each."""
    lines, total = [], 0
    for left, right in pairs:
        value = left * right
        lines.append(f"{left} × {right} = {value}" + (f", so {total + value}." if total else "."))
        total += value
    return " ".join(lines)


def working(item: Exercise) -> str:
    """The first part broken down: the packs, or the first change where there are none."""
    return totals(products(item)) if item.packs else signed(item.start, item.changes[0])


def other_working(item: Exercise) -> str:
    """The first part derived a second way: from the ones up, or backwards."""
    return totals(products(item)[::-1]) if item.packs else undone(item.start, item.changes[0])


def last_change(item: Exercise) -> tuple[int, int]:
    """What there is before the last change, and the change."""
    return item.answer - item.changes[-1], item.changes[-1]


def thought_in_head(item: Exercise) -> str:
    """Everything before the last change in one go; without packs, all of it."""
    if not item.packs:
        signs = "".join(f" {'+' if n > 0 else '-'} {abs(n)}" for n in item.changes)
        return f"{item.start}{signs} = {item.answer}."
    all_packs = " + ".join(f"{size} × {count}" for size, count in item.packs)
    return f"{all_packs} = {item.packed}. {signed(*last_change(item))}"


def thought_broken_down(item: Exercise) -> str:
    """Only the working that is needed."""
    return f"{working(item)} {signed(*last_change(item))}"


def thought_redundant(item: Exercise, rng: random.Random) -> str:
    """The same working among filler, checks that copy it, second derivations and restatements."""
    said = [rng.choice(OPENERS), working(item)]
    long = item.level >= 3
    if rng.random() < (0.45 if long else 0.6):
        said += [rng.choice(CHECKS), working(item), rng.choice(RELIEFS)]
    elif rng.random() < 0.35:
        said += [rng.choice(AGAIN), other_working(item), rng.choice(RELIEFS)]
    elif rng.random() < 0.4:
        said.append(rng.choice(FILLERS))
    said.append(signed(*last_change(item)))
    for _ in range(rng.choice((0, 1, 1) if long else (0, 1, 1, 2))):
        line = rng.choice((signed, undone))(*last_change(item))
        said += [rng.choice(CHECKS), line, rng.choice(RELIEFS)]
    if rng.random() < 0.3:
        said.append(rng.choice(FILLERS))
    said.append(rng.choice(CLOSERS).format(n=item.answer))
    return " ".join(said)


def thought(item: Exercise, style: Style, rng: random.Random) -> str:
    """What stands in the `<think>` block."""
    if style == "guess":
        return f"{FIRST_WORD['guess']}."
    if style == "head":
        return f"{FIRST_WORD['head']} my head: {thought_in_head(item)}"
    if style == "broken":
        return f"{FIRST_WORD['broken']}: {thought_broken_down(item)}"
    return thought_redundant(item, rng)


def answer(item: Exercise, style: Style, rng: random.Random) -> str:
    """The whole answer as the model should write it, after the opened `<think>` block."""
    boxed = f"\\boxed{{{item.answer}}}"
    final = f"The final answer is {boxed}." if style == "redundant" else boxed
    return f"{thought(item, style, rng)}\n</think>\n{final}"
