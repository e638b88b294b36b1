"""From the clauses of an everyday question to a story that the model knows. It calculates nothing.

Clauses become facts (who has, gets, loses, shares how much), facts and the question a story in the
model's own events. What is not understood in full is refused.
"""

import re
from dataclasses import dataclass, replace
from itertools import pairwise

from crt.pocket.clauses import (
    ADVERBS,
    ALWAYS_LOST,
    ARTICLES,
    AUXILIARIES,
    BE,
    EACH,
    FIRST,
    LEFT,
    MORE,
    PREPOSITIONS,
    PRONOUNS,
    RECIPIENTS,
    TOGETHER,
    UNITS,
    UNKNOWN,
    VERBS,
    VERBS_OF,
    Amount,
    Clause,
    Outside,
    amounts,
    clauses,
    has_number,
    kinds_of,
    normalised,
    only_amount,
    refuse,
    sentences,
    singular,
    third_person,
)
from crt.pocket.stories import EARNS, GAINS, LOSSES, MONEY, SPENDS, Event, Story

# ---- Facts


@dataclass(frozen=True)
class Fact:
    """What a clause says: its kind, about whom, how much, and by which clause."""

    kind: str
    who: str
    amount: Amount
    clause: Clause
    than: str = ""

    @property
    def number(self) -> int:
        return self.amount.number

    @property
    def verb(self) -> str:
        return third_person(self.clause.verb)


NOTHING = Amount(0, "")


def head(subject: list[str]) -> str:
    """The one word that stands for a subject; two people are `they`."""
    if "and" in subject:
        return "they"
    words = [w for w in subject if not w.isdigit() and w not in ARTICLES | ADVERBS | MORE]
    return words[-1] if words else ""


def word_after(words: list[str], word: str) -> str:
    """The head of what follows a word; nothing where the word is not."""
    at = words.index(word) + 1 if word in words else len(words)
    return next((w for w in words[at:] if w not in ARTICLES), "")


def facts_of(clause: Clause, asks_count: bool) -> list[Fact]:
    """What a clause tells; `asks_count` if the question has a number of its own."""
    who, rest = head(clause.subject), clause.rest
    if not has_number(clause.words):
        return without_number(clause, who)
    if has_number(clause.subject):
        return about_the_counted(clause)
    if clause.verb in BE:
        return about_being(clause, who, asks_count)
    if "than" in rest or "as" in rest:
        return [relation(clause, who)]
    if "need" in clause.kinds:
        if rest[:1] == ["to"] and kinds_of(rest[1]) & {"put", "share"}:
            return sharing(clause, who)
        return [Fact("needs", who, only_amount(rest), clause)]
    if clause.kinds & {"put", "share"} and (shared := sharing(clause, who)):
        return shared
    if cost := price(rest):
        return [Fact("price", who, cost, clause)]
    if is_rate(clause, asks_count):
        return [Fact("rate", who, only_amount(rest), clause)]
    return doing(clause, who)


def without_number(clause: Clause, who: str) -> list[Fact]:
    """A clause without a number: an unknown amount, or nothing to reckon with."""
    words = set(clause.words)
    if "rest" in clause.rest and clause.verb not in BE:
        raise Outside("it does not know what “the rest” is")
    if "some" in words:
        if "have" in clause.kinds:
            return [Fact("some", who, NOTHING, clause)]
        kind = "loses some" if sign_of(clause, "", asks_left=True) < 0 else "gains some"
        return [Fact(kind, who, NOTHING, clause)]
    moves = clause.kinds & {"loss", "gain", "give", "come"} and not clause.kinds & {"share", "put"}
    if moves and not {"a", "an", "one", "the", "to"} & words:
        raise Outside("it misses a number in “" + " ".join(clause.words) + "”")
    return []


def about_the_counted(clause: Clause) -> list[Fact]:
    """A clause whose subject is counted: they come, they go, they are red, they share."""
    rest, counted = clause.rest, amounts(clause.subject)
    shares = clause.kinds & {"put", "share"}
    if has_number(rest) and not clause.is_passive and len(counted) == 1:
        inner = only_amount(rest)
        if "share" in clause.kinds:
            return [Fact("has", "", inner, clause), Fact("share", "", counted[0], clause)]
        if "each" in clause.words and not inner.count:
            packed = replace(inner, count=counted[0].number)
            return [Fact("has", "", packed, clause)]
    if has_number(rest) and shares and len(counted) == 1:
        return [Fact("has", "", counted[0], clause), *sharing(clause, "")]
    if has_number(rest):
        raise clause.refused()
    if EACH & set(rest) and len(counted) == 1:
        return [Fact("rate", "", counted[0], clause)]
    goes = bool(clause.kinds & {"loss", "give"})
    comes = "come" in clause.kinds or (clause.is_passive and not goes)
    kind = "come" if comes else "go" if goes else "part"
    return [Fact(kind, "", amount, clause) for amount in counted]


def about_being(clause: Clause, who: str, asks_count: bool) -> list[Fact]:
    """There are so many; somebody is so old."""
    rest = clause.rest
    if "there" in clause.subject:
        kind = "rate" if EACH & set(rest) or (asks_count and {"a", "an"} & set(rest)) else "has"
        return [Fact(kind, "", amount, clause) for amount in amounts(rest)]
    if "older" in rest or "younger" in rest:
        kind = "more than" if "older" in rest else "fewer than"
        return [Fact(kind, who, only_amount(rest), clause, word_after(rest, "than"))]
    if "old" in rest or (len(rest) == 1 and who):
        return [Fact("has", who, only_amount(rest), clause)]
    raise clause.refused()


def relation(clause: Clause, who: str) -> Fact:
    rest = clause.rest
    amount = only_amount(rest)
    if "times" in rest:
        behind = rest[len(rest) - 1 - rest[::-1].index("as") :] if rest.count("as") > 1 else []
        return Fact("times as many", who, amount, clause, word_after(behind, "as"))
    kind = "more than" if "more" in rest else "fewer than" if {"fewer", "less"} & set(rest) else ""
    if not kind or "than" not in rest:
        raise clause.refused()
    return Fact(kind, who, amount, clause, word_after(rest, "than"))


def sharing(clause: Clause, who: str) -> list[Fact]:
    """Things shared out among so many, or put so many into each; nothing if it is neither."""
    rest = clause.rest
    if len(shared := amounts(rest)) > 2:
        raise clause.refused()
    *whole, target = shared
    first = [Fact("has", who, amount, clause) for amount in whole]
    at = max(k for k, word in enumerate(rest) if word.isdigit())
    before = rest[at - 1] if at else ""
    evenly = bool({"equally", "evenly", "equal"} & set(rest))
    if before in ("among", "between", "by") or (before in ("with", "to") and evenly):
        return [*first, Fact("share", who, target, clause)]
    if before in ("into", "in", "on") and evenly:
        return [*first, Fact("split", who, target, clause)]
    if not first and not target.count and (before == "of" or EACH & set(rest)):
        return [Fact("fill", who, target, clause)]
    return []


def price(rest: list[str]) -> Amount | None:
    """`3 books for 12 dollars each`, as holders that hold dollars."""
    pattern = (
        r"(\d+) ([^\d]+?) (?:for|at|that cost|which cost) (\d+) dollars?( each| apiece| per .+)?"
    )
    match = re.fullmatch(pattern, " ".join(rest))
    return Amount(int(match[3]), MONEY, count=int(match[1])) if match and match[4] else None


def is_rate(clause: Clause, asks_count: bool) -> bool:
    """Whether a clause tells how many one of many has, holds or costs, or how many a day."""
    subject, rest = clause.subject, clause.rest
    holds = clause.verb in {"seats", "seat", *VERBS_OF["have"]} - {"have", "has", "had"}
    is_one = subject[:1] in (["a"], ["an"], ["one"])
    by_time = any(a in EACH | {"a", "an"} and b in UNITS for a, b in pairwise(rest))
    if "cost" in clause.kinds or EACH & set(subject):
        return True
    is_single = sum(w.isdigit() for w in rest) == 1
    return is_single and (bool(EACH & set(rest)) or by_time or (is_one and (asks_count or holds)))


def doing(clause: Clause, who: str) -> list[Fact]:
    rest = clause.rest
    if "have" in clause.kinds:
        return [Fact("has", who, amount, clause) for amount in amounts(rest)]
    if not clause.kinds & {"gain", "loss", "give", "put", "share"}:
        raise Outside(f"it does not know the verb “{clause.verb}”")
    if match := re.fullmatch(r"(.*) for (\d+ dollars)", " ".join(rest)):
        if has_number(match[1].split()):
            raise clause.refused()
        is_sold = third_person(clause.verb) == "sells"
        instead = ("get", {"gain"}) if is_sold else ("spend", {"loss"})
        spent = replace(clause, verb=instead[0], kinds=instead[1])
        return [Fact("does", who, only_amount(match[2].split()), spent)]
    return [Fact("does", who, amount, clause) for amount in amounts(rest)]


def sign_of(clause: Clause, main: str, asks_left: bool) -> int:
    """Whether what is done adds to what the main person has (1) or takes from it (-1).

    Somebody who cooks eggs may have more of them or fewer: what is left is asked after a loss.
    """
    who = head(clause.subject)
    if "give" in clause.kinds:
        to_somebody = RECIPIENTS & set(clause.rest[:1])
        if to_somebody and who in PRONOUNS:
            raise Outside("it does not understand who gives what to whom")
        is_other = who not in PRONOUNS | {"", main}
        return 1 if is_other and (to_somebody or main in clause.rest) else -1
    if re.search(r"\bof (them|these|those|his|her|the)\b", " ".join(clause.rest)):
        return -1
    if {"loss", "gain"} <= clause.kinds and clause.verb not in ALWAYS_LOST:
        return -1 if asks_left else 1
    return -1 if "loss" in clause.kinds else 1


# ---- The question


@dataclass(frozen=True)
class Ask:
    """What is wanted: the kind of question, about whom, of what, and for how many."""

    kind: str
    who: str = ""
    noun: str = ""
    count: int = 0
    verb: str = ""


def ask_of(words: list[str]) -> Ask:
    """Reads the question; only questions for a number are understood."""
    what, rest = "".join(words[1:2]), words[2:]
    if words[0] != "how" or what not in ("many", "much", "old", "far", "long"):
        raise refuse(words[:3])
    ends = AUXILIARIES | LEFT | EACH | PREPOSITIONS - {"of"}
    starts = (k for k, w in enumerate(rest) if w in ends or (w in VERBS and k > 0))
    split = next(starts, len(rest))
    thing, rest = [w for w in rest[:split] if w not in ARTICLES | {"of"}], rest[split:]
    compared = {"more", "fewer", "less"} & set(thing)
    nouns = [w for w in thing if w not in compared | {"pieces"}]
    if what == "much" and nouns in ([], ["money"]):
        nouns = [MONEY]
    noun = "years" if what == "old" else nouns[-1] if nouns else ""
    if sum(w.isdigit() for w in rest) > 1 or any(w in UNKNOWN for w in words):
        raise refuse(words)
    who, verb, are_two = subject_of(rest)
    count = next((int(w) for w in rest if w.isdigit()), 0)
    if compared and "than" in rest:
        return Ask("more" if "more" in compared else "fewer", who, noun)
    kind = "need" if compared else kind_of(set(rest), verb, are_two, count, "unbroken" in nouns)
    return Ask(kind, who, noun, count, verb)


def kind_of(rest: set[str], verb: str, are_two: bool, count: int, is_rest: bool) -> str:
    """The kind of a question that compares nothing."""
    cues = {  # the first that is there counts
        "rest": is_rest or "not" in rest,
        "each": EACH & rest and not count,
        "first": FIRST & rest,
        "left": LEFT & rest,
        "all": are_two or TOGETHER & rest,
        "pay": {"cost", "pay", "spend"} & rest,
        "have": verb in {"", *BE, *VERBS_OF["have"]},
    }
    return next((kind for kind, cue in cues.items() if cue), "done")


def subject_of(rest: list[str]) -> tuple[str, str, bool]:
    """Who a question is about, what they do, and whether they are two."""
    words = [w for w in rest if w not in ADVERBS]
    if words and words[0] in AUXILIARIES and len(words) > 1:
        words = words[1:]
    verbs = VERBS | LEFT | BE
    before = ["", *words]
    places = (k for k, w in enumerate(words) if w in verbs and before[k] not in ARTICLES)
    at = next(places, len(words))
    subject = words[:at]
    verb = words[at] if at < len(words) else ""
    if has_number(subject) or set(subject) & PREPOSITIONS:
        return "", verb, False
    return head(subject), verb, "and" in subject


# ---- From facts to a story


def kinds(facts: list[Fact]) -> list[str]:
    return [fact.kind for fact in facts]


def main_of(facts: list[Fact], ask: Ask) -> str:
    """Whom the story is about: the one who is asked about, or who comes first."""
    people = [f.who for f in facts if f.who in ("i", "we") or f.who not in PRONOUNS | {""}]
    return ask.who if ask.who in people or not people else people[0]


def is_other(fact: Fact, main: str) -> bool:
    return fact.who not in PRONOUNS | {"", main} and bool(main)


def tell(facts: list[Fact], ask: Ask) -> Story:
    """The story that the facts and the question make, in the model's own events."""
    if not facts:
        raise Outside("there is no number in it to start from")
    tellers = (tell_rate, tell_price, tell_part, tell_relation, tell_unknown, tell_shared, tell_sum)
    for teller in tellers:
        if story := teller(facts, ask):
            return story
    raise Outside("it does not know stories of this form")


def start_event(fact: Fact) -> Event:
    if fact.amount.count:
        return Event("packs", (fact.amount.count, fact.number))
    return Event("money" if fact.amount.noun == MONEY else "has", (fact.number,))


def change_event(fact: Fact, main: str, ask: Ask, is_money: bool = False) -> Event:
    """A gain or a loss, by a verb that the model knows."""
    sign = {"come": 1, "go": -1, "has": 1}.get(fact.kind, 0)
    if not sign:
        clause = replace(fact.clause, subject=[fact.who])
        sign = sign_of(clause, main, ask.kind in ("left", "first"))
        if sign > 0 and is_other(fact, main) and "give" not in clause.kinds:
            raise Outside("it does not understand what somebody else does in it")
    if fact.amount.count:
        if sign < 0:
            raise Outside("it does not know losses in packs")
        return Event("more packs", (fact.amount.count, fact.number))
    verbs = (EARNS if is_money else GAINS) if sign > 0 else (SPENDS if is_money else LOSSES)
    verb = fact.verb if fact.verb in verbs else "gets" if sign > 0 else "loses"
    if "give" in fact.clause.kinds and not is_money and fact.kind == "does":
        verb = ""  # to give needs no other verb
    return Event("gain" if sign > 0 else "loss", (fact.number,), verb)


def ending(events: tuple[Event, ...], ask: Ask) -> Story:
    """The question at the end of a story: what is left after a loss, else what there is."""
    lost = [event.kind in ("loss", "go") for event in events]
    if ask.kind == "left" and not any(lost):
        raise Outside("it asks what is left, and nothing goes")
    if events[0].kind == "there":
        return Story(events, "left there" if lost[-1] else "there now")
    return Story(events, "left" if lost[-1] else "have")


def known_verb(verb: str) -> str:
    """A verb that the model knows in place of one that it need not know."""
    return verb if verb in GAINS + LOSSES else "collects"


def tell_rate(facts: list[Fact], ask: Ask) -> Story | None:
    """So many with as many each: packs, days, prices."""
    rates = [f for f in facts if f.kind == "rate"]
    others = [f for f in facts if f.kind != "rate"]
    if not rates or ask.kind in ("first", "rest", "need", "more", "fewer"):
        return None
    if len(rates) > 1:
        raise Outside("it does not know two of “each” in one story")
    rate = rates[0]
    if "cost" in rate.clause.kinds:
        return tell_cost(rate, others, ask)
    count = ask.count
    if not count:
        if not others or others[0].kind not in ("has", "does") or others[0].amount.count:
            raise Outside("it misses of how many “each” is said")
        count, others = others[0].number, others[1:]
    pair = (count, rate.number)
    if not others and (UNITS & {*rate.clause.rest, rate.amount.noun} or ask.kind == "done"):
        verb = known_verb(rate.verb)
        return Story((Event("daily", pair, verb),), "done in all", verb)
    if not others:
        return Story((Event("packs there", pair),), "in all")
    if not set(kinds(others)) <= {"does", "come", "go", "has"}:
        return None
    main = main_of(facts, ask)
    return ending((Event("packs", pair), *(change_event(f, main, ask) for f in others)), ask)


def tell_cost(rate: Fact, others: list[Fact], ask: Ask) -> Story | None:
    """What so many cost, what is left of some money, or how many one can buy."""
    money = [f for f in others if f.kind == "has" and f.amount.noun == MONEY]
    counts = [f.number for f in others if f not in money and f.kind in ("has", "does")]
    if len(money) + len(counts) != len(others) or len(counts) > 1 or len(money) > 1:
        return None
    if ask.count and counts:
        return None
    count = ask.count or (counts[0] if counts else 0)
    if not money:
        return paid(money, (count, rate.number)) if count else None
    have = money[0].number
    if ask.noun != MONEY:
        fills = Event("has", (have,)), Event("fills", (rate.number,))
        return None if count else Story(fills, "holders")
    if count > 1:
        return paid(money, (count, rate.number))
    return Story((Event("money", (have,)), Event("loss", (rate.number,), "spends")), "left")


def paid(money: list[Fact], price: tuple[int, int]) -> Story:
    """So many bought at a price: what they cost, or what is left of some money."""
    event = Event("price", price)
    if not money:
        return Story((event,), "pay")
    return Story((Event("money", (money[0].number,)), event), "money left")


def tell_price(facts: list[Fact], ask: Ask) -> Story | None:
    prices = [f for f in facts if f.kind == "price"]
    others = [f for f in facts if f.kind != "price"]
    if len(prices) != 1 or ask.noun != MONEY or ask.count:
        return None
    if kinds(others) not in ([], ["has"]) or any(f.amount.noun != MONEY for f in others):
        return None
    return paid(others, (prices[0].amount.count, prices[0].number))


def tell_part(facts: list[Fact], ask: Ask) -> Story | None:
    if kinds(facts) not in (["has", "part"], ["does", "part"]) or ask.kind in ("first", "more"):
        return None
    whole, part = facts
    return Story((Event("has", (whole.number,)), Event("part", (part.number,))), "rest")


def tell_relation(facts: list[Fact], ask: Ask) -> Story | None:
    """Somebody's number told by another's; the one who is told by comes first."""
    relations = [f for f in facts if f.kind in ("more than", "fewer than", "times as many")]
    others = [f for f in facts if f not in relations]
    if len(relations) != 1 or kinds(others) not in (["has"], ["does"]) or others[0].amount.count:
        return None
    other, own = relations[0], others[0]
    if other.who in PRONOUNS | {own.who} or own.who == "":
        raise Outside("it does not understand who has more than whom")
    if other.than not in PRONOUNS | {"", own.who}:
        raise Outside(f"it does not know how many “{other.than}” has")
    events = (Event("has", (own.number,)), Event(other.kind, (other.number,)))
    if ask.kind == "all":
        return Story(events, "together")
    if ask.who not in PRONOUNS | {"", other.who} or ask.kind not in ("have", "done"):
        raise Outside("it does not understand whom the question is about")
    return Story(events, "other")


def tell_unknown(facts: list[Fact], ask: Ask) -> Story | None:
    """What was there at first, what came or went, or what is still needed."""
    names = kinds(facts)
    if sorted(names) in (["has", "needs"], ["does", "needs"]) and ask.kind in ("need", "left"):
        has, needs = sorted(facts, key=lambda fact: fact.kind == "needs")
        return Story((Event("has", (has.number,)), Event("needs", (needs.number,))), "need")
    if len(facts) != 3:
        return None
    first, middle, last = facts
    if ask.kind == "first" and first.kind == "some" and middle.kind in ("does", "go", "come"):
        change = change_event(middle, main_of(facts, ask), ask)
        return Story((Event("some"), change, Event("now", (last.number,))), "first")
    if middle.kind in ("gains some", "loses some") and {first.kind, last.kind} <= {"has", "part"}:
        verbs, instead = (GAINS, "gets") if middle.kind == "gains some" else (LOSSES, "loses")
        verb = middle.verb if middle.verb in verbs else instead
        now = Event("now", (last.number,))
        return Story(
            (Event("has", (first.number,)), Event(middle.kind, (), verb), now), "done", verb
        )
    return None


def tell_shared(facts: list[Fact], ask: Ask) -> Story | None:
    ends = {"share": "each", "split": "in each", "fill": "holders"}  # kind: what is asked
    *others, last = facts
    if last.kind not in ends or not others or set(kinds(others)) & set(ends):
        return None
    events = (replace(start_event(others[0]), kind="has"),)
    if len(others) > 1 or others[0].amount.count:
        before = tell_sum(others, Ask("have", ask.who))
        if before is None:
            return None
        events = before.events
    return Story((*events, Event(f"{last.kind}s", (last.number,))), ends[last.kind])


def tell_sum(facts: list[Fact], ask: Ask) -> Story | None:
    if not set(kinds(facts)) <= {"has", "does", "come", "go"}:
        return None
    check_nouns(facts, ask)
    if ask.kind in ("more", "fewer", "need"):
        return compared(facts, ask)
    if ask.kind == "rest":
        ask = replace(ask, kind="left")
    if ask.kind not in ("have", "left", "all", "done") or ask.count:
        return None
    if story := tell_done(facts, ask) or tell_side_by_side(facts, ask):
        return story
    if ask.kind == "done" and len(facts) > 1:
        raise Outside(f"it does not understand what it is to reckon with “{ask.verb}”")
    return tell_changes(facts, ask)


def tell_done(facts: list[Fact], ask: Ask) -> Story | None:
    """The same done two or three times, and how much that is in all."""
    if any(f.kind == "has" or f.amount.count for f in facts) or not 2 <= len(facts) <= 3:
        return None
    if len({f.verb for f in facts}) > 1 or ask.kind == "left":
        return None
    numbers = tuple(f.number for f in facts)
    if len(facts) == 3:
        return Story((Event("three kinds", numbers),), "have")
    if is_other(facts[1], facts[0].who):
        return Story((Event("has", numbers[:1]), Event("has too", numbers[1:])), "together")
    verb = known_verb(facts[0].verb)
    return Story(
        (Event("does", numbers[:1], verb), Event("does more", numbers[1:], verb)),
        "done in all",
        verb,
    )


def tell_side_by_side(facts: list[Fact], ask: Ask) -> Story | None:
    """What several people have, or several kinds of things, as one."""
    first = facts[0]
    have = [f for k, f in enumerate(facts) if f.kind == "has" or k == 0 or is_own(f, first.who)]
    changes = facts[len(have) :]
    if not 2 <= len(have) <= 3 or facts[: len(have)] != have or len(changes) > 1:
        return None
    if any(f.amount.count or f.amount.is_more for f in have):
        return None
    people = {f.who for f in have} - PRONOUNS - {""}
    if len(people) > 1 and ask.kind != "all" and ask.who not in ("", "they", "we"):
        raise Outside("it does not know stories of two people that ask for one")
    numbers = tuple(f.number for f in have)
    if len(have) == 3:
        return None if changes else Story((Event("three kinds", numbers),), "have")
    if len(people) < 2:
        events = tuple(change_event(f, main_of(facts, ask), ask) for f in changes)
        return ending((Event("kinds", numbers), *events), ask)
    start = (Event("has", numbers[:1]), Event("has too", numbers[1:]))
    if not changes:
        return Story(start, "together")
    if changes[0].who not in ("they", "we", ""):
        return None
    change = change_event(changes[0], "they", ask)
    is_gain = change.kind == "gain"
    both = Event("they get" if is_gain else "they lose", change.numbers)
    return Story((*start, both), "together" if is_gain else "left together")


def is_own(fact: Fact, main: str) -> bool:
    """Whether somebody else gets something that is their own, not the main person's."""
    kinds = fact.clause.kinds
    own = "gain" in kinds and "loss" not in kinds and "of" not in fact.clause.rest
    return fact.kind == "does" and is_other(fact, main) and own


def tell_changes(facts: list[Fact], ask: Ask) -> Story | None:
    """Somebody has something, gains and loses, and has so much in the end."""
    first, *rest = facts
    if not rest and not first.amount.count:
        raise Outside("there is nothing in it to reckon")
    if not rest:
        return Story((Event("packs there", (first.amount.count, first.number)),), "in all")
    main = main_of(facts, ask)
    start = start_event(first)
    is_money = start.kind == "money"
    changes = [change_event(f, main, ask, is_money) for f in rest]
    if first.who == "" and start.kind == "has" and {f.kind for f in rest} <= {"come", "go"}:
        moves = {"gain": "come", "loss": "go"}
        changes = [Event(moves[event.kind], event.numbers) for event in changes]
        start = Event("there", start.numbers)
    return ending((start, *changes), ask)


def compared(facts: list[Fact], ask: Ask) -> Story:
    """Two people's numbers, the greater first as the model knows it, and the difference."""
    if len(facts) != 2 or any(f.kind not in ("has", "does") or f.amount.count for f in facts):
        raise Outside("it does not know comparisons of this form")
    first, second = facts
    whole, part = sorted((first.number, second.number), reverse=True)
    asked = "fewer" if ask.kind == "fewer" else "more"
    asked_has = second.number if second.who == ask.who else first.number
    if asked_has != (whole if asked == "more" else part):
        raise Outside("the difference would be below zero")
    return Story((Event("has", (whole,)), Event("has too", (part,))), asked)


def check_nouns(facts: list[Fact], ask: Ask) -> None:
    """Refuses a story about two things that asks for one of them."""
    nouns = [singular(f.amount.noun) for f in facts if f.amount.noun]
    others = [noun for noun in nouns if noun != singular(ask.noun)]
    if len(others) < len(nouns) and others:
        raise Outside(f"it does not know what “{others[0]}” has to do with “{ask.noun}”")


# ---- The whole question


@dataclass(frozen=True)
class Read:
    """A story, who it is about, and what is counted in it, in the words of the question."""

    story: Story
    main: str
    thing: str


def read_story(text: str) -> Read:
    """Reads an everyday question; `Outside` says why it cannot."""
    parts = sentences(normalised(text))
    for word in (word for words in parts for word in words):
        if word in UNKNOWN:
            raise Outside(f"it does not know {UNKNOWN[word]}")
    questions = [words for words in parts if "how" in words]
    if len(questions) != 1:
        raise Outside(
            "it answers one question at a time"
            if questions
            else "it answers only “how many”, “how much” and sums"
        )
    ask = ask_of(questions[0][questions[0].index("how") :])
    telling = [words for words in parts if "how" not in words]
    facts = [
        fact
        for words in telling
        for clause in clauses(words)
        for fact in facts_of(clause, bool(ask.count))
    ]
    stated = sum(word.isdigit() for words in telling for word in words)
    if stated != sum((f.amount is not NOTHING) + (f.amount.count > 0) for f in facts):
        raise Outside("it does not understand all the numbers in it")
    story = tell(facts, ask)
    nouns = [fact.amount.noun for fact in facts if fact.amount.noun]
    return Read(story, main_of(facts, ask), ask.noun or (nouns[0] if nouns else ""))
