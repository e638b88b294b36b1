"""Word problems of graded difficulty, made from a seed, in three splits that share no problem."""

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from crt.pocket.stories import (
    EARNS,
    GAINS,
    LOSSES,
    SPENDS,
    Event,
    Story,
    counted,
    scene,
    write_story,
)
from crt.types import Problem

Split = Literal["train", "validation", "test"]
# A number, or an operation on two expressions.
Expression = int | tuple[str, "Expression", "Expression"]
Tell = Callable[[Expression, random.Random], "Story"]

LEVELS = (1, 2, 3, 4)
LEVEL_SHARES = (0.3, 0.2, 0.3, 0.2)
SOURCE = "pocket"
GREATEST = 999  # of the numbers in a problem


# ---- Arithmetic


def value(expression: Expression) -> int:
    if isinstance(expression, int):
        return expression
    sign, left, right = expression
    return calculate(value(left), sign, value(right))


def calculate(left: int, sign: str, right: int) -> int:
    """One operation on whole numbers; a division must come out even."""
    if sign == "÷":
        if right == 0 or left % right:
            raise ValueError(f"{left} ÷ {right} is no whole number")
        return left // right
    return {"+": left + right, "-": left - right, "×": left * right}[sign]


def numbers(expression: Expression) -> tuple[int, ...]:
    if isinstance(expression, int):
        return (expression,)
    return (*numbers(expression[1]), *numbers(expression[2]))


def written(expression: Expression) -> str:
    """An expression as text, with the parentheses it needs."""
    if isinstance(expression, int):
        return str(expression)
    sign, left, right = expression

    def part(side: Expression, is_right: bool) -> str:
        weak = not isinstance(side, int) and (
            (sign in "×÷" and (is_right or side[0] in "+-")) or (is_right and side[0] in "+-")
        )
        return f"({written(side)})" if weak else written(side)

    return f"{part(left, False)} {sign} {part(right, True)}"


@dataclass(frozen=True, slots=True)
class Exercise:
    """What is to be calculated, and the kind of story that asks for it."""

    kind: str
    expression: Expression

    @property
    def level(self) -> int:
        return KINDS[self.kind].level

    @property
    def answer(self) -> int:
        return value(self.expression)

    @property
    def key(self) -> str:
        """The arithmetic as text: the same for every wording of it."""
        return written(self.expression)


# ---- Numbers, from small to three digits, round ones among them


def number(rng: random.Random, digits: int) -> int:
    """A number of so many digits; those of one digit go up to 20."""
    if digits == 1:
        return rng.randint(2, 20)
    if rng.random() < 0.2:
        return rng.randrange(10, 100, 10) if digits == 2 else rng.randrange(100, 1000, 50)
    return rng.randint(10, 99) if digits == 2 else rng.randint(100, GREATEST)


def size(rng: random.Random) -> int:
    """How many digits the numbers of a story have."""
    return rng.choices((1, 2, 3), (0.3, 0.5, 0.2))[0]


def smaller(rng: random.Random, digits: int) -> int:
    return number(rng, digits if rng.random() < 0.7 else rng.randint(1, digits))


def sum_of_two(rng: random.Random) -> Expression:
    digits = size(rng)
    pair = [number(rng, digits), smaller(rng, digits)]
    rng.shuffle(pair)
    return ("+", pair[0], pair[1])


def at_most(rng: random.Random, highest: int) -> int:
    """A number that can be taken away; now and then all there is."""
    if highest < 3 or rng.random() < 0.03:
        return highest
    digits = min(3, len(str(highest)))
    for _ in range(5):
        if (amount := smaller(rng, digits)) < highest:
            return amount
    return rng.randint(1, highest - 1)


def difference(rng: random.Random) -> Expression:
    whole = number(rng, size(rng))
    return ("-", whole, at_most(rng, whole))


def changed(rng: random.Random, start: Expression, count: int) -> Expression:
    """An expression after so many gains and losses."""
    digits = size(rng)
    for _ in range(count):
        have = value(start)
        if have > 1 and rng.random() < 0.5:
            start = ("-", start, at_most(rng, min(have, GREATEST)))
        else:
            start = ("+", start, smaller(rng, digits))
    return start


def change(rng: random.Random) -> Expression:
    return rng.choice((sum_of_two, difference))(rng)


def product(rng: random.Random) -> Expression:
    """A product of small numbers, of one digit with two, now and then with three."""
    kind = rng.random()
    if kind < 0.35:
        return ("×", rng.randint(2, 10), rng.randint(2, 12))
    if kind < 0.85:
        pair = [rng.randint(2, 9), rng.randint(11, 99)]
        if rng.random() < 0.3:
            pair.reverse()
        return ("×", pair[0], pair[1])
    return ("×", rng.randint(2, 9), number(rng, 3))


def small_product(rng: random.Random) -> Expression:
    if rng.random() < 0.5:
        return ("×", rng.randint(2, 10), rng.randint(2, 12))
    return ("×", rng.randint(2, 9), rng.randint(11, 60))


def large_product(rng: random.Random) -> Expression:
    return ("×", rng.randint(11, 40), rng.randint(11, 99))


def quotient(rng: random.Random) -> Expression:
    by = rng.randint(2, 10)
    return ("÷", by * rng.randint(1 if by > 4 else 2, 12 if rng.random() < 0.7 else 30), by)


def divided(rng: random.Random, whole: Callable[[int], Expression | None]) -> Expression:
    """A division of what `whole` makes of a multiple of the divisor."""
    while True:
        by = rng.randint(2, 10)
        inner = whole(by * rng.randint(2, 15))
        if inner is not None:
            return ("÷", inner, by)


def changed_then_divided(rng: random.Random) -> Expression:

    def parts(result: int) -> Expression | None:
        amount = rng.randint(1, 30)
        if rng.random() < 0.5:
            return ("-", result + amount, amount)
        return ("+", result - amount, amount) if amount < result - 1 else None

    return divided(rng, parts)


def related(rng: random.Random) -> Expression:
    """One's number, and another's that is more, less or several times as much, together."""
    digits = min(2, size(rng))
    own = number(rng, digits)
    sign = rng.choice("+-×")
    if sign == "×":
        return ("+", own, ("×", own, rng.randint(2, 5)))
    return ("+", own, (sign, own, at_most(rng, own) if sign == "-" else smaller(rng, digits)))


def spent(rng: random.Random) -> Expression:
    """What is left of some money after buying things at a price."""
    cost = small_product(rng)
    whole = value(cost) + rng.choice((rng.randint(0, 20), rng.randint(1, 99)))
    return ("-", whole + -whole % 10 if rng.random() < 0.4 else whole, cost)


def reckoning(rng: random.Random) -> Expression:
    """A sum without a story, of two operations."""
    if rng.random() < 0.5:
        return changed(rng, change(rng), 1)
    return changed(rng, small_product(rng), 1)


# ---- Stories: which events tell an expression


def changes(expression: Expression, rng: random.Random, money: bool) -> tuple[list[Event], bool]:
    """Gains and losses as events, the first of them first, and whether the last was a loss."""
    if isinstance(expression, int) or expression[0] == "×":
        return [], False
    sign, before, amount = expression
    earlier, _ = changes(before, rng, money)
    verbs = (EARNS if sign == "+" else SPENDS) if money else (GAINS if sign == "+" else LOSSES)
    event = Event("gain" if sign == "+" else "loss", numbers(amount), rng.choice(verbs))
    return [*earlier, event], sign == "-"


def innermost(expression: Expression) -> Expression:
    """What there is before any gain or loss."""
    while not isinstance(expression, int) and expression[0] in "+-":
        expression = expression[1]
    return expression


def tell_changes(expression: Expression, rng: random.Random, money: bool = False) -> Story:
    """Somebody has something, alone or in packs, gains and loses, and has so much in the end."""
    start = innermost(expression)
    verb = rng.choice(GAINS) if not money and rng.random() < 0.3 else ""
    first = Event("has", (start,), verb) if isinstance(start, int) else packs(start)
    events, is_loss = changes(expression, rng, money)
    asked = "left" if is_loss and rng.random() < 0.7 else "have"
    return Story((first, *events), asked)


def packs(expression: Expression) -> Event:
    return Event("packs", numbers(expression))


def tell_there(expression: Expression, rng: random.Random) -> Story:
    """Things that are there, come and go."""
    start = innermost(expression)
    events, is_loss = changes(expression, rng, False)
    moves = [Event({"gain": "come", "loss": "go"}[e.kind], e.numbers) for e in events]
    first = Event("there", numbers(start))
    return Story((first, *moves), "left there" if is_loss else "there now")


def tell_together(expression: Expression, rng: random.Random) -> Story:
    """Two people's things, or two kinds of things, as one."""
    pair = numbers(expression)
    if rng.random() < 0.5:
        return Story((Event("kinds", pair),), "have")
    return Story((Event("has", pair[:1]), Event("has too", pair[1:])), "together")


def tell_compared(expression: Expression, rng: random.Random) -> Story:
    """How many more one has than the other, or than before, or still needs, or what the rest is."""
    whole, part = numbers(expression)
    asked = rng.choice(("more", "fewer", "need", "changed", "rest"))
    if asked == "rest":
        return Story((Event(rng.choice(("has", "there")), (whole,)), Event("part", (part,))), asked)
    if asked == "need":
        return Story((Event("has", (part,)), Event("needs", (whole,))), "need")
    if asked == "changed":
        has, now = Event("has", (whole,)), Event("now", (part,))
        if rng.random() < 0.5:
            verb = rng.choice(LOSSES)
            return Story((has, Event("loses some", (), verb), now), "done", verb)
        verb = rng.choice(GAINS)
        has, now = Event("has", (part,)), Event("now", (whole,))
        return Story((has, Event("gains some", (), verb), now), "done", verb)
    return Story((Event("has", (whole,)), Event("has too", (part,))), asked)


def tell_first(expression: Expression, rng: random.Random) -> Story:
    """How many there were before a loss or a gain."""
    now, amount = numbers(expression)
    is_gain = expression[0] == "-"  # pyright: ignore[reportIndexIssue]
    verb = rng.choice(GAINS if is_gain else LOSSES)
    event = Event("gain" if is_gain else "loss", (amount,), verb)
    return Story((Event("some"), event, Event("now", (now,))), "first")


def tell_relation(expression: Expression, rng: random.Random) -> Story:
    """What the other one has, who has more, fewer or several times as many."""
    own, amount = numbers(expression)
    relation = {"+": "more than", "-": "fewer than", "×": "times as many"}
    kind = relation[expression[0]]  # pyright: ignore[reportIndexIssue]
    return Story((Event("has", (own,)), Event(kind, (amount,))), "other")


def tell_related(expression: Expression, rng: random.Random) -> Story:
    """What two have together, of whom one is told by the other."""
    story = tell_relation(expression[2], rng)  # pyright: ignore[reportIndexIssue]
    return Story(story.events, "together")


def tell_done(expression: Expression, rng: random.Random) -> Story:
    first, second = numbers(expression)
    verb = rng.choice(GAINS + LOSSES)
    return Story(
        (Event("does", (first,), verb), Event("does more", (second,), verb)), "done in all", verb
    )


def tell_packs(expression: Expression, rng: random.Random) -> Story:
    if rng.random() < 0.5:
        return Story((Event("packs there", numbers(expression)),), "in all")
    return Story((packs(expression),), "have")


def tell_daily(expression: Expression, rng: random.Random) -> Story:
    verb = rng.choice(GAINS + LOSSES)
    return Story((Event("daily", numbers(expression), verb),), "done in all", verb)


def tell_in_one(kind: str, asked: str) -> Tell:
    """The story is one event of this kind with all the numbers."""
    return lambda expression, rng: Story((Event(kind, numbers(expression)),), asked)


def tell_quotient(expression: Expression, rng: random.Random) -> Story:
    """Things shared out, in equal parts or so many to each holder."""
    return share(Story((Event("has", (numbers(expression)[0],)),), ""), numbers(expression)[1], rng)


def share(story: Story, by: int, rng: random.Random) -> Story:
    """The end of a story in which everything is shared out."""
    kind, asked = rng.choice((("shares", "each"), ("splits", "in each"), ("fills", "holders")))
    return Story((*story.events, Event(kind, (by,))), asked)


def tell_changed_then_divided(expression: Expression, rng: random.Random) -> Story:
    """A gain or loss, and the rest shared out."""
    _, inner, by = expression  # pyright: ignore
    return share(tell_changes(inner, rng), numbers(by)[0], rng)


def tell_more_packs(expression: Expression, rng: random.Random) -> Story:
    """Things and then packs of them, or two kinds of packs, then perhaps a gain or loss."""
    sign, left, right = expression  # pyright: ignore
    if not isinstance(left, int) and not isinstance(right, int):
        return Story((packs(left), Event("more packs", numbers(right))), "have")
    if isinstance(right, int):
        story = tell_more_packs(left, rng)
        events, is_loss = changes((sign, 0, right), rng, False)
        return Story((*story.events, *events), "left" if is_loss else "have")
    return Story((Event("has", numbers(left)), Event("more packs", numbers(right))), "have")


def tell_spent(expression: Expression, rng: random.Random) -> Story:
    whole, count, price = numbers(expression)
    return Story((Event("money", (whole,)), Event("price", (count, price))), "money left")


def tell_kinds_changed(expression: Expression, rng: random.Random) -> Story:
    sign, kinds, amount = expression  # pyright: ignore
    events, is_loss = changes((sign, 0, amount), rng, False)
    return Story((Event("kinds", numbers(kinds)), *events), "left" if is_loss else "have")


def tell_together_changed(expression: Expression, rng: random.Random) -> Story:
    """Two people's things, and then a gain or loss of both."""
    sign, pair, amount = expression  # pyright: ignore
    first, second = numbers(pair)
    change = Event("they get" if sign == "+" else "they lose", numbers(amount))
    asked = "together" if sign == "+" else "left together"
    return Story((Event("has", (first,)), Event("has too", (second,)), change), asked)


def tell_money(expression: Expression, rng: random.Random) -> Story:
    story = tell_changes(expression, rng, money=True)
    return Story((Event("money", numbers(innermost(expression))), *story.events[1:]), story.asked)


@dataclass(frozen=True)
class Kind:
    """A kind of problem: its difficulty, how often it comes within it, its numbers, its story."""

    level: int
    weight: float
    draw: Callable[[random.Random], Expression]
    tell: Tell | None  # None: asked without a story


def added_packs(rng: random.Random) -> Expression:
    return ("+", number(rng, min(2, size(rng))), small_product(rng))


def three_kinds(rng: random.Random) -> Expression:
    return ("+", sum_of_two(rng), number(rng, min(2, size(rng))))


def two_packs(rng: random.Random) -> Expression:
    return ("+", small_product(rng), small_product(rng))


KINDS: dict[str, Kind] = {
    "change": Kind(1, 4, change, tell_changes),
    "there": Kind(1, 1, change, tell_there),
    "money": Kind(1, 1, change, tell_money),
    "together": Kind(1, 2, sum_of_two, tell_together),
    "compared": Kind(1, 2.5, difference, tell_compared),
    "relation": Kind(1, 1, change, tell_relation),
    "first": Kind(1, 1, change, tell_first),
    "done": Kind(1, 1, sum_of_two, tell_done),
    "sum": Kind(1, 1, change, None),
    "packs": Kind(2, 2.5, product, tell_packs),
    "daily": Kind(2, 1.5, product, tell_daily),
    "price": Kind(2, 1.5, product, tell_in_one("price", "pay")),
    "times as many": Kind(
        2, 1, lambda rng: ("×", number(rng, min(2, size(rng))), rng.randint(2, 9)), tell_relation
    ),
    "quotient": Kind(2, 4, quotient, tell_quotient),
    "bare product": Kind(2, 1.5, product, None),
    "bare quotient": Kind(2, 0.7, quotient, None),
    "two changes": Kind(3, 4, lambda rng: changed(rng, change(rng), 1), tell_changes),
    "two moves": Kind(3, 1, lambda rng: changed(rng, change(rng), 1), tell_there),
    "money twice": Kind(3, 1, lambda rng: changed(rng, change(rng), 1), tell_money),
    "packs changed": Kind(3, 3, lambda rng: changed(rng, product(rng), 1), tell_changes),
    "added packs": Kind(3, 1.5, added_packs, tell_more_packs),
    "shared rest": Kind(3, 1.5, changed_then_divided, tell_changed_then_divided),
    "spent": Kind(3, 1.5, spent, tell_spent),
    "related": Kind(3, 1.5, related, tell_related),
    "together changed": Kind(
        3, 0.7, lambda rng: changed(rng, sum_of_two(rng), 1), tell_together_changed
    ),
    "three kinds": Kind(3, 0.7, three_kinds, tell_in_one("three kinds", "have")),
    "kinds changed": Kind(3, 0.7, lambda rng: changed(rng, sum_of_two(rng), 1), tell_kinds_changed),
    "longer sum": Kind(3, 1, reckoning, None),
    "three changes": Kind(4, 3, lambda rng: changed(rng, change(rng), 2), tell_changes),
    "packs changed twice": Kind(4, 3, lambda rng: changed(rng, product(rng), 2), tell_changes),
    "two packs": Kind(
        4, 3, lambda rng: changed(rng, two_packs(rng), rng.randint(0, 1)), tell_more_packs
    ),
    "large packs": Kind(
        4, 2, lambda rng: changed(rng, large_product(rng), rng.randint(0, 1)), tell_changes
    ),
}
BY_LEVEL = {n: [name for name, kind in KINDS.items() if kind.level == n] for n in LEVELS}


def exercise(rng: random.Random, level: int | None = None) -> Exercise:
    """Draws one exercise, of any split."""
    names = BY_LEVEL[level or rng.choices(LEVELS, LEVEL_SHARES)[0]]
    name = rng.choices(names, [KINDS[name].weight for name in names])[0]
    return Exercise(name, KINDS[name].draw(rng))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def split_of(arithmetic: str) -> Split:
    """Eight of ten problems are for training, one for validation, one for testing.

    The arithmetic alone decides, so that no rewording crosses from one split to another.
    """
    place = int(digest(arithmetic)[:8], 16) % 10
    return "train" if place < 8 else "validation" if place == 8 else "test"


def exercises(split: str, rng: random.Random) -> Iterator[Exercise]:
    """Endless exercises of one split, repeats possible."""
    while True:
        item = exercise(rng)
        if split_of(item.key) == split:
            yield item


@dataclass(frozen=True, slots=True)
class Question:
    """An exercise in words, who is in them, and what is counted; a bare sum has neither."""

    item: Exercise
    text: str
    name: str = ""
    counted: str = ""


def story_of(item: Exercise, rng: random.Random) -> Story | None:
    """A story that asks for an exercise; None for one that is asked without."""
    tell = KINDS[item.kind].tell
    return tell(item.expression, rng) if tell else None


def put(item: Exercise, rng: random.Random) -> Question:
    story = story_of(item, rng)
    if story is None:
        return Question(item, f"What is {item.key}?")
    about = scene(rng, money=item.kind.startswith("money"))
    text = write_story(story, about, rng)
    name = about.name if about.name in text else ""
    return Question(item, text, name, counted(story, about))


def problem(item: Exercise, rng: random.Random) -> Problem:
    return Problem(
        id=f"{SOURCE}-{digest(f'{item.kind}: {item.key}')[:16]}",
        question=put(item, rng).text,
        answer=str(item.answer),
        source=f"{SOURCE}/level-{item.level}",
    )


def problems(split: str, seed: int) -> Iterator[Problem]:
    """Endless problems of a split, repeats possible; the same from a seed on any machine."""
    rng = random.Random(f"{split}-{seed}")
    return (problem(item, rng) for item in exercises(split, rng))
