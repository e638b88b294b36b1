"""How a problem is told: names, things, orders and turns of phrase."""

import random

NAMES = {
    **dict.fromkeys(("Tom", "Ben", "Sam", "Max", "Leo", "Dan"), "He"),
    **dict.fromkeys(("Ann", "Eve", "Mia", "Zoe", "Amy", "Kim"), "She"),
}
THINGS = ("pens", "books", "coins", "cards", "eggs", "apples", "stamps", "cups", "nuts", "beads")
HOLDERS = ("boxes", "bags", "packs", "jars")
GAINS = ("buys {n} more", "finds {n} more", "gets {n} more", "makes {n} more")
LOSSES = ("loses {n}", "sells {n}", "gives {n} away", "breaks {n}")
ENDS = ("have now", "have in the end", "have then")


def pack(size: int, count: int, things: str, rng: random.Random) -> str:
    """Several holders of the same size, said in one of three ways."""
    holder = rng.choice(HOLDERS)
    return rng.choice(
        (
            f"{count} {holder} of {size} {things}",
            f"{count} {holder} with {size} {things} each",
            f"{size} {things} in each of {count} {holder}",
        )
    )


def change(amount: int, rng: random.Random) -> str:
    """A gain or a loss, as a verb with its number."""
    return rng.choice(GAINS if amount > 0 else LOSSES).format(n=abs(amount))


def opening(
    name: str, start: int, packs: tuple[tuple[int, int], ...], things: str, rng: random.Random
) -> str:
    """What there is at first."""
    if not packs:
        return f"{name} {rng.choice(('has', 'starts with'))} {start} {things}."
    told = [pack(size, count, things, rng) for size, count in packs]
    if len(told) == 1:
        return f"{name} {rng.choice(('has', 'buys'))} {told[0]}."
    if rng.random() < 0.5:
        return f"{name} has {told[0]} and {told[1]}."
    return f"{name} has {told[0]}. {NAMES[name]} also has {told[1]}."


def following(name: str, changes: tuple[int, ...], rng: random.Random) -> str:
    """What happens next."""
    told = [change(amount, rng) for amount in changes]
    if len(told) == 2 and rng.random() < 0.5:
        return f"{NAMES[name]} {told[0]} and then {told[1]}."
    first = rng.choice((NAMES[name], f"Then {NAMES[name].lower()}"))
    return " ".join(
        [f"{first} {told[0]}."] + [f"Later {NAMES[name].lower()} {more}." for more in told[1:]]
    )


def question(
    start: int, packs: tuple[tuple[int, int], ...], changes: tuple[int, ...], rng: random.Random
) -> str:
    """The whole problem; now and then it is the question that comes first."""
    name, things = rng.choice(list(NAMES)), rng.choice(THINGS)
    asked = f"How many {things} does {name} {rng.choice(ENDS)}?"
    if packs and changes[0] > 0 and rng.random() < 0.25:
        told = f"{name} has {changes[0]} {things}. {NAMES[name]} also has " + " and ".join(
            pack(size, count, things, rng) for size, count in packs
        )
        told += "."
    else:
        told = f"{opening(name, start, packs, things, rng)} {following(name, changes, rng)}"
    return f"{asked} {told}" if rng.random() < 0.2 else f"{told} {asked}"
