"""Thinking apart from the answer in what vLLM says, read from the tokens that it returns.

Its own parsers have to be named for every family of models, and count no thinking that the chat
template opened. The tokens tell both, as they do in the local engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crt.data.prompts import opens_thinking
from crt.serve.reading import Phase, Piece, Reader

ASKS = {"return_token_ids": True}  # what a server must be asked to say
TOKENS = ("token_ids", "prompt_token_ids")  # where it says it
SAYS = ("content", "reasoning", "reasoning_content")  # of a message: what is put anew
TAIL = 16  # tokens at the end of a prompt in which a template opens thinking


@dataclass(frozen=True)
class Words:
    """A level's tokenizer, and the tokens that end a response."""

    tokenizer: Any  # of the tokenizers library
    ends: frozenset[int]


class Apart:
    """One answer while it is read, with a reader for each of its choices."""

    def __init__(self, words: Words, stops: tuple[str, ...]) -> None:
        self.words, self.stops = words, stops
        self.phase: Phase = "start"
        self.readers: dict[int, Reader] = {}

    def read(self, told: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer, or a chunk of it, with thinking apart; None if nothing in it can be told."""
        self._prompt(told.get("prompt_token_ids"))
        choices = [new for each in told.get("choices") or [] if (new := self._choice(each))]
        usage = self._usage(told.get("usage"))
        if not choices and not usage:
            return None
        rest = {name: value for name, value in told.items() if name not in TOKENS}
        return {**rest, "choices": choices, **({"usage": usage} if "usage" in told else {})}

    def _prompt(self, tokens: list[int] | None) -> None:
        if tokens:
            tail = self.words.tokenizer.decode(tokens[-TAIL:], skip_special_tokens=False)
            self.phase = "thinking" if opens_thinking(tail) else "start"

    def _choice(self, told: Mapping[str, Any]) -> dict[str, Any] | None:
        place = "delta" if "delta" in told else "message"
        number, before = told.get("index", 0), told.get(place) or {}
        reader = self.readers.setdefault(
            number, Reader(self.words.tokenizer, self.phase, self.stops)
        )
        tokens = told.get("token_ids")
        if tokens is None and before.get("content"):
            return dict(told)  # a server that keeps its tokens to itself: as it says it
        if reader.stopped:
            return None  # it goes on there; here it has ended
        piece = self._fed(reader, tokens or [], bool(told.get("finish_reason")))
        said = {name: value for name, value in before.items() if name not in SAYS}
        said |= {"reasoning_content": piece.reasoning} if piece.reasoning else {}
        said |= {"content": piece.content} if piece.content or "role" in before else {}
        finish = "stop" if reader.stopped else told.get("finish_reason")
        if not said and not finish:
            return None
        rest = {name: value for name, value in told.items() if name not in TOKENS}
        return {**rest, place: said, "finish_reason": finish}

    def _fed(self, reader: Reader, tokens: list[int], last: bool) -> Piece:
        whole = Piece()
        pieces = [reader.feed(token, token in self.words.ends) for token in tokens]
        if last and not reader.stopped:
            pieces.append(reader.close())
        for piece in pieces:
            whole.reasoning += piece.reasoning
            whole.content += piece.content
        return whole

    def _usage(self, told: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if not told:
            return None
        thought = sum(reader.reasoning_tokens for reader in self.readers.values())
        details = {**(told.get("completion_tokens_details") or {}), "reasoning_tokens": thought}
        return {**told, "completion_tokens_details": details}
