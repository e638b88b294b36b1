"""Are two answers the same? Decided in microseconds where algebra is enough, else left open.

Three values everywhere: True and False are proofs, None means that it takes symbolic work.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from crt.grading import equality
from crt.grading.equality import Oracle, Rules
from crt.grading.extract import BLANK
from crt.grading.latex import tidy
from crt.grading.parser import Node, Reading, read

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
    letter = gold_letter(gold, bool(options))
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

    return Decision(decide_choice(prediction, letter, options, equal), "choice")


def _trees(prediction: str, gold: str, rules: Rules) -> tuple[bool | None, str]:
    mine, theirs = read(prediction), read(gold)
    mine, theirs = _as_lists(prediction, gold, mine, theirs)
    if _same_words(prediction, gold, mine, theirs):
        return True, "same words"
    equal = equality.same(mine.tree, theirs.tree, rules)
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


_GOLD = re.compile(r"\(?\s*([A-J])\s*\)?")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_LEADING = re.compile(
    r"""(?:(?:the\s+)?(?:correct\s+)?(?:answer|option|choice)\s*(?:is)?\s*:?\s*)?
    (?:\(\s*(?P<round>[A-Ja-j])\s*\)          # (D)10
      |(?P<marked>[A-Ja-j])\s*[).:]           # D) 10, D. 10, D: 10
      |(?P<alone>[A-Ja-j])(?:\s*$|\s+(?=\S))  # D, D 10
    )\s*(?P<rest>.*)""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_ANOTHER = re.compile(
    r"\(\s*[A-J]\s*\)"  # (D) (C)
    r"|^[A-J]\s*(?:$|[).:,])"  # D C, D C)
    r"|^(?:,|/|&|or\b|and\b)\s*\(?[A-J]\)?(?=$|[\s).:,])"  # D or C
)
# What may follow a letter: text or a value, not an operator, as in (D)^2 or D: \le 5.
_CONTENT = re.compile(r"[\w$({\[|.,&/+-]|\\(?!(?:cup|cap|le|ge|ne|in|pm|mp|approx|circ|to)\b)")
_OPTION = re.compile(r"^\s*\(?[A-J]\s*[).:]\s*")


def gold_letter(gold: str, has_options: bool) -> str | None:
    r"""The letter that is the answer: `D`, `(D)`, `\text{(D)}`; without options only a capital."""
    text = _TEXT.sub(r"\1", gold).strip().rstrip(".,")
    found = _GOLD.fullmatch(text.upper() if has_options else text)
    return found.group(1) if found else None


def chosen(prediction: str, options: int) -> tuple[str, str] | None:
    """The letter that a prediction chooses and the words after it, if it begins with a letter.

    Of a prediction that names a second letter the choice is "". Small letters are choices only when
    the question has options (otherwise d is a variable), and then only the letters of these: with
    four options, "I and II only" does not choose I.
    """
    text = tidy(prediction)
    if text is None:
        return None
    text = _TEXT.sub(r"\1", text)
    text = re.sub(r"^\{(.*)\}$", r"\1", text.strip()).strip()
    found = _LEADING.fullmatch(text)
    if found is None:
        return None
    letter = found.group("round") or found.group("marked") or found.group("alone")
    rest = found.group("rest").strip()
    if letter.islower() and not options:
        return None
    if options and ord(letter.upper()) - ord("A") >= options:
        return None
    if rest and not _CONTENT.match(rest):
        return None
    if _ANOTHER.search(rest):
        return "", rest
    if found.group("alone") and rest and not options:
        return None
    return letter.upper(), rest


def decide_choice(
    prediction: str, letter: str, options: tuple[str, ...], equal: Callable[[str, str], bool | None]
) -> bool | None:
    """Whether the prediction chooses the letter, by name or by what the option says.

    A letter followed by what another option says contradicts itself and is wrong.
    """
    contents = [_OPTION.sub("", option) for option in options]
    wanted = ord(letter) - ord("A")
    picked = chosen(prediction, len(options))
    if picked is None or _says_small(prediction, contents, equal):
        return _by_content(prediction, contents, wanted, equal)
    if picked[0] != letter:
        return False
    others = [content for k, content in enumerate(contents) if k != wanted]
    return not (picked[1] and any(equal(picked[1], other) for other in others))


def _says_small(
    prediction: str, contents: list[str], equal: Callable[[str, str], bool | None]
) -> bool:
    """Is a small letter, which could be a choice, what some option says? Then it is that."""
    if not re.search(r"[a-j]", prediction) or len(prediction) > 9:
        return False
    return any(equal(prediction, content) for content in contents)


def _by_content(
    prediction: str,
    contents: list[str],
    wanted: int,
    equal: Callable[[str, str], bool | None],
) -> bool | None:
    """Says what the wanted option says, and no other option says the same."""
    if wanted >= len(contents):
        return False
    verdicts = [equal(prediction, content) for content in contents]
    if any(verdict for k, verdict in enumerate(verdicts) if k != wanted):
        return False
    return verdicts[wanted]
