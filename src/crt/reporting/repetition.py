"""What a response says again and where it doubts itself: text → pieces, to be shown and counted."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

Kind = Literal["", "repeat", "doubt"]
KINDS: tuple[Kind, ...] = ("", "repeat", "doubt")
FEWEST_WORDS = 3  # a shorter sentence is no repetition: "So.", "Yes."

_DOUBT = re.compile(
    r"\b(?:wait|hmm+|hold on|alternatively|actually|on second thought|oh no|hang on"
    r"|let(?:'s| me| us) (?:just |quickly )?(?:double[- ]?check|re-?check|check|re-?verify|verify"
    r"|re-?calculate|re-?compute|re-?think|re-?read|re-?consider|re-?examine|confirm|make sure"
    r"|think again|try again|go over|see if|start over)(?: (?:this|that|it|my work))?"
    r"(?: (?:once more|again|carefully))*"
    r"|double[- ]?check(?:ing)?|just to (?:be (?:sure|safe)|make sure|confirm)"
    r"|to (?:be (?:sure|safe)|make sure)|am i (?:sure|missing)|is (?:that|this) (?:right|correct)"
    r"|but let me|another way)\b",
    re.IGNORECASE,
)
_BREAK = re.compile(r"(?<=[.!?])\s+|\n+")
_FORMULA = re.compile(
    r"(?:\d|[.,](?=\d)|\b[A-Za-z]\b|\\(?:times|cdot|div|frac|sqrt)|[+\-−–×*·/÷^(){}%$€£ =])+"
)
_SIGNS = str.maketrans({"−": "-", "–": "-", "·": "*", "×": "*", "÷": "/", "’": "'"})


class Piece(NamedTuple):
    """A stretch of a response: new, said before, or a sign of doubt."""

    kind: Kind
    text: str


def pieces(text: str) -> list[Piece]:
    """The whole text, in order; together the pieces are the text again."""
    paint = bytearray(len(text))
    for start, end in _repeats(text):
        paint[start:end] = b"\1" * (end - start)
    for doubt in _DOUBT.finditer(text):
        start, end = doubt.span()
        paint[start:end] = b"\2" * (end - start)
    parts: list[Piece] = []
    place = 0
    for colour, run in groupby(paint):
        length = sum(1 for _ in run)
        parts.append(Piece(KINDS[colour], text[place : place + length]))
        place += length
    return parts


def redundant_share(parts: Sequence[Piece]) -> float:
    """Share of the characters that are repeats or doubts; 0 for an empty text."""
    total = sum(len(part.text) for part in parts)
    return sum(len(part.text) for part in parts if part.kind) / total if total else 0.0


def _repeats(text: str) -> Iterator[tuple[int, int]]:
    """Sentences said before, and in new sentences the equations said before."""
    sentences: set[str] = set()
    equations: set[str] = set()
    for start, end in _sentences(text):
        sentence = _plain(text[start:end])
        formulas = list(_equations(text[start:end]))
        substantial = len(sentence.split()) >= FEWEST_WORDS or bool(formulas)
        if substantial and sentence in sentences:
            yield start, end
        else:
            yield from ((start + a, start + b) for a, b, plain in formulas if plain in equations)
        sentences.add(sentence)
        equations |= {plain for _, _, plain in formulas}


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    place = 0
    for gap in _BREAK.finditer(text):
        if gap.start() > place:
            yield place, gap.start()
        place = gap.end()
    if place < len(text):
        yield place, len(text)


def _equations(sentence: str) -> Iterator[tuple[int, int, str]]:
    """Where equations stand, and each without its spaces; a = b = c is two."""
    for formula in _FORMULA.finditer(sentence):
        sides = formula[0].split("=")
        start = formula.start()
        for left, right in pairwise(sides):
            end = start + len(left) + 1 + len(right.rstrip())
            begin = start + len(left) - len(left.lstrip())
            if left.strip() and right.strip():
                plain = re.sub(r"[\s$]", "", sentence[begin:end]).translate(_SIGNS)
                yield begin, end, plain
            start += len(left) + 1


def _plain(sentence: str) -> str:
    """Two sentences with the same words are the same, whatever doubt introduces them."""
    words = _DOUBT.sub(" ", sentence.translate(_SIGNS).casefold()) or sentence
    return " ".join(re.findall(r"[^\s,.;:!?$]+", words)) or sentence.casefold()
