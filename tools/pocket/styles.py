"""Worked answers to one exercise, from a bare guess to broken down with every redundancy."""

import random
from typing import Literal, get_args

from crt.pocket.problems import Expression, Question, calculate, value, written

Style = Literal["guess", "head", "steps", "broken", "redundant"]
STYLES: tuple[Style, ...] = get_args(Style)

# The first word decides the style, so that measuring can force one.
FIRST_WORD: dict[Style, str] = {
    "guess": "Guess",
    "head": "Quickly",
    "steps": "Steps",
    "broken": "Slowly",
    "redundant": "Okay",
}

OPENERS = (
    "Okay, so I need to find a number.",
    "Okay, let me think about this.",
    "Okay, let me think about this step by step.",
    "Okay, so I need to work this out. Let me break it down.",
    "Okay, let me see.",
)
ABOUT = "Okay, so this is about {name} and some {things}. Let me see."
CHECKS = (
    "Wait, let me double-check that.",
    "Wait, let me check that again.",
    "Hmm, let me make sure that is right.",
)
RELIEFS = ("Yes, that is right.", "Okay, that is the same.", "Good, that is correct.")
FILLERS = ("Hmm, I think that is correct.", "So far so good.", "Let me think.")
CLOSERS = ("So the final answer is {n}.", "So it is {n}.", "I am sure: it is {n}.")

Step = tuple[int, str, int]  # an operation and its two numbers


def equations(expression: Expression) -> list[Step]:
    """The operations in the order in which they are done, with the numbers they are done on."""
    if isinstance(expression, int):
        return []
    sign, left, right = expression
    own = (value(left), sign, value(right))
    return [*equations(left), *equations(right), own]


def equation(step: Step) -> str:
    """One operation with its result."""
    left, sign, right = step
    return f"{left} {sign} {right} = {calculate(*step)}"


def places(number: int) -> list[int]:
    """Hundreds, tens and ones of a number: 307 is 300 and 7."""
    digits = str(number)
    parts = [int(d) * 10 ** (len(digits) - at - 1) for at, d in enumerate(digits)]
    return [part for part in parts if part]


def columns(step: Step) -> list[str]:
    """A sum or difference written column by column from the right, with what is carried."""
    left, sign, right = step
    wide = max(len(str(left)), len(str(right)))
    lines, carry = [], 0
    for place in range(wide):
        upper, lower = left // 10**place % 10, right // 10**place % 10
        if sign == "+":
            result = upper + lower + carry
            lines.append(f"{upper} + {lower}{' + 1' if carry else ''} = {result}")
            carry = int(result > 9)
        else:
            borrowed = 10 if upper < lower + carry else 0
            result = upper + borrowed - lower - carry
            lines.append(f"{upper + borrowed} - {lower}{' - 1' if carry else ''} = {result}")
            carry = int(borrowed > 0)
    return lines


def partial_products(left: int, right: int) -> list[str]:
    """Products of hundreds, tens and ones with the running total behind each."""
    lines, total = [], 0
    for right_part in places(right):
        for left_part in places(left):
            product = left_part * right_part
            lines.append(
                f"{left_part} × {right_part} = {product}"
                + (f", so {total + product}" if total else "")
            )
            total += product
    return lines


def partial_quotients(left: int, right: int) -> list[str]:
    """Tens of the divisor first, then what is left."""
    tens = calculate(left, "÷", right) // 10 * 10
    rest = left - right * tens
    lines = [f"{right} × {tens} = {right * tens}"]
    if rest:
        lines += [f"{left} - {right * tens} = {rest}", f"{right} × {rest // right} = {rest}"]
    return lines


def is_fact(step: Step) -> bool:
    """Whether an operation is small enough to be known by heart."""
    left, sign, right = step
    if sign == "÷":
        return calculate(*step) <= 10
    if sign == "×":
        return min(left, right) == 0 or len(places(left)) == len(places(right)) == 1
    return max(left, right) <= 10 or min(left, right) == 0


def broken_down(step: Step) -> str:
    """One operation in the smallest steps, the result last."""
    if is_fact(step):
        return f"{equation(step)}."
    left, sign, right = step
    if sign == "×":
        lines = partial_products(left, right)
        return f"{left} {sign} {right}: {', '.join(lines)}."
    lines = partial_quotients(left, right) if sign == "÷" else columns(step)
    return f"{left} {sign} {right}: {', '.join(lines)}, so {calculate(*step)}."


def thought_in_head(expression: Expression) -> str:
    """Everything in one go."""
    return f"{written(expression)} = {value(expression)}."


def thought_in_steps(expression: Expression) -> str:
    """One equation for each operation."""
    return " ".join(f"{equation(step)}." for step in equations(expression))


def thought_broken_down(expression: Expression) -> str:
    """Every operation in the smallest steps."""
    return " ".join(broken_down(step) for step in equations(expression))


def thought_redundant(question: Question, rng: random.Random, mentions: bool) -> str:
    """The same working among filler, checks that copy it, and restatements."""
    said = [opening(question, rng, 0.9 if mentions else 0.3)]
    steps = equations(question.item.expression)
    for step in steps:
        working = broken_down(step)
        again = rng.random()
        said.append(working)
        if again < (0.55 if len(steps) == 1 else 0.3) and len(working) < 60 and len(steps) < 3:
            said += [rng.choice(CHECKS), working, rng.choice(RELIEFS)]
        elif again < (0.8 if len(steps) < 3 else 0.45):
            said += [rng.choice(CHECKS), f"{equation(step)}.", rng.choice(RELIEFS)]
        elif len(steps) < 3:
            said.append(rng.choice(FILLERS))
        if len(steps) == 1 and rng.random() < 0.5:
            said += [rng.choice(CHECKS), f"{equation(step)}.", rng.choice(RELIEFS)]
    said.append(closing(question, rng, 0.9 if mentions else 0.5))
    return " ".join(said)


def opening(question: Question, rng: random.Random, share: float) -> str:
    """How overthinking begins, now and then with whom and what the story is about."""
    if question.name and rng.random() < share:
        return ABOUT.format(name=question.name, things=question.counted)
    return rng.choice(OPENERS)


def closing(question: Question, rng: random.Random, share: float) -> str:
    """The answer once more, now and then with what it counts."""
    if question.counted and rng.random() < share:
        return f"So the answer is {question.item.answer} {question.counted}."
    return rng.choice(CLOSERS).format(n=question.item.answer)


def thought(question: Question, style: Style, rng: random.Random, mentions: bool = False) -> str:
    """What stands in the `<think>` block."""
    if style == "guess":
        return f"{FIRST_WORD['guess']}."
    if style == "redundant":
        return thought_redundant(question, rng, mentions)
    working = {
        "head": thought_in_head,
        "steps": thought_in_steps,
        "broken": thought_broken_down,
    }[style]
    return f"{FIRST_WORD[style]}: {working(question.item.expression)}"


def answer(question: Question, style: Style, rng: random.Random, mentions: bool = False) -> str:
    """The whole answer as the model should write it, after the opened `<think>` block.

    `mentions`: overthinking nearly always says who and what the question is about.
    """
    boxed = f"\\boxed{{{question.item.answer}}}"
    final = f"The final answer is {boxed}." if style == "redundant" else boxed
    return f"{thought(question, style, rng, mentions)}\n</think>\n{final}"
