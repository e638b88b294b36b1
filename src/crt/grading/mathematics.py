"""Is an answer the gold one? Mathematics and multiple choice.

Decided in microseconds where algebra is enough, else left open: True and False are proofs, None
means that it takes symbolic work, which `grader` has done by its workers.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from crt.grading import equality
from crt.grading.equality import Oracle, Rules
from crt.grading.extract import BLANK
from crt.grading.latex import normalise
from crt.grading.parser import Node, parse

MAX_ANSWER = 1000  # characters; no gold of any known set has more than 204

_INTEGER = re.compile(r"-?\d{1,15}")
_KIND_NAMES = {
    **{"number": "a number", "base": "a numeral", "list": "a list", "union": "a union"},
    **{"matrix": "a matrix", "relation": "an equation or inequality", "ratio": "a ratio"},
    **{"word": "words", "unread": "something unreadable"},
}


class GoldUnread(ValueError):
    """Neither grammar reads the gold, so no verdict would mean anything; raised by the oracle."""


class Comparison(NamedTuple):
    """`equal` is None when it takes symbolic work."""

    equal: bool | None
    reason: str


def verify_math(
    prediction: str,
    gold: str,
    options: Sequence[str] = (),
    tolerance: float | None = None,
    percent: bool = False,
    oracle: Oracle = equality.undecided,
) -> Comparison:
    """Whether a prediction is the gold answer; `oracle` settles what algebra cannot.

    `percent` says that the question asks for a percentage, so that a gold `50` means 50 %.
    """
    prediction, gold = prediction.strip(BLANK), gold.strip(BLANK)
    if prediction == gold:
        return Comparison(True, "same text")
    if len(prediction) > max(MAX_ANSWER, 4 * len(gold)):
        return Comparison(False, "too long")
    rules = Rules(tolerance, percent, oracle)
    letter = gold_letter(gold, bool(options))
    if letter is not None:
        return Comparison(verify_choice(prediction, letter, options, rules), "choice")
    if tolerance is None and _INTEGER.fullmatch(prediction) and _INTEGER.fullmatch(gold):
        return Comparison(int(prediction) == int(gold), "whole numbers")
    return _compare_trees(prediction, gold, rules)


def _compare_trees(prediction: str, gold: str, rules: Rules) -> Comparison:
    answer, reference = _parse_both(prediction, gold)
    if "word" in (answer.kind, reference.kind) and _letters(prediction) == _letters(gold) != "":
        return Comparison(True, "same words")  # `CBAD` is a product of names, `\text{CBAD}` a word
    equal = equality.same(answer, reference, rules)
    if equal is None:
        return Comparison(None, "needs symbolic work")
    verdict = "same" if equal else "not the same"
    return Comparison(equal, f"{verdict}: {_describe(answer)} for {_describe(reference)}")


def _parse_both(prediction: str, gold: str) -> tuple[Node, Node]:
    """Both trees; `100,200` is a list after all if the other answer is certainly one."""
    answer, reference = parse(prediction), parse(gold)
    if answer.joined and not reference.joined and reference.tree.kind in ("list", "bracket"):
        answer = parse(prediction, thousands=False)
    if reference.joined and not answer.joined and answer.tree.kind == "list":
        reference = parse(gold, thousands=False)
    return answer.tree, reference.tree


def _letters(answer: str) -> str:
    bare = re.sub(r"\\(?:text|mbox|mathrm|textbf|textit)\s*\{([^{}]*)\}", r"\1", answer)
    bare = re.sub(r"[\s.$]|\\[ ,;!]", "", bare)
    return bare.casefold() if bare.isalpha() else ""


def _describe(tree: Node) -> str:
    """What a reader would call this answer."""
    if tree.kind == "unit":
        return f"a value in {tree.text}"
    if tree.kind == "bracket":
        return "a set" if tree.text == "{}" else "a tuple or interval"
    return _KIND_NAMES.get(tree.kind, "an expression")


_ASKS = re.compile(r"\b(?:what|which|find|express|give|calculate|determine|how)\b", re.IGNORECASE)
_PERCENTAGE = re.compile(
    r"\b(?:what|which|find|calculate|determine|how many|as an?)(?: [a-z]+){0,3}?"
    r" per\s?cent(?:age)?\b"
    r"|\bin per\s?cent(?:age)?\b(?! points)",
    re.IGNORECASE,
)


def asks_percent(question: str) -> bool:
    """Does the sentence that asks, ask for a percentage?"""
    sentences = re.split(r"(?<=[.?!])\s+", question.strip())
    asking = [s for s in sentences if s.endswith("?")] or [s for s in sentences if _ASKS.search(s)]
    return bool(asking) and bool(_PERCENTAGE.search(asking[-1]))


# Multiple choice: the letter in all the forms in which models write it

_GOLD_LETTER = re.compile(r"\(?\s*([A-J])\s*\)?")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_LEADING_LETTER = re.compile(
    r"""(?:(?:the\s+)?(?:correct\s+)?(?:answer|option|choice)\s*(?:is)?\s*:?\s*)?
    (?:\(\s*(?P<round>[A-Ja-j])\s*\)          # (D)10
      |(?P<marked>[A-Ja-j])\s*[).:]           # D) 10, D. 10, D: 10
      |(?P<alone>[A-Ja-j])(?:\s*$|\s+(?=\S))  # D, D 10
    )\s*(?P<rest>.*)""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_SECOND_LETTER = re.compile(
    r"\(\s*[A-J]\s*\)"  # (D) (C)
    r"|^[A-J]\s*(?:$|[).:,])"  # D C, D C)
    r"|^(?:,|/|&|or\b|and\b)\s*\(?[A-J]\)?(?=$|[\s).:,])"  # D or C
)
# What may follow a letter: text or a value, not an operator, as in (D)^2 or D: \le 5.
_CONTENT = re.compile(r"[\w$({\[|.,&/+-]|\\(?!(?:cup|cap|le|ge|ne|in|pm|mp|approx|circ|to)\b)")
_OPTION_LABEL = re.compile(r"^\s*\(?[A-J]\s*[).:]\s*")


def gold_letter(gold: str, has_options: bool) -> str | None:
    r"""The letter that is the answer: `D`, `(D)`, `\text{(D)}`; without options only a capital."""
    text = _TEXT.sub(r"\1", gold).strip().rstrip(".,")
    match = _GOLD_LETTER.fullmatch(text.upper() if has_options else text)
    return match.group(1) if match else None


def verify_choice(
    prediction: str, letter: str, options: Sequence[str], rules: Rules
) -> bool | None:
    """Whether the prediction chooses the letter, by name or by what the option says.

    A letter followed by what another option says contradicts itself and is wrong. A small letter
    that is what some option says is no choice but that content.
    """
    contents = [_OPTION_LABEL.sub("", option) for option in options]
    gold = ord(letter) - ord("A")
    choice = _leading_choice(prediction, len(options))
    if choice is None or (len(prediction) <= 9 and re.search(r"[a-j]", prediction)):
        verdicts = [_same_content(prediction, content, rules) for content in contents]
        if choice is None or any(verdicts):
            ambiguous = any(verdict for k, verdict in enumerate(verdicts) if k != gold)
            return False if ambiguous or gold >= len(contents) else verdicts[gold]
    chosen, rest = choice
    if chosen != letter:
        return False
    others = (content for k, content in enumerate(contents) if k != gold)
    return not (rest and any(_same_content(rest, other, rules) for other in others))


def _leading_choice(prediction: str, options: int) -> tuple[str, str] | None:
    """The letter that a prediction chooses and the words after it, if it begins with a letter.

    Of a prediction that names a second letter the choice is "". Small letters are choices only when
    the question has options (otherwise d is a variable), and then only the letters of these: with
    four options, "I and II only" does not choose I.
    """
    text = normalise(prediction)
    if text is None:
        return None
    text = _TEXT.sub(r"\1", text).strip()
    match = _LEADING_LETTER.fullmatch(re.sub(r"^\{(.*)\}$", r"\1", text).strip())
    if match is None:
        return None
    letter = match.group("round") or match.group("marked") or match.group("alone")
    rest = match.group("rest").strip()
    is_choice = ord(letter.upper()) - ord("A") < options if options else letter.isupper()
    if not is_choice or (rest and not _CONTENT.match(rest)):
        return None
    if _SECOND_LETTER.search(rest):
        return "", rest
    if match.group("alone") and rest and not options:
        return None
    return letter.upper(), rest


def _same_content(prediction: str, content: str, rules: Rules) -> bool | None:
    try:
        return _compare_trees(prediction, content, rules).equal
    except GoldUnread:
        return False  # an option that is a table or a sentence is compared as text
