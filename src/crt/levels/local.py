"""The local engine: the weights of all levels in this process, each with a batch."""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crt.data.prompts import Template, prepare, render_turns
from crt.errors import CrtError
from crt.levels.batch import ContinuousBatch, Generation
from crt.levels.family import Family, level_files
from crt.levels.options import ServeOptions
from crt.levels.reasoning_splitter import Phase, Piece, ReasoningSplitter, vocabulary_of
from crt.levels.requests import (
    ApiError,
    Call,
    ChatRequest,
    Chunks,
    TextRequest,
    internal_error,
    parse_request,
    queue_full,
)
from crt.sampling.models import LoadedModel, cache_bytes, with_weights

log = logging.getLogger("crt.levels")
CACHE_BYTES = 4 * 2**30  # of keys and values of all levels together
MOST_POSITIONS = 8192
PREFILL_TOKENS = 2048  # read between two tokens of the others, at most, so that streams don't stall


class BatchLoop:
    """Keeps the batch of one model full from a bounded queue, as long as there is work.

    All but the model's own steps runs in the event loop. The events of a response are
    `(index, new token ids, finish reason)`, or an ApiError.
    """

    def __init__(self, batch: ContinuousBatch, queue: int) -> None:
        self.batch, self.queue = batch, queue
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []
        self._thread = ThreadPoolExecutor(1)
        self._task: asyncio.Task[None] | None = None

    @property
    def load(self) -> tuple[int, int]:
        """Responses being sampled, responses in the queue."""
        return len(_active(self._running)), len(_active(self._waiting))

    def submit(self, generations: Sequence[Generation]) -> None:
        """Queues all of them or none."""
        if sum(self.load) + len(generations) > self.batch.batch_size + self.queue:
            raise queue_full()
        self._waiting.extend(generations)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """Those who have ended leave, others join, and every response gets a token."""
        loop = asyncio.get_running_loop()
        while True:
            self._running = _active(self._running)
            joining = self._take_waiting()
            self._running += joining
            if not self._running:
                return
            try:
                await loop.run_in_executor(self._thread, self._step, joining)
            except Exception:  # whatever it was, those who wait must hear of it
                log.exception("the model failed; its requests are answered with an error")
                self.batch.rows.clear()
                for generation in self._running:
                    generation.cancel()
                    generation.events.put_nowait(internal_error())
            else:
                for generation in self._running:
                    new_tokens = generation.take_new_tokens()
                    event = (generation.index, new_tokens, generation.finish_reason)
                    generation.events.put_nowait(event)

    def _step(self, joining: Sequence[Generation]) -> None:
        self.batch.remove_finished()
        if joining:
            self.batch.admit(joining)
            self.batch.remove_finished()
        if self.batch.rows:
            self.batch.step()

    def _take_waiting(self) -> list[Generation]:
        """Who joins now: as many as there are rows, and time to read their prompts."""
        joining: list[Generation] = []
        longest = 0
        while self._waiting and len(self._running) + len(joining) < self.batch.batch_size:
            longest = max(longest, len(self._waiting[0].prompt_ids))
            if joining and longest * (len(joining) + 1) > PREFILL_TOKENS:
                break
            joining += _active([self._waiting.popleft()])  # it may have been cancelled meanwhile
        return joining


def _active(generations: Iterable[Generation]) -> list[Generation]:
    return [generation for generation in generations if generation.finish_reason is None]


@dataclass(frozen=True)
class LocalLevel:
    loaded: LoadedModel
    template: Template | None  # None for a model without chat template
    batches: BatchLoop

    def chat_prompt(self, request: ChatRequest) -> list[tuple[list[int], Phase]]:
        """Token ids of a conversation, and whether its template opens the thinking."""
        template = self.template
        if template is None:
            raise ApiError(400, "This model has no chat template: use /v1/completions.")
        thinking = request.chat_template_kwargs.enable_thinking
        if thinking is not None:
            settings = replace(template.settings, enable_thinking=thinking)
            template = replace(template, settings=settings)
        try:
            prompt = render_turns(request.turns, template)
        except CrtError as error:
            raise ApiError(400, f"The messages cannot be used: {error}", param="messages") from None
        return [(list(prompt.token_ids), "thinking" if prompt.opens_thinking else "start")]

    def text_prompts(self, request: TextRequest) -> list[tuple[list[int], Phase]]:
        """Token ids of plain texts, in which nothing is split."""
        size = len(self.loaded.tokenizer)
        prompts: list[tuple[list[int], Phase]] = []
        for prompt in request.prompts:
            ids = self.loaded.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
            if not all(0 <= token < size for token in ids):
                raise ApiError(400, f"A token is not from 0 to {size - 1}.", param="prompt")
            prompts.append((ids, "answer"))
        return prompts


class LocalEngine:
    def __init__(self, family: Family, levels: dict[str, LocalLevel]) -> None:
        self.family, self.levels = family, levels

    async def answer(self, call: Call) -> Chunks:
        """The whole answer, or its chunks with the usage at the end."""
        level = self.levels[call.level.name]
        if call.kind == "chat":
            request = parse_request(ChatRequest, call.body)
            prompts = await asyncio.to_thread(level.chat_prompt, request)
        else:
            request = parse_request(TextRequest, call.body)
            prompts = await asyncio.to_thread(level.text_prompts, request)
        seed = secrets.randbits(48) if request.seed is None else request.seed
        usual, capacity = self.family.measured.max_tokens, level.batches.batch.capacity
        vocabulary = vocabulary_of(level.loaded.files)
        events: asyncio.Queue[Any] = asyncio.Queue()
        generations: list[Generation] = []
        splitters: list[ReasoningSplitter] = []
        for prompt_ids, phase in prompts:
            limit = fit_tokens(len(prompt_ids), request.limit, capacity, usual)
            for _ in range(request.n):
                index = len(generations)
                sampling = (request.temperature, request.top_p, seed * 1_000_003 + index)
                generations.append(Generation(prompt_ids, limit, *sampling, index, events))
                splitters.append(ReasoningSplitter(vocabulary, phase, request.stops))
        level.batches.submit(generations)
        answer = Answer(call, splitters, sum(len(prompt_ids) for prompt_ids, _ in prompts))
        async with aclosing(read_pieces(generations, splitters)) as pieces:
            if not call.stream:
                yield await answer.whole(pieces)
                return
            async for chunk in answer.chunks(pieces, request.stream_options.continuous_usage_stats):
                yield chunk

    def load(self) -> dict[str, tuple[int, int]]:
        """Level → responses being sampled, responses in the queue."""
        return {name: level.batches.load for name, level in self.levels.items()}

    async def health(self) -> dict[str, str]:
        """A model that fails answers with errors, and goes on."""
        return dict.fromkeys(self.levels, "ok")

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()


Pieces = AsyncGenerator[dict[int, Piece], None]  # by the index of their choice


async def read_pieces(
    generations: Sequence[Generation], splitters: Sequence[ReasoningSplitter]
) -> Pieces:
    """What becomes readable as it is sampled; who stops reading frees the places."""
    events = generations[0].events
    unfinished = set(range(len(generations)))
    try:
        while unfinished:
            pieces: dict[int, Piece] = {}
            new = [await events.get()]
            while not events.empty():
                new.append(events.get_nowait())
            for event in new:
                if isinstance(event, ApiError):
                    raise event
                index, token_ids, finish_reason = event
                if index in unfinished:
                    piece = splitters[index].feed(token_ids, finish_reason)
                    pieces[index] = pieces.get(index, Piece()) + piece
                    if splitters[index].finish_reason:
                        generations[index].cancel()  # it may go on after a stop
                        unfinished.remove(index)
            yield pieces
    finally:
        for generation in generations:
            generation.cancel()


@dataclass(frozen=True)
class Answer:
    """An answer in OpenAI's form."""

    call: Call
    splitters: Sequence[ReasoningSplitter]
    prompt_tokens: int

    async def chunks(self, pieces: Pieces, running_usage: bool | None) -> Chunks:
        """A chunk whenever there is new text, and one with the usage at the end."""
        head = self._head()
        if self.call.kind == "chat":
            opening = {"delta": {"role": "assistant", "content": ""}}
            indices = range(len(self.splitters))
            yield {**head, "choices": [self._choice(index, opening) for index in indices]}
        async for new in pieces:
            choices = [
                self._choice(index, {"delta": piece.delta, "text": piece.content})
                for index, piece in new.items()
                if piece.delta or self.splitters[index].finish_reason
            ]
            if choices:
                usage = {"usage": self._usage()} if running_usage else {}
                yield {**head, "choices": choices, **usage}
        yield {**head, "choices": [], "usage": self._usage()}

    async def whole(self, pieces: Pieces) -> dict[str, Any]:
        total = [Piece() for _ in self.splitters]
        async for new in pieces:
            for index, piece in new.items():
                total[index] += piece
        empty = {"role": "assistant", "content": "", "refusal": None}
        choices = [
            self._choice(index, {"message": {**empty, **piece.delta}, "text": piece.content})
            for index, piece in enumerate(total)
        ]
        return {**self._head(), "choices": choices, "usage": self._usage()}

    def _head(self) -> dict[str, Any]:
        chat, suffix = self.call.kind == "chat", ".chunk" if self.call.stream else ""
        return {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
            "object": f"chat.completion{suffix}" if chat else "text_completion",
            "created": int(time.time()),
            "model": self.call.model,
            "system_fingerprint": f"fp_{self.call.level.hash[:12]}",
        }

    def _choice(self, index: int, forms: dict[str, Any]) -> dict[str, Any]:
        """One response; of its forms, the one of this kind of answer."""
        form = "text" if self.call.kind == "text" else "delta" if self.call.stream else "message"
        finish_reason = self.splitters[index].finish_reason
        return {"index": index, form: forms[form], "logprobs": None, "finish_reason": finish_reason}

    def _usage(self) -> dict[str, Any]:
        """Tokens so far; the token that ends a response counts."""
        completion = sum(splitter.tokens for splitter in self.splitters)
        reasoning = sum(splitter.reasoning_tokens for splitter in self.splitters)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }


def fit_tokens(prompt: int, limit: int | None, capacity: int, usual: int) -> int:
    """Tokens that a response may have; what cannot fit is refused."""
    if prompt == 0:
        raise ApiError(400, "The prompt is empty.", param="prompt")
    if prompt + (limit or 1) > capacity:
        wanted = "" if limit is None else f" and {limit} more for the answer"
        raise ApiError(
            400,
            f"This model has room for {capacity} tokens; the prompt takes {prompt}{wanted}.",
            param="messages" if limit is None else "max_tokens",
            code="context_length_exceeded",
        )
    return min(usual, capacity - prompt) if limit is None else limit


def load_local_engine(
    family: Family, file: Path, options: ServeOptions, note: Callable[[str], None]
) -> LocalEngine:
    """Every level's weights, checked against the hash in the family, with a batch each."""
    models = {
        level.name: with_weights(level_files(level, file), options.dtype) for level in family.levels
    }
    levels: dict[str, LocalLevel] = {}
    for name, loaded in models.items():
        longest = loaded.files.context or MOST_POSITIONS
        capacity = min(options.context or MOST_POSITIONS, longest)
        fit = CACHE_BYTES // (len(models) * capacity * cache_bytes(loaded.model))
        rows = max(1, min(options.slots, fit))
        batch = ContinuousBatch(loaded.model, rows, capacity, frozenset(loaded.files.eos_token_ids))
        template: Template | None = None
        if family.prompt.plain is not None or loaded.tokenizer.chat_template:
            tokenizer: Any = loaded.tokenizer
            template = prepare(tokenizer, family.prompt)
        levels[name] = LocalLevel(loaded, template, BatchLoop(batch, options.queue))
        note(f"{name}: {rows} responses at once of up to {capacity} tokens, {loaded.dtype}")
    return LocalEngine(family, levels)
