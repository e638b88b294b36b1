"""From each source's own form to a question, a normalised answer, options and a tolerance."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crt.errors import DataError

Fields = Mapping[str, Any]  # question, answer, solution, options, tolerance, multiple: as stored

_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_LABEL = re.compile(r"\s*(?:\(([A-Z])\)|([A-Z])[).:])\s*")
_DOLLAR = re.compile(r"(?<!\\)\$")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a row says, apart from its id."""

    question: str
    answer: str
    options: tuple[str, ...] = ()
    tolerance: float | None = None


def plain(fields: Fields) -> Parts:
    """A question and an answer as they stand; without an answer, the solution's last box."""
    if fields.get("options") is not None:
        return choice(fields)
    tolerance = _tolerance(fields.get("tolerance"))
    return Parts(_question(fields), _answer_or_box(fields), tolerance=tolerance)


def gsm8k(fields: Fields) -> Parts:
    """GSM8K: the number after the last `####`, without thousands separators."""
    answer = _text(fields.get("answer"), "answer").rpartition("####")[2].strip()
    return Parts(_question(fields), _filled(without_thousands(answer.lstrip("$")), "answer"))


def choice(fields: Fields) -> Parts:
    """Multiple choice: options without their labels, shown below the stem; the answer a letter."""
    options = split_options(fields.get("options"))
    letter = _letter(fields.get("answer"), len(options))
    stem = _agieval_stem(_question(fields))
    shown = "\n".join(f"({chr(65 + i)}) {option}" for i, option in enumerate(options))
    question = stem if stem.endswith(shown) else f"{stem}\n{shown}"
    return Parts(question, letter, options)


def olympiad(fields: Fields) -> Parts:
    """OlympiadBench: a list of LaTeX answers; inner `$` goes, a unit held apart stays apart."""
    raw = fields.get("answer")
    items = [raw] if isinstance(raw, str) else list(raw or [])
    bare = [_DOLLAR.sub("", _text(item, "answer")).strip().rstrip(".") for item in items]
    answer = ", ".join(part.strip() for part in bare)
    # "2500,7500" may be two answers, and then never one number with separators.
    several = fields.get("multiple")
    answer = re.sub(r",\s*", ", ", answer) if several else without_thousands(answer)
    tolerance = _tolerance(fields.get("tolerance"))
    return Parts(_question(fields), _filled(answer, "answer"), tolerance=tolerance)


def last_box(text: str) -> str | None:
    r"""What the last `\boxed{…}` or `\fbox{…}` holds, braces matched; None if it never closes."""
    start = max(text.rfind(r"\boxed"), text.rfind(r"\fbox"))
    if start < 0:
        return None
    rest = text[start:].removeprefix(r"\boxed").removeprefix(r"\fbox").lstrip()
    if not rest.startswith("{"):  # MATH has a few `\boxed 2`
        return re.split(r"[\s$.,]", rest, maxsplit=1)[0]
    depth = 0
    for mark in re.finditer(r"\\.|[{}]", rest, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(mark.group(), 0)
        if depth == 0 and mark.group() == "}":
            return rest[1 : mark.start()].strip()
    return None


def without_thousands(number: str) -> str:
    """`1,080` as `1080`; anything but one number with separators stays as it is."""
    return number.replace(",", "") if _THOUSANDS.fullmatch(number) else number


def split_options(options: Any) -> tuple[str, ...]:
    """A list of options, or one text `A) … B) …`, without the labels, in order."""
    if isinstance(options, str):
        options = _cut_at_labels(options)
    if not isinstance(options, Sequence) or not 2 <= len(options) <= 26:
        raise DataError(f"options {_short(options)} are not a list of 2 to 26 texts")
    return tuple(_without_label(_text(option, "option"), i) for i, option in enumerate(options))


def _cut_at_labels(text: str) -> list[str]:
    """`A) 2 B) 4` cut before A, before B and so on: a label counts only in its turn."""
    starts: list[int] = []
    for letter in map(chr, range(65, 91)):
        label = re.compile(rf"(?<![A-Za-z\\])(?:\({letter}\)|{letter}[).:])")
        found = label.search(text, starts[-1] + 1 if starts else 0)
        if not found:
            break
        starts.append(found.start())
    ends = [*starts[1:], len(text)]
    return [text[a:b].strip().rstrip(",") for a, b in zip(starts, ends, strict=True)]


def _without_label(option: str, index: int) -> str:
    found = _LABEL.match(option)
    if found and (found[1] or found[2]) == chr(65 + index):
        return _filled(option[found.end() :].strip(), "option")
    return option


def _letter(answer: Any, count: int) -> str:
    """The letter of `D`, `(D)`, 3 or [3]; it must be one of the options'."""
    if isinstance(answer, Sequence) and not isinstance(answer, str) and len(answer) == 1:
        answer = answer[0]
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < count:
        return chr(65 + answer)
    letter = _text(answer, "answer").strip("().: ").upper()
    if len(letter) != 1 or not 0 <= ord(letter) - 65 < count:
        raise DataError(f"answer {_short(answer)} is not one of the {count} options' letters")
    return letter


def _agieval_stem(query: str) -> str:
    """AGIEval's hub copies wrap the stem: `Q: … Answer Choices: … A: Among A through D, …`."""
    if query.startswith("Q: ") and "Answer Choices:" in query:
        return query.removeprefix("Q: ").rpartition("Answer Choices:")[0].strip()
    return query


def _question(fields: Fields) -> str:
    return _text(fields.get("question"), "question")


def _answer_or_box(fields: Fields) -> str:
    if fields.get("answer") is not None:
        answer = _text(fields["answer"], "answer")
        boxed = last_box(answer) if answer.startswith(r"\boxed") else answer
    else:
        boxed = last_box(_text(fields.get("solution"), "answer"))
        if boxed is None:
            raise DataError(r"no answer, and no closed \boxed{} in the solution")
    return _filled(_without_outer_dollars(boxed or ""), "answer")


def _without_outer_dollars(text: str) -> str:
    inner = text.strip("$").strip() if text.startswith("$") and text.endswith("$") else text
    return inner if "$" not in inner else text


def _tolerance(value: Any) -> float | None:
    if value is None or value == "":
        return None
    try:
        tolerance = float(value)
    except (TypeError, ValueError):
        tolerance = math.nan
    if not 0 < tolerance < math.inf:
        raise DataError(f"tolerance {_short(value)} is not a number above 0")
    return tolerance


def _text(value: Any, what: str) -> str:
    """The value as clean text: numbers are written out, everything else must be a string."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of integers with a gap is read as floats
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        value = str(value)
    if value is None or value != value:
        raise DataError(f"no {what}")
    if not isinstance(value, str):
        raise DataError(f"{what} {_short(value)} is {type(value).__name__}, not text")
    if "\0" in value:
        raise DataError(f"{what} contains a NUL character")
    if _SURROGATE.search(value):
        raise DataError(f"{what} is not valid UTF-8")
    return _filled(value.strip(), what)


def _filled(text: str, what: str) -> str:
    if not text:
        raise DataError(f"empty {what}")
    return text


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
