"""Where the answer is: after the thinking, in the last box or at another stated place."""

import re
from typing import NamedTuple

OPEN_THINKING = "<think>"
CLOSE_THINKING = "</think>"

AFTER = "after:"
NUMBER = re.compile(r"(?:(?<![\w)\]}])[-−+])?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?")

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


def extract(text: str, thinking_opened: bool = False, place: str = "boxed") -> Extraction:
    """The answer at a place of the reply; the place "" is the whole reply.

    `thinking_opened` says that the prompt already ended inside `<think>`: then a response without
    `</think>` is all thinking and has no answer. A response of a model that does not think (no
    `<think>`, no `</think>`) is searched as a whole.
    """
    _, close, reply = text.rpartition(CLOSE_THINKING)
    if OPEN_THINKING in reply or (thinking_opened and not close):
        return Extraction(None, "thinking is not closed")
    if place == "boxed":
        return last_box(reply)
    if place == "last_number":
        return last_number(reply)
    if place.startswith(AFTER):
        return answer_after(reply, place.removeprefix(AFTER))
    return Extraction(reply) if reply.strip() else Extraction(None, "the reply is empty")


def last_number(text: str) -> Extraction:
    """The last number, with its sign: `3 + 4 = 7` has 7, and `10-3` has 3, not -3."""
    numbers = list(NUMBER.finditer(text))
    return Extraction(numbers[-1].group()) if numbers else Extraction(None, "no number")


def answer_after(text: str, marker: str) -> Extraction:
    """What follows the last `marker` on its line, or on the next line with something on it."""
    at = text.casefold().rfind(marker.casefold())
    lines = text[at + len(marker) :].split("\n") if at >= 0 else []
    for line in lines:
        answer = line.strip(" \t\r*_`").removesuffix(".").strip(" \t\r*_`")
        if answer:
            return last_box(answer) if _BOX.match(answer.lstrip("$ ")) else Extraction(answer)
    return Extraction(None, f"nothing after {marker!r}" if lines else f"no {marker!r}")


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
