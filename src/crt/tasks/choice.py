"""Multiple choice: the letter in all the forms in which models write it."""

import re
from collections.abc import Callable

from crt.tasks.normalise import tidy

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
