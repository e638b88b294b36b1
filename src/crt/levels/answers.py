"""Token ids into OpenAI's answers as they arrive: thinking apart from the answer, cut at stops."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tokenizers.decoders import DecodeStream

from crt.data.prompts import opens_thinking
from crt.grading.extract import CLOSE_THINKING, OPEN_THINKING
from crt.sampling.models import ModelFiles

Phase = Literal["start", "thinking", "between", "answer"]
TOKEN_FIELDS = ("token_ids", "prompt_token_ids")  # where vLLM and the local engine return tokens
TEXT_FIELDS = ("content", "reasoning", "reasoning_content")  # of a message: rebuilt from tokens
PROMPT_TAIL = 16  # tokens at the end of a prompt in which a template opens thinking


@dataclass(frozen=True)
class Vocabulary:
    """A level's tokenizer, and the tokens that end a response."""

    tokenizer: Any  # of the tokenizers library, which decodes in pieces
    eos_token_ids: frozenset[int]


def vocabulary_of(files: ModelFiles) -> Vocabulary:
    tokenizer = files.tokenizer._tokenizer  # pyright: ignore[reportAttributeAccessIssue]
    return Vocabulary(tokenizer, frozenset(files.eos_token_ids))


@dataclass
class Piece:
    """Text that became readable: thinking, answer, or both."""

    reasoning: str = ""
    content: str = ""

    def __add__(self, other: "Piece") -> "Piece":
        return Piece(self.reasoning + other.reasoning, self.content + other.content)


@dataclass
class ReasoningSplitter:
    """One response while it is read.

    `phase` is `thinking` where the prompt left `<think>` open, `start` where a response may open it
    itself, and `answer` where nothing is split, as in a plain completion.
    """

    vocabulary: Vocabulary
    phase: Phase = "start"
    stops: tuple[str, ...] = ()  # texts that end the answer; in thinking they mean nothing
    tokens: int = 0
    reasoning_tokens: int = 0
    finish_reason: str | None = None  # also when a stop has come before the server's own end
    _pending: str = ""  # decoded, but it may still turn out to be a mark or a stop
    _thought: bool = False  # some thinking was returned
    _decoder: DecodeStream = field(default_factory=lambda: DecodeStream(skip_special_tokens=False))

    def feed(self, token_ids: Sequence[int], finish_reason: str | None = None) -> Piece:
        """What more tokens say; the token that ends a response counts, and is not text."""
        piece = Piece()
        for token_id in token_ids:
            if self.finish_reason:
                return piece  # a stop has ended it
            self.tokens += 1
            self.reasoning_tokens += self.phase == "thinking"
            if token_id not in self.vocabulary.eos_token_ids:
                self._pending += self._decoder.step(self.vocabulary.tokenizer, token_id) or ""
            piece += self._readable(last=False)
        if finish_reason and not self.finish_reason:
            piece += self._readable(last=True)
            self.finish_reason = self.finish_reason or finish_reason
        return piece

    def _readable(self, last: bool) -> Piece:
        piece = Piece()
        if self.phase == "start":
            self._read_start(last)
        if self.phase == "thinking":
            self._read_thinking(piece, last)
        if self.phase == "between" and (text := self._pending.lstrip("\n")):
            self.phase, self._pending = "answer", text
        if self.phase == "answer":
            self._read_answer(piece, last)
        return piece

    def _read_start(self, last: bool) -> None:
        """Does the response open its thinking itself?"""
        text = self._pending.lstrip()
        if text.startswith(OPEN_THINKING):
            self.phase, self._pending = "thinking", text.removeprefix(OPEN_THINKING)
            self.reasoning_tokens = self.tokens
        elif last or not OPEN_THINKING.startswith(text):
            self.phase = "between"

    def _read_thinking(self, piece: Piece, last: bool) -> None:
        """Thinking without the line breaks around it, up to the mark that closes it."""
        pending = self._pending if self._thought else self._pending.lstrip("\n")
        thinking, closed, rest = pending.partition(CLOSE_THINKING)
        if closed:
            self.phase, self._pending = "between", rest
            piece.reasoning = thinking.rstrip()
            return
        unsure = 0 if last else overlap(thinking, CLOSE_THINKING)
        piece.reasoning = thinking[: len(thinking) - unsure].rstrip()
        self._pending = thinking[len(piece.reasoning) :]
        self._thought = self._thought or bool(piece.reasoning)

    def _read_answer(self, piece: Piece, last: bool) -> None:
        """The answer, as far as no stop can have begun."""
        matches = [at for at in map(self._pending.find, self.stops) if at >= 0]
        unsure = 0 if last else max((overlap(self._pending, s) for s in self.stops), default=0)
        length = min(matches) if matches else len(self._pending) - unsure
        piece.content, self._pending = self._pending[:length], self._pending[length:]
        if matches:
            self.finish_reason = "stop"


def overlap(text: str, mark: str) -> int:
    """How many letters at the end of the text are the beginning of the mark."""
    sizes = range(min(len(text), len(mark) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(mark[:size])), 0)


class AnswerReader:
    """An answer, whole or in chunks, rebuilt from the token ids that an engine returns.

    vLLM's own parsers have to be named for every family of models, and count no thinking that the
    chat template opened. The tokens say both, whichever engine they come from.
    """

    def __init__(
        self, vocabulary: Vocabulary, stops: tuple[str, ...], phase: Phase = "start"
    ) -> None:
        self.vocabulary, self.stops, self.phase = vocabulary, stops, phase
        self.splitters: dict[int, ReasoningSplitter] = {}

    def read(self, chunk: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer, or a chunk of it, with thinking apart; None if nothing in it is new."""
        if prompt := chunk.get("prompt_token_ids"):
            tokenizer = self.vocabulary.tokenizer
            tail = tokenizer.decode(prompt[-PROMPT_TAIL:], skip_special_tokens=False)
            self.phase = "thinking" if opens_thinking(tail) else "start"
        choices = [new for old in chunk.get("choices") or [] if (new := self._choice(old))]
        usage = chunk.get("usage")
        if not choices and not usage:
            return None
        if usage:
            thinking = sum(splitter.reasoning_tokens for splitter in self.splitters.values())
            details = usage.get("completion_tokens_details") or {}
            details = {**details, "reasoning_tokens": thinking}
            usage = {"usage": {**usage, "completion_tokens_details": details}}
        return {**_without(chunk, TOKEN_FIELDS), "choices": choices, **(usage or {})}

    def _choice(self, choice: Mapping[str, Any]) -> dict[str, Any] | None:
        place = next((name for name in ("delta", "text") if name in choice), "message")
        message = choice.get(place) or {}
        splitter = self.splitters.setdefault(
            choice.get("index", 0), ReasoningSplitter(self.vocabulary, self.phase, self.stops)
        )
        token_ids = choice.get("token_ids")
        if token_ids is None and place != "text" and message.get("content"):
            return dict(choice)  # a server that returns no tokens: as it is
        if splitter.finish_reason:
            return None  # the engine goes on; here it has ended
        piece = splitter.feed(token_ids or [], choice.get("finish_reason"))
        new: Any = piece.content
        if place != "text":
            texts = {"reasoning_content": piece.reasoning, "content": piece.content}
            texts = {name: text for name, text in texts.items() if text}
            empty = {"content": ""} if "role" in message else {}
            new = _without(message, TEXT_FIELDS) | empty | texts
        if not new and not splitter.finish_reason:
            return None
        rest = _without(choice, TOKEN_FIELDS)
        return {**rest, place: new, "finish_reason": splitter.finish_reason}


def _without(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
