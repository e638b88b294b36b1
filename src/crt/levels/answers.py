"""Token ids into OpenAI's answers as they arrive: thinking apart from the answer, cut at stops."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tokenizers.decoders import DecodeStream

from crt.data.prompts import opens_thinking
from crt.grading.extract import CLOSE_THINKING, OPEN_THINKING
from crt.sampling.models import ModelFiles

Phase = Literal["start", "thinking", "answer"]
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


class ReasoningSplitter:
    """One response while it is read.

    `phase` is `thinking` where the prompt left `<think>` open, `start` where a response may open it
    itself, and `answer` where nothing is split, as in a plain completion. `stops` are texts that
    end the answer; in thinking they mean nothing.
    """

    def __init__(
        self, vocabulary: Vocabulary, phase: Phase = "start", stops: tuple[str, ...] = ()
    ) -> None:
        self.vocabulary, self.phase, self.stops = vocabulary, phase, stops
        self.tokens = self.reasoning_tokens = 0
        self.finish_reason: str | None = None  # also when a stop comes before the server's own end
        self._decoder = DecodeStream(skip_special_tokens=False)
        self._text = ""  # all that was decoded
        self._closed = False
        self.texts = ("", "")  # the thinking and the answer that were returned

    def feed(self, token_ids: Sequence[int], finish_reason: str | None = None) -> tuple[str, str]:
        """New thinking and answer; the token that ends a response counts, and is not text."""
        thinking, answer = before = self.texts
        for token_id in token_ids:
            if self.finish_reason:
                break  # a stop has ended it
            self.tokens += 1
            if token_id not in self.vocabulary.eos_token_ids:
                self._text += self._decoder.step(self.vocabulary.tokenizer, token_id) or ""
            thinking, answer = self._split(last=False)
        if finish_reason and not self.finish_reason:
            thinking, answer = self._split(last=True)
            self.finish_reason = self.finish_reason or finish_reason
        self.texts = thinking, answer
        return thinking[len(before[0]) :], answer[len(before[1]) :]

    def _split(self, last: bool) -> tuple[str, str]:
        """Thinking and answer so far, without what may still turn out to be a mark or a stop."""
        text, start = self._text, self._text.lstrip()
        may_open = start != OPEN_THINKING and OPEN_THINKING.startswith(start)
        if self.phase == "start" and may_open and not last:
            return "", ""
        if self.phase == "start" and start.startswith(OPEN_THINKING):
            self.phase, self._text = "thinking", start.removeprefix(OPEN_THINKING)
            text = self._text
        if self.phase != "thinking":
            return "", self._cut(text if self.phase == "answer" else text.lstrip("\n"), last)
        thinking, closed, answer = text.partition(CLOSE_THINKING)
        if not closed:
            self.reasoning_tokens = self.tokens
            thinking = thinking[: len(thinking) - (0 if last else overlap(text, CLOSE_THINKING))]
        elif not self._closed:
            self._closed, self.reasoning_tokens = True, self.tokens
        return thinking.strip("\n").rstrip(), self._cut(answer.lstrip("\n"), last)

    def _cut(self, answer: str, last: bool) -> str:
        """The answer up to the first stop, and as far as no stop can have begun."""
        matches = [at for at in map(answer.find, self.stops) if at >= 0]
        if matches:
            self.finish_reason = "stop"
            return answer[: min(matches)]
        unsure = 0 if last else max((overlap(answer, stop) for stop in self.stops), default=0)
        return answer[: len(answer) - unsure]


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
        self.vocabulary, self.stops = vocabulary, stops
        self.phase: Phase = phase
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
        thinking, new = splitter.feed(token_ids or [], choice.get("finish_reason"))
        if place != "text":
            texts = {"reasoning_content": thinking, "content": new}
            texts = {name: text for name, text in texts.items() if text}
            empty = {"content": ""} if "role" in message else {}
            new = _without(message, TEXT_FIELDS) | empty | texts
        if not new and not splitter.finish_reason:
            return None
        rest = _without(choice, TOKEN_FIELDS)
        return {**rest, place: new, "finish_reason": splitter.finish_reason}


class WordRestorer:
    """An answer, whole or in chunks, with words put back that the model was not asked in.

    `restore` looks at whole words, so a word is held back until its end has come.
    """

    def __init__(self, restore: Callable[[str], str]) -> None:
        self.restore = restore
        self._begun: dict[tuple[int, str], str] = {}  # choice and field → a word without its end

    def read(self, chunk: Mapping[str, Any]) -> dict[str, Any]:
        return {**chunk, "choices": [self._choice(old) for old in chunk.get("choices") or []]}

    def _choice(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        place = "delta" if "delta" in choice else "message"
        message = dict(choice.get(place) or {})
        ended = bool(choice.get("finish_reason"))
        for name in TEXT_FIELDS:
            key = choice.get("index", 0), name
            text = self._begun.pop(key, "") + (message.get(name) or "")
            if not ended and not (name != "content" and message.get("content")):
                end = max(text.rfind(" "), text.rfind("\n")) + 1
                text, self._begun[key] = text[:end], text[end:]
            if text or message.get(name):
                message[name] = self.restore(text)
        return {**choice, place: message}


def _without(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
