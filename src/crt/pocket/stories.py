"""How a problem is told: events, the sentences for them, and the words the model knows."""

import random
from dataclasses import dataclass


def listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


BOYS = listed(
    "Tom Ben Sam Max Leo Dan Adam Alex Ali Bob Boris Brian Carl Carlos Daniel David Diego Eric "
    "Ethan Felix Finn Frank Fred George Hans Harry Henry Hugo Ian Ivan Jack Jacob James Jan Jim "
    "Joe John Juan Kai Kevin Liam Lucas Marco Martin Mike Noah Omar Oscar Paul Peter Raj Robert "
    "Ryan Simon Steve Tim"
)
GIRLS = listed(
    "Ann Eve Mia Zoe Amy Kim Ada Alice Anna Aya Bella Beth Carla Clara Diana Dora Ella Emily Emma "
    "Eva Fatima Fiona Greta Hannah Helen Ines Iris Jane Jenny Julia Kate Katie Laura Lea Lena Lily "
    "Lisa Lucy Maria Mary Maya Megan Nina Nora Olga Olivia Rita Rosa Sara Sarah Sofia Sonja Susan "
    "Tina Yuki"
)
PRONOUN = {**dict.fromkeys(BOYS, "He"), **dict.fromkeys(GIRLS, "She")}
NAMES = tuple(PRONOUN)
THINGS = listed(
    "pens books coins cards eggs apples stamps cups nuts beads cookies cakes sweets balls balloons "
    "toys cars flowers pencils stickers shells stones marbles oranges bananas pears plums lemons "
    "tickets birds hens cows bricks chairs plates shirts socks hats buttons candles photos pages "
    "letters points keys rings roses trees seeds rolls buns pies muffins bottles crayons"
)
MONEY = "dollars"
HOLDERS = {
    **{"boxes": "box", "bags": "bag", "packs": "pack", "jars": "jar", "baskets": "basket"},
    **{"rows": "row", "shelves": "shelf", "groups": "group"},
}
COLOURS = ("red", "blue", "green", "white", "black", "big", "small")
GAINS = ("buys", "finds", "gets", "makes", "picks", "wins", "collects", "receives")
LOSSES = ("loses", "sells", "eats", "uses", "breaks", "drops")
EARNS, SPENDS = ("earns", "gets", "wins", "finds"), ("spends", "loses", "pays", "uses")

# Every kind of event and of question with its sentences. {S} and {p} are who does it, by name or
# pronoun, {s} the name, {O} the other's name, {h} him or her, {v} a verb, {w} its plain form;
# {a} {b} {c} are numbers, {T} things, {H} holders, {I} one of them, {J} {K} {L} kinds of thing.
EVENTS: dict[str, tuple[str, ...]] = {
    "has": ("{S} has {a} {T}.", "{S} starts with {a} {T}.", "{S} {v} {a} {T}."),
    "there": ("There are {a} {T}.",),
    "packs": (
        "{S} has {a} {H} of {b} {T}.",
        "{S} buys {a} {H} of {b} {T}.",
        "{S} has {a} {H} with {b} {T} each.",
        "{S} has {b} {T} in each of {a} {H}.",
    ),
    "packs there": ("There are {a} {H} of {b} {T}.", "There are {a} {H} with {b} {T} each."),
    "more packs": (
        "{S} buys {a} {H} of {b} {T}.",
        "{S} also has {a} {H} of {b} {T}.",
        "{S} gets {a} {H} with {b} {T} each.",
    ),
    "daily": ("{S} {v} {b} {T} every day for {a} days.",),
    "kinds": ("{S} has {a} {J} {T} and {b} {K} {T}.",),
    "three kinds": ("{S} has {a} {J} {T}, {b} {K} {T} and {c} {L} {T}.",),
    "gain": (
        "{S} {v} {a} more.",
        "{S} {v} {a} more {T}.",
        "Then {p} {v} {a} more.",
        "{O} gives {h} {a} more.",
    ),
    "loss": (
        "{S} {v} {a}.",
        "{S} {v} {a} {T}.",
        "Then {p} {v} {a}.",
        "{S} gives {a} away.",
        "{S} gives {a} to {O}.",
        "{S} shares {a} with {O}.",
    ),
    "come": ("{a} more come.", "Then {a} more come."),
    "go": ("{a} go away.", "Then {a} go away.", "{a} are sold."),
    "has too": ("{O} has {a} {T}.",),
    "more than": ("{O} has {a} more {T} than {s}.",),
    "fewer than": ("{O} has {a} fewer {T} than {s}.",),
    "times as many": ("{O} has {a} times as many {T} as {s}.",),
    "price": (
        "{S} buys {a} {T} for {b} dollars each.",
        "{S} buys {a} {T}. The {T} cost {b} dollars each.",
    ),
    "money": ("{S} has {a} dollars.",),
    "needs": ("{S} needs {a} {T}.", "{S} wants {a} {T}."),
    "shares": ("{S} shares them equally among {a} friends.",),
    "splits": ("{S} puts them equally into {a} {H}.",),
    "fills": ("{S} puts {a} into each {I}.", "{S} packs them into {H} of {a}."),
    "part": ("{a} of them are {J}.", "{a} {T} are {J}."),
    "they get": ("They get {a} more.", "They find {a} more."),
    "they lose": ("They lose {a}.", "They eat {a}.", "They sell {a}."),
    "some": ("{S} has some {T}.",),
    "gains some": ("{S} {v} some more.",),
    "loses some": ("{S} {v} some.",),
    "now": ("Now {p} has {a}.", "Now {p} has {a} {T}."),
    "does": ("{S} {v} {a} {T}.",),
    "does more": ("Then {p} {v} {a} more.", "Later {p} {v} {a} more {T}."),
}
QUESTIONS: dict[str, tuple[str, ...]] = {
    "have": (
        "How many {T} does {s} have now?",
        "How many {T} does {p} have?",
        "How many {T} does {s} have in the end?",
        "How many {T} does {p} have in all?",
        "How many {T} does {s} have altogether?",
    ),
    "left": (
        "How many {T} does {s} have left?",
        "How many {T} are left?",
        "How many {T} does {p} have left?",
        "How many {T} does {s} have now?",
    ),
    "there now": ("How many {T} are there now?", "How many {T} are there in all?"),
    "left there": ("How many {T} are left?", "How many {T} are there now?"),
    "in all": ("How many {T} are there in all?", "How many {T} are there altogether?"),
    "left together": ("How many {T} do they have left?", "How many {T} are left?"),
    "rest": ("How many {T} are not {J}?", "How many are not {J}?"),
    "together": (
        "How many {T} do they have together?",
        "How many {T} do they have in all?",
        "How many {T} do {s} and {O} have altogether?",
    ),
    "more": ("How many more {T} does {s} have than {O}?",),
    "fewer": ("How many fewer {T} does {O} have than {s}?",),
    "other": ("How many {T} does {O} have?",),
    "need": ("How many more {T} does {p} need?", "How many more {T} does {s} need?"),
    "first": ("How many {T} does {s} have at first?",),
    "done": ("How many {T} does {p} {w}?", "How many {T} does {s} {w}?"),
    "done in all": ("How many {T} does {s} {w} in all?", "How many {T} does {p} {w} altogether?"),
    "pay": ("How many dollars does {s} pay?", "How much does {p} pay?"),
    "money left": ("How many dollars does {s} have left?", "How much money is left?"),
    "each": ("How many {T} does each friend get?",),
    "in each": ("How many {T} are in each {I}?",),
    "holders": ("How many {H} does {s} fill?", "How many {H} does {p} need?"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that is or happens: its kind, its numbers, and a verb where the kind leaves one."""

    kind: str
    numbers: tuple[int, ...] = ()
    verb: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    name: str
    other: str
    thing: str
    holders: str
    colours: tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Story:
    """Events in their order and the kind of question at the end."""

    events: tuple[Event, ...]
    asked: str
    verb: str = ""  # of the question, where its kind leaves one

    @property
    def shape(self) -> tuple[str, ...]:
        """The kinds of events and question, without numbers and words."""
        return (*(event.kind for event in self.events), self.asked)


def scene(rng: random.Random, money: bool = False) -> Scene:
    name, other = rng.sample(NAMES, 2)
    colours = rng.sample(COLOURS, 3)
    thing = MONEY if money else rng.choice(THINGS)
    return Scene(
        name, other, thing, rng.choice(list(HOLDERS)), (colours[0], colours[1], colours[2])
    )


def fill(template: str, of: Scene, numbers: tuple[int, ...], verb: str, named: bool) -> str:
    """One sentence; its subject is a pronoun once the name has been said."""
    pronoun = PRONOUN[of.name]
    a, b, c = (*numbers, 0, 0, 0)[:3]
    return template.format(
        S=pronoun if named else of.name,
        s=of.name,
        p=pronoun.lower() if named else of.name,
        h="him" if pronoun == "He" else "her",
        O=of.other,
        T=of.thing,
        H=of.holders,
        I=HOLDERS[of.holders],
        J=of.colours[0],
        K=of.colours[1],
        L=of.colours[2],
        v=verb,
        w=verb.removesuffix("s"),
        a=a,
        b=b,
        c=c,
    )


def write_story(story: Story, of: Scene, rng: random.Random) -> str:
    """The story in words, the question last."""
    sentences: list[str] = []
    for event in story.events:
        templates = EVENTS[event.kind]
        if not event.verb:
            templates = tuple(t for t in templates if "{v}" not in t)
        if of.thing == MONEY:  # dollars are neither shared out by name nor given by a friend
            templates = tuple(t for t in templates if "{O}" not in t or event.kind == "has too")
        clear = of.name in " ".join(sentences) and not sentences[-1].startswith((of.other, "The "))
        text = fill(rng.choice(templates), of, event.numbers, event.verb, named=clear)
        begin = PRONOUN[of.name] + " "
        follows = sentences and text.startswith(begin) and sentences[-1].startswith(begin)
        if follows and rng.random() < 0.5:
            sentences[-1] = f"{sentences[-1][:-1]} and then {text.removeprefix(begin)}"
        else:
            sentences.append(text)
    question = fill(rng.choice(QUESTIONS[story.asked]), of, (), story.verb, named=True)
    return " ".join([*sentences, question])


def counted(story: Story, of: Scene) -> str:
    """What the answer counts: things, holders or dollars."""
    if story.asked in ("pay", "money left"):
        return MONEY
    return of.holders if story.asked == "holders" else of.thing
