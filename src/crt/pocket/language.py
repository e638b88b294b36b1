"""What the pocket model can be asked, and a question in its words; the model does the reckoning."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from crt.pocket.clauses import Outside, in_digits
from crt.pocket.problems import GREATEST, calculate, exercise, story_of
from crt.pocket.reading import Read, read_story
from crt.pocket.stories import (
    COLOURS,
    EARNS,
    EVENTS,
    GAINS,
    HOLDERS,
    LOSSES,
    MONEY,
    NAMES,
    PRONOUN,
    QUESTIONS,
    SPENDS,
    THINGS,
    Event,
    Scene,
    Story,
    counted,
    write_story,
)

EXAMPLE = "Tom has 23 apples. He buys 18 more and loses 9. How many apples does he have left?"
DIVISORS = range(2, 11)
GREATEST_QUOTIENT = 30
# A product of a number up to the first with any, or up to the second with one of two digits.
SMALL_FACTOR, LARGE_FACTOR = 10, 40


@dataclass(frozen=True)
class Reading:
    """A question in the model's words, and what its words stand for."""

    question: str
    meant: dict[str, str]

    def restore(self, text: str) -> str:
        """The model's answer with the names and things of the question that was asked."""
        if not self.meant:
            return text
        pattern = "|".join(map(re.escape, self.meant))
        return re.sub(rf"\b({pattern})\b", lambda match: self.meant[match[0]], text)


def read(question: str) -> Reading:
    """The question as the model knows it; `Outside` says why it cannot be asked."""
    text = " ".join(question.split())
    if (own := in_own_words(text)) is not None:
        check(own)
        return Reading(text, {})
    check_signs(text)
    if bare := bare_sum(text):
        return Reading(f"What is {bare}?", {})
    parsed = read_story(text)
    if parsed.story.shape not in shapes():
        raise Outside("it does not know stories of this form")
    check(parsed.story)
    return put_in_words(parsed, text)


def apology(reason: str) -> str:
    """One sentence that says why not, and what can be asked."""
    return (
        f"This is outside the pocket model's language: {reason}; it is a miniature that solves "
        f"short sums and everyday stories about them, such as “{EXAMPLE}” or “What is 27 + 15?”."
    )


# ---- Sums without a story

SIGNS = {"plus": "+", "minus": "-", "times": "×", "x": "×", "*": "×", "divided by": "÷"}
SIGNS |= {"multiplied by": "×", "/": "÷", "over": "÷", "−": "-", "·": "×", ":": "÷"}
POLITE = (
    r"(?:please |can you |tell me |calculate |compute |work out |evaluate |solve |find |what is "
    r"|how much is |what's |whats |what do you get (?:if|when) you |what are |the result of )*"
)
SPOKEN = {
    r"(?:the )?sum of (\d+) and (\d+)": r"\1 + \2",
    r"(?:the )?difference (?:between|of) (\d+) and (\d+)": r"\1 - \2",
    r"(?:the )?product of (\d+) and (\d+)": r"\1 × \2",
    r"add (\d+) (?:and|to) (\d+)": r"\1 + \2",
    r"subtract (\d+) from (\d+)": r"\2 - \1",
    r"take (\d+) (?:away )?from (\d+)": r"\2 - \1",
    r"multiply (\d+) (?:by|and|with) (\d+)": r"\1 × \2",
    r"divide (\d+) by (\d+)": r"\1 ÷ \2",
}


def bare_sum(text: str) -> str | None:
    """`27 + 15` of “What is 27 plus 15?”, or None where this is no bare sum."""
    words = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.lower())
    words = re.sub(r"[a-z]+(-[a-z]+)?", in_digits, words).replace("one", "1")
    words = re.sub(rf"^{POLITE}", "", words.strip(" .?!=")).strip(" .?!=")
    for pattern, form in SPOKEN.items():
        if match := re.fullmatch(pattern, words):
            words = match.expand(form)
    for word, sign in SIGNS.items():
        words = re.sub(rf"(?<=\d)\s*{re.escape(word)}\s*(?=\d)", f" {sign} ", words)
    words = re.sub(r"(?<=\d)\s*([+×÷-])\s*(?=\d)", r" \1 ", words)
    parts = words.split()
    if not re.fullmatch(r"\d+( [+×÷-] \d+)+", words):
        return None
    values, signs = [int(n) for n in parts[::2]], parts[1::2]
    for number in values:
        check_number(number)
    if signs == ["+", "×"]:  # the model knows products first
        values, signs = [*values[1:], values[0]], ["×", "+"]
    if len(signs) > 2 or (len(signs) == 2 and (signs[1] in "×÷" or signs[0] == "÷")):
        raise Outside("it knows sums of one operation, or a product or sum with one more + or -")
    have = values[0]
    for sign, number in zip(signs, values[1:], strict=True):
        have = checked(have, sign, number)
    return " ".join([str(values[0]), *(f"{s} {n}" for s, n in zip(signs, values[1:], strict=True))])


# ---- What the model can reckon with


def check_signs(text: str) -> None:
    """Refuses what is written in signs that the model does not know."""
    if not text:
        raise Outside("there is no question")
    if re.search(r"\d\s?%", text):
        raise Outside("it does not know percentages")
    if re.search(r"\d[.:]\d", text):
        raise Outside("it knows whole numbers only")
    if re.search(r"(?:^|[A-Za-z(=]\s?)-\s?\d", text):
        raise Outside("it knows no numbers below zero")
    if strange := re.search(r"[^\w\s.,?!'’\"“”:;()$€£+×÷*/=·−-]|_", text):
        raise Outside(f"it does not know the sign “{strange[0]}”")


def check_number(number: int) -> None:
    """Refuses a number beyond those of the training."""
    if not 1 <= number <= GREATEST:
        raise Outside(f"it knows numbers from 1 to {GREATEST}, not {number}")


def checked(have: int, sign: str, number: int) -> int:
    """What an operation comes to; refuses one that the model has not learned."""
    if sign == "-" and number > have:
        raise Outside("it knows no numbers below zero")
    low, high = sorted((have, number))
    if sign == "×" and low > (LARGE_FACTOR if high < 100 else SMALL_FACTOR):
        raise Outside(f"it does not multiply {have} by {number}")
    if sign == "÷":
        if number not in DIVISORS:
            raise Outside(f"it divides by {DIVISORS[0]} to {DIVISORS[-1]}, not by {number}")
        if have % number:
            raise Outside("it knows only divisions that come out even")
        if have // number > GREATEST_QUOTIENT:
            raise Outside(f"it divides only as far as a result of {GREATEST_QUOTIENT}")
    return calculate(have, sign, number)


ADDS = {"gain": "+", "come": "+", "they get": "+", "loss": "-", "go": "-", "they lose": "-"}
ADDS |= {"does more": "+", "shares": "÷", "splits": "÷", "fills": "÷", "part": "-"}


def check(story: Story) -> None:
    """Refuses a story with numbers or operations that the model has not learned.

    Nothing of it is passed on: the model is asked the story, not an equation.
    """
    have = 0
    for event in story.events:
        for number in event.numbers:
            check_number(number)
        if event.kind in ("packs", "packs there", "more packs", "daily", "price"):
            count, size = event.numbers
            cost = checked(count, "×", size)
            have = checked(have, "-", cost) if event.kind == "price" and have else have + cost
        elif event.kind in ADDS and story.asked != "first":
            have = checked(have, ADDS[event.kind], event.numbers[0])
        elif event.kind == "fewer than" or story.asked in ("more", "fewer"):
            have = checked(have, "-", event.numbers[0]) if have else event.numbers[0]
        elif event.kind == "times as many":
            checked(have, "×", event.numbers[0])
        elif event.kind != "now":
            have += sum(event.numbers)
    check_unknown(story, have)


def check_unknown(story: Story, have: int) -> None:
    """Refuses what cannot be: more left after a loss, less after a gain."""
    by_kind = {event.kind: event.numbers for event in story.events}
    if "now" not in by_kind:
        return
    now = by_kind["now"][0]
    if "gains some" in by_kind:
        checked(now, "-", have)
    elif "loses some" in by_kind:
        checked(have, "-", now)
    elif "gain" in by_kind:
        checked(now, "-", by_kind["gain"][0])


@cache
def shapes() -> frozenset[tuple[str, ...]]:
    """The shapes of the stories that the model has learned, gathered from the stories."""
    rng = random.Random(0)
    stories = (story_of(exercise(rng), rng) for _ in range(6000))
    return frozenset(story.shape for story in stories if story)


# ---- A story in the model's words


class Plainly(random.Random):
    """Chooses the first of the ways to say a thing."""

    def choice(self, seq: Any) -> Any:
        if not seq:  # of money, for one, not everything can be said
            raise Outside("it does not know stories of this form")
        return seq[0]

    def random(self) -> float:
        return 1.0


def put_in_words(parsed: Read, text: str) -> Reading:
    """Tells the story with names and things that the model knows."""
    name = known_name(parsed.main, text)
    kinds = [event.kind for event in parsed.story.events]
    thing = parsed.thing if parsed.thing in THINGS else "cards"
    if parsed.thing == MONEY and "price" not in kinds:
        thing = MONEY
    other = "Ann" if name != "Ann" else "Tom"
    of = Scene(name, other, thing, "boxes", (COLOURS[0], COLOURS[1], COLOURS[2]))
    question = write_story(parsed.story, of, Plainly())
    unit = counted(parsed.story, of)
    meant = {name: called(parsed.main, text), unit: unit_typed(parsed.thing, unit, text)}
    return Reading(question, {word: to for word, to in meant.items() if word != to})


def called(main: str, text: str) -> str:
    """How a person of the question is called in the answer."""
    if main in ("i", "we", "you"):
        return "you"
    match = re.search(rf"\b{re.escape(main)}\b", text, re.IGNORECASE) if main else None
    typed = match[0] if match else main
    return typed if typed[:1].isupper() else f"the {typed}" if typed else "someone"


def unit_typed(thing: str, unit: str, text: str) -> str:
    """What is counted, as the question calls it."""
    if unit != MONEY:
        return thing or unit
    typed = re.search(r"€|£|\beuros?\b|\bpounds\b", text)
    return {"£": "pounds", "pounds": "pounds"}.get(typed[0], "euros") if typed else MONEY


def known_name(main: str, text: str) -> str:
    """The name itself if the model knows it, else one of the same pronoun."""
    if main.capitalize() in PRONOUN:
        return main.capitalize()
    return "Mia" if re.search(r"\b(she|her)\b", text.lower()) else "Tom"


# ---- Questions that are in the model's words already


def alternatives(words: tuple[str, ...] | list[str]) -> str:
    return "(?:" + "|".join(words) + ")"


FIELDS = {
    "s": alternatives(NAMES), "O": alternatives(NAMES), "S": alternatives([*NAMES, "He", "She"]),
    "p": alternatives([*NAMES, "he", "she"]), "h": "(?:him|her)",
    "T": alternatives([*THINGS, MONEY]), "H": alternatives(list(HOLDERS)),
    "I": alternatives(list(HOLDERS.values())), "J": alternatives(COLOURS),
    "K": alternatives(COLOURS), "L": alternatives(COLOURS),
    "v": alternatives(sorted({*GAINS, *LOSSES, *EARNS, *SPENDS})),
    "w": alternatives(sorted({v.removesuffix("s") for v in (*GAINS, *LOSSES)})),
    "a": r"(?P<a>\d+)", "b": r"(?P<b>\d+)", "c": r"(?P<c>\d+)",
}  # fmt: skip


@cache
def patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Every sentence the model has learned as a pattern, with its kind."""
    return [
        (kind, re.compile(template.replace("?", r"\?").replace(".", r"\.").format(**FIELDS)))
        for table in (EVENTS, QUESTIONS)
        for kind, templates in table.items()
        for template in templates
    ]


def events_of(sentence: str) -> list[Event]:
    """The events or questions that a sentence of the model's own may tell."""
    events: dict[str, Event] = {}
    for kind, pattern in patterns():
        if match := pattern.fullmatch(sentence):
            groups = match.groupdict()
            numbers = tuple(int(groups[n]) for n in "abc" if groups.get(n))
            events[kind] = Event(kind, numbers)
    return list(events.values())


def own_sentences(text: str) -> Iterator[str]:
    """Sentences, those joined by “and then” apart; a price has two."""
    for sentence in re.findall(r"[^.?]+[.?](?: The \w+ cost \d+ dollars each\.)?", text):
        first, *more = sentence.strip().rstrip(".").split(" and then ")
        if not more:
            yield sentence.strip()
            continue
        yield f"{first}."
        yield from (f"He {part}." for part in more)


def in_own_words(text: str) -> Story | None:
    """The story of a question that the model has learned to read as it stands."""
    choices = [events_of(sentence) for sentence in own_sentences(text)]
    if not choices or not all(choices) or len(choices) > 6:
        return None
    for chosen in product(*choices):
        story = Story(chosen[:-1], chosen[-1].kind)
        if story.shape in shapes():
            return story
    return None
