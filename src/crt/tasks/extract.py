"""Where the answer stands: the last box after the thinking, and nowhere else."""

import re
from typing import NamedTuple

OPEN_THINKING = "<think>"
CLOSE_THINKING = "</think>"

BLANK = " \t\r\n"  # a form feed is not: it is what is left of a spoilt "\\frac"

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_MARK = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*\{|\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"[^\s$]+")


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
    """The last outermost box; one that is begun and not closed is no answer, nor is an older one.

    One pass over the braces, so that a megabyte of them takes a moment, not an hour.
    """
    first = _BOX.search(text)
    if first is None:
        return Extraction(None, "no box")
    open_groups: list[int] = []  # where a box's content starts; -1 for any other group
    best = (-1, -1)
    for mark in _MARK.finditer(text, first.start()):
        token = mark.group()
        if token.endswith("{") and token != "\\{":
            open_groups.append(mark.end() if len(token) > 1 else -1)
        elif token == "}" and open_groups:
            start = open_groups.pop()
            best = (start, mark.start()) if start >= 0 else best
    return _chosen(text, best, max(open_groups, default=-1))


def _chosen(text: str, best: tuple[int, int], unclosed: int) -> Extraction:
    """The box that closed last, unless something was boxed later."""
    start, end = best
    bare = _last_bare(text, max(end, 0))
    if bare is not None:
        return Extraction(bare)
    if unclosed > end:
        return Extraction(None, "the last box is not closed")
    content = text[start:end].strip(BLANK) if start >= 0 else ""
    return Extraction(content) if content else Extraction(None, "the box is empty")


def _last_bare(text: str, after: int) -> str | None:
    r"""The last `\boxed 5`, a box without braces, if it comes after the last one with braces."""
    found = None
    for box in _BOX.finditer(text, after):
        if text[box.end() : box.end() + 1] != "{":
            word = _BARE.match(text, box.end())
            found = word.group().rstrip(".,;:") if word else found
    return found or None
