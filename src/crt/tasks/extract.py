"""Where the answer stands: the last box after the thinking, and nowhere else."""

import re
from typing import NamedTuple

OPEN_THINKING = "<think>"
CLOSE_THINKING = "</think>"

BLANK = " \t\r\n"  # a form feed is not: it is what is left of a spoilt "\\frac"

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_MARK = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*\{|\\.|[{}]", re.DOTALL)
_SPACING = r"(?:\s|\$|\\[()\[\],;:! ]|\\q?quad\b)*+"
_AND = r"(?:and|or|\\text\s*\{\s*,?\s*(?:and|or)\s*\})"
_BETWEEN = re.compile(rf"{_SPACING}(?:,{_SPACING}{_AND}?|{_AND}){_SPACING}")
_BARE = re.compile(r"[^\s$]+")


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
    said = spoken(text, thinking_opened)
    return Extraction(None, "thinking is not closed") if said is None else last_box(said)


def spoken(text: str, thinking_opened: bool = False) -> str | None:
    """What comes after the thinking, or None when the thinking never ends."""
    _, close, said = text.rpartition(CLOSE_THINKING)
    if OPEN_THINKING in said or (thinking_opened and not close):
        return None
    return said


def last_box(text: str) -> Extraction:
    """The last outermost box, with those that stand beside it in one enumeration.

    A box that is begun and not closed is no answer, nor is an older one. One pass over the braces,
    so that a megabyte of them takes a moment, not an hour.
    """
    first = _BOX.search(text)
    if first is None:
        return Extraction(None, "no box")
    open_groups: list[tuple[int, int]] = []  # where a box and its content start; (-1, -1) others
    boxes: list[Box] = []
    for mark in _MARK.finditer(text, first.start()):
        token = mark.group()
        if token.endswith("{") and token != "\\{":
            open_groups.append(mark.span() if len(token) > 1 else (-1, -1))
        elif token == "}" and open_groups:
            begin, start = open_groups.pop()
            boxes += [Box(begin, start, mark.start())] if start >= 0 else []
    unclosed = max((start for _, start in open_groups), default=-1)
    return _chosen(text, boxes, unclosed)


def _chosen(text: str, boxes: list[Box], unclosed: int) -> Extraction:
    """The box that closed last and its neighbours, unless something was boxed later."""
    end = boxes[-1].end if boxes else -1
    bare = _last_bare(text, max(end, 0))
    if bare is not None:
        return Extraction(bare)
    if unclosed > end:
        return Extraction(None, "the last box is not closed")
    contents = [text[box.start : box.end].strip(BLANK) for box in _enumeration(text, boxes)]
    if not contents or not contents[-1]:
        return Extraction(None, "the box is empty")
    return Extraction(", ".join(contents))


def _enumeration(text: str, boxes: list[Box]) -> list[Box]:
    """The last box and those before it with only commas, "and" or "or" between them.

    So two boxed answers are two answers, and `\\boxed{5} or \\boxed{6}` is no way to have both.
    """
    chain = boxes[-1:]
    for box in reversed(boxes[:-1]):
        after = chain[-1].begin
        if box.end > after or not _BETWEEN.fullmatch(text, box.end + 1, after):
            break
        chain.append(box)
    return chain[::-1]


def _last_bare(text: str, after: int) -> str | None:
    r"""The last `\boxed 5`, a box without braces, if it comes after the last one with braces."""
    found = None
    for box in _BOX.finditer(text, after):
        if text[box.end() : box.end() + 1] != "{":
            word = _BARE.match(text, box.end())
            found = word.group().rstrip(".,;:") if word else found
    return found or None
