"""Tokens into text as they come: thinking apart from the answer, cut at the texts that end it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from tokenizers.decoders import DecodeStream

from crt.grading.extract import CLOSE_THINKING, OPEN_THINKING

Phase = Literal["start", "thinking", "between", "answer"]


@dataclass
class Piece:
    """What became readable: thinking, answer, or both."""

    reasoning: str = ""
    content: str = ""

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content)


@dataclass
class Reader:
    """One response being read.

    `phase` is `thinking` where the prompt left `<think>` open, `start` where a response may open it
    itself, and `answer` where nothing is taken apart, as in a plain completion.
    """

    tokenizer: Any  # of the tokenizers library
    phase: Phase = "start"
    stops: tuple[str, ...] = ()  # texts that end the answer; in thinking they mean nothing
    tokens: int = 0
    reasoning_tokens: int = 0
    stopped: bool = False
    _held: str = ""  # decoded, but it may still turn out to be a mark or a stop
    _thought: bool = False  # something of the thinking was told
    _decoder: DecodeStream = field(default_factory=lambda: DecodeStream(skip_special_tokens=False))

    def feed(self, token: int, end: bool) -> Piece:
        """One more token; the token that ends a response counts, and is not text."""
        self.tokens += 1
        self.reasoning_tokens += self.phase == "thinking"
        if not end:
            self._held += self._decoder.step(self.tokenizer, token) or ""
        return self._readable(last=False)

    def close(self) -> Piece:
        """What was held back, now that nothing follows."""
        return self._readable(last=True)

    def _readable(self, last: bool) -> Piece:
        piece = Piece()
        if self.phase == "start":
            self._start(last)
        if self.phase == "thinking":
            self._think(piece, last)
        if self.phase == "between" and (said := self._held.lstrip("\n")):
            self.phase, self._held = "answer", said
        if self.phase == "answer" and not self.stopped:
            self._answer(piece, last)
        return piece

    def _start(self, last: bool) -> None:
        """Does the response open its thinking itself?"""
        said = self._held.lstrip()
        if said.startswith(OPEN_THINKING):
            self.phase, self._held = "thinking", said.removeprefix(OPEN_THINKING)
            self.reasoning_tokens = self.tokens
        elif last or not OPEN_THINKING.startswith(said):
            self.phase = "between"

    def _think(self, piece: Piece, last: bool) -> None:
        """Thinking without the line breaks around it, up to the mark that closes it."""
        held = self._held if self._thought else self._held.lstrip("\n")
        thought, closed, rest = held.partition(CLOSE_THINKING)
        if closed:
            self.phase, self._held = "between", rest
            piece.reasoning = thought.rstrip()
            return
        unsure = 0 if last else overlap(thought, CLOSE_THINKING)
        piece.reasoning = thought[: len(thought) - unsure].rstrip()
        self._held = thought[len(piece.reasoning) :]
        self._thought = self._thought or bool(piece.reasoning)

    def _answer(self, piece: Piece, last: bool) -> None:
        """The answer, as far as no stop can have begun."""
        met = [at for at in map(self._held.find, self.stops) if at >= 0]
        unsure = 0 if last else max((overlap(self._held, stop) for stop in self.stops), default=0)
        self.stopped = bool(met)
        length = min(met) if met else len(self._held) - unsure
        piece.content, self._held = self._held[:length], self._held[length:]


def overlap(text: str, mark: str) -> int:
    """How many letters at the end of the text are the beginning of the mark."""
    for size in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:size]):
            return size
    return 0
