"""Where the answer is: in the last box after the thinking, and nowhere else."""

import re
from typing import NamedTuple

OPEN_THINKING = "<think>"
CLOSE_THINKING = "</think>"

BLANK = " \t\r\n"  # no form feed: it is what is left of a damaged "\\frac"

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_BRACE = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*\{|\\.|[{}]", re.DOTALL)
_SPACING = r"(?:\s|\$|\\[()\[\],;:! ]|\\q?quad\b)*+"
_AND = r"(?:and|or|\\text\s*\{\s*,?\s*(?:and|or)\s*\})"
_SEPARATOR = re.compile(rf"{_SPACING}(?:,{_SPACING}{_AND}?|{_AND}){_SPACING}")
_UNBRACED = re.compile(r"[^\s$]+")


class Box(NamedTuple):
    """Where a box begins, and its content's start and end."""

    begin: int
    start: int
    end: int


class Extraction(NamedTuple):
    """The answer as written, or None with the reason why there is none."""

    answer: str | None
    reason: str = ""


def extract(text: str, thinking_opened: bool = False) -> Extraction:
    """The content of the last box after the thinking.

    `thinking_opened` says that the prompt already ended inside `<think>`: then a response without
    `</think>` is all thinking and has no answer. A response of a model that does not think (no
    `<think>`, no `</think>`) is searched as a whole.
    """
    _, close, reply = text.rpartition(CLOSE_THINKING)
    if OPEN_THINKING in reply or (thinking_opened and not close):
        return Extraction(None, "thinking is not closed")
    return last_box(reply)


def last_box(text: str, enumeration: bool = True) -> Extraction:
    r"""The last outermost box; with `enumeration`, also the boxes beside it in one enumeration.

    In a response two boxed answers are two answers: `\boxed{5} or \boxed{6}` must not count for 5.
    A gold solution is read without: the answers published for MATH are those of the last box alone.

    A box that is begun and not closed is no answer, nor is an older one. One pass over the braces,
    so that a megabyte of them takes a moment, not an hour.
    """
    first = _BOX.search(text)
    if first is None:
        return Extraction(None, "no box")
    boxes, unclosed = _match_braces(text, first.start())
    end = boxes[-1].end if boxes else -1
    unbraced = _last_unbraced(text, max(end, 0))
    if unbraced:
        return Extraction(unbraced)
    if unclosed > end:
        return Extraction(None, "the last box is not closed")
    chosen = _last_enumeration(text, boxes) if enumeration else boxes[-1:]
    contents = [text[box.start : box.end].strip(BLANK) for box in chosen]
    if not contents or not contents[-1]:
        return Extraction(None, "the box is empty")
    return Extraction(", ".join(contents))


def _match_braces(text: str, start: int) -> tuple[list[Box], int]:
    """The closed boxes in the order in which they close, and where the last open one starts."""
    open_groups: list[tuple[int, int]] = []  # a box's begin and start; (-1, -1) for another brace
    boxes: list[Box] = []
    for match in _BRACE.finditer(text, start):
        token = match.group()
        if token.endswith("{") and token != "\\{":
            open_groups.append(match.span() if len(token) > 1 else (-1, -1))
        elif token == "}" and open_groups:
            begin, content = open_groups.pop()
            if content >= 0:
                boxes.append(Box(begin, content, match.start()))
    return boxes, max((content for _, content in open_groups), default=-1)


def _last_enumeration(text: str, boxes: list[Box]) -> list[Box]:
    """The last box and those before it with only commas, "and" or "or" between them."""
    chain = boxes[-1:]
    for box in reversed(boxes[:-1]):
        after = chain[-1].begin
        if box.end > after or not _SEPARATOR.fullmatch(text, box.end + 1, after):
            break
        chain.append(box)
    return chain[::-1]


def _last_unbraced(text: str, after: int) -> str:
    r"""The content of the last `\boxed 5`, a box without braces."""
    content = ""
    for box in _BOX.finditer(text, after):
        if text[box.end() : box.end() + 1] != "{":
            match = _UNBRACED.match(text, box.end())
            content = match.group().rstrip(".,;:") if match else content
    return content
