"""Are two answers the same? Decided in microseconds where algebra is enough, else left open.

Three values everywhere: True and False are proofs, None means that it takes symbolic work.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from crt.tasks import choice
from crt.tasks.algebra import structure
from crt.tasks.algebra.node import Node
from crt.tasks.algebra.reader import Reading, read
from crt.tasks.algebra.structure import Oracle, Rules
from crt.tasks.extract import BLANK

MAX_ANSWER = 1000  # characters; no gold of any known set has more than 204

_WHOLE = re.compile(r"-?\d{1,15}")
_ASKS = re.compile(r"\b(?:what|which|find|express|give|calculate|determine|how)\b", re.IGNORECASE)
_PERCENT_WANTED = re.compile(
    r"\b(?:what|which|find|calculate|determine|how many|as an?)(?: [a-z]+){0,3}?"
    r" per\s?cent(?:age)?\b"
    r"|\bin per\s?cent(?:age)?\b(?! points)",
    re.IGNORECASE,
)
_NAMES = {
    **{"number": "a number", "base": "a numeral", "list": "a list", "union": "a union"},
    **{"matrix": "a matrix", "relation": "an equation or inequality", "ratio": "a ratio"},
    **{"word": "words", "unread": "something unreadable"},
}


class GoldUnread(ValueError):
    """Neither grammar reads the gold, so no verdict would mean anything; raised by the oracle."""


class Decision(NamedTuple):
    """`equal` is None when the fast paths cannot tell."""

    equal: bool | None
    reason: str


def decide(
    prediction: str,
    gold: str,
    options: Sequence[str] = (),
    tolerance: float | None = None,
    percent: bool = False,
    oracle: Oracle | None = None,
) -> Decision:
    """Whether a prediction is the gold answer; `oracle` settles what algebra cannot.

    `percent` says that the question asks for a percentage, so that a gold `50` means 50 %.
    """
    prediction, gold = prediction.strip(BLANK), gold.strip(BLANK)
    if prediction == gold:
        return Decision(True, "same text")
    if len(prediction) > max(MAX_ANSWER, 4 * len(gold)):
        return Decision(False, "too long")
    rules = Rules(tolerance, percent, oracle)
    letter = choice.gold_letter(gold, bool(options))
    if letter is not None:
        return _choice(prediction, letter, tuple(options), rules)
    if tolerance is None and _WHOLE.fullmatch(prediction) and _WHOLE.fullmatch(gold):
        return Decision(int(prediction) == int(gold), "whole numbers")
    return Decision(*_trees(prediction, gold, rules))


def asks_percent(question: str) -> bool:
    """Does the sentence that asks, ask for a percentage?"""
    sentences = re.split(r"(?<=[.?!])\s+", question.strip())
    asking = [s for s in sentences if s.endswith("?")] or [s for s in sentences if _ASKS.search(s)]
    return bool(asking) and bool(_PERCENT_WANTED.search(asking[-1]))


def _choice(prediction: str, letter: str, options: tuple[str, ...], rules: Rules) -> Decision:
    def equal(one: str, other: str) -> bool | None:
        try:
            return _trees(one, other, rules)[0]
        except GoldUnread:
            return False  # an option that is a table or a sentence is compared as text

    return Decision(choice.decide_choice(prediction, letter, options, equal), "choice")


def _trees(prediction: str, gold: str, rules: Rules) -> tuple[bool | None, str]:
    mine, theirs = read(prediction), read(gold)
    mine, theirs = _as_lists(prediction, gold, mine, theirs)
    if _same_words(prediction, gold, mine, theirs):
        return True, "same words"
    equal = structure.same(mine.tree, theirs.tree, rules)
    if equal is None:
        return None, "needs symbolic work"
    same = "same" if equal else "not the same"
    return equal, f"{same}: {_called(mine.tree)} for {_called(theirs.tree)}"


def _called(tree: Node) -> str:
    """What a reader would call this answer."""
    if tree.kind == "unit":
        return f"a value in {tree.text}"
    if tree.kind == "bracket":
        return "a set" if tree.text == "{}" else "a tuple or interval"
    return _NAMES.get(tree.kind, "an expression")


def _as_lists(
    prediction: str, gold: str, mine: Reading, theirs: Reading
) -> tuple[Reading, Reading]:
    """`100,200` is a list after all if the other answer is certainly one."""
    if mine.comma and not theirs.comma and theirs.tree.kind in ("list", "bracket"):
        mine = read(prediction, thousands=False)
    if theirs.comma and not mine.comma and mine.tree.kind == "list":
        theirs = read(gold, thousands=False)
    return mine, theirs


def _same_words(prediction: str, gold: str, mine: Reading, theirs: Reading) -> bool:
    r"""`CBAD` is a product of names and `\text{CBAD}` a word: the letters decide."""
    if "word" not in (mine.tree.kind, theirs.tree.kind):
        return False
    return _letters(prediction) == _letters(gold) != ""


def _letters(answer: str) -> str:
    bare = re.sub(r"\\(?:text|mbox|mathrm|textbf|textit)\s*\{([^{}]*)\}", r"\1", answer)
    bare = re.sub(r"[\s.$]|\\[ ,;!]", "", bare)
    return bare.casefold() if bare.isalpha() else ""
