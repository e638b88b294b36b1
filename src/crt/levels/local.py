"""The local engine: the weights of all levels in this process, each with a batch and a thread."""

import asyncio
import atexit
import contextlib
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crt.data.prompts import Template, prepare, render_turns
from crt.errors import ConfigError, CrtError
from crt.levels.batch import ContinuousBatch, Generation
from crt.levels.errors import ApiError, internal_error, queue_full
from crt.levels.family import Family, Level, check_weights, model_of
from crt.levels.reasoning_splitter import Phase, Piece, ReasoningSplitter
from crt.levels.requests import Call, ChatRequest, Chunks, TextRequest, parse_request
from crt.sampling.models import Dtype, LoadedModel, cache_bytes, load_model

log = logging.getLogger("crt.levels")
CACHE_BYTES = 4 * 2**30  # of keys and values of all levels together
MOST_POSITIONS = 8192
PREFILL_TOKENS = 2048  # read between two tokens of the others, at most, so that streams don't stall


@dataclass(frozen=True)
class LocalSettings:
    """What the local engine may use."""

    slots: int = 64  # responses at once per level, if their caches fit
    queue: int = 128  # responses that may wait per level
    context: int | None = None  # tokens of prompt and response; None for the model's own
    dtype: Dtype = "auto"

    def __post_init__(self) -> None:
        if self.slots < 1 or self.queue < 0 or (self.context or 2) < 2:
            raise ConfigError(
                f"--slots {self.slots}, --queue {self.queue} and --context {self.context} cannot "
                "work: at least 1, 0 and 2."
            )


Event = tuple[int, int, str | None]  # which choice of an answer, its token, its finish reason


@dataclass(frozen=True)
class Ticket:
    """A response in the queue or in the batch, and where its tokens go."""

    generation: Generation
    index: int  # among the choices of its answer
    events: "asyncio.Queue[Event | ApiError]"


class BatchThread:
    """Keeps the batch of one model full from a bounded queue."""

    def __init__(self, batch: ContinuousBatch, queue: int, name: str) -> None:
        self.batch, self.queue = batch, queue
        self._waiting: deque[Ticket] = deque()
        self._running: list[Ticket] = []
        self._changed = threading.Condition()
        self._closed = False
        self._outbox: deque[tuple[Ticket, Any]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"crt-{name}", daemon=True)
        self._thread.start()
        # A second Ctrl-C skips the server's own end, and torch aborts if a thread outlives Python.
        atexit.register(self.close)

    @property
    def load(self) -> tuple[int, int]:
        """Responses being sampled, responses in the queue."""
        with self._changed:
            running, waiting = (
                sum(ticket.generation.finish_reason is None for ticket in tickets)
                for tickets in (self._running, self._waiting)
            )
            return running, waiting

    @property
    def alive(self) -> bool:
        """Whether the thread works."""
        return self._thread.is_alive()

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Queues all of them or none; called from the event loop."""
        if sum(self.load) + len(tickets) > self.batch.batch_size + self.queue:
            raise queue_full(retry_after=1)
        with self._changed:
            self._loop = asyncio.get_running_loop()
            self._waiting.extend(tickets)
            self._changed.notify()

    def close(self) -> None:
        """The thread ends after the token it is at."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=60)
        atexit.unregister(self.close)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._closed or self._waiting or self._running):
                    self._changed.wait()
                if self._closed:
                    return
            try:
                self._step()
            except Exception:  # whatever it was, those who wait must hear of it
                log.exception("the model failed; its requests are answered with an error")
                self.batch.rows.clear()
                with self._changed:
                    failed, self._running = self._running, []
                for ticket in failed:
                    self._send(ticket, internal_error())

    def _step(self) -> None:
        """Those who have ended leave, others join, and every response gets a token."""
        self.batch.remove_finished()
        with self._changed:
            joining = self._take_waiting()
            self._running = [*self._active(), *joining]
        if joining:
            self.batch.admit([ticket.generation for ticket in joining])
            self._send_tokens(joining)
            self.batch.remove_finished()
        if active := self._active():
            self.batch.step()
            self._send_tokens(active)

    def _active(self) -> list[Ticket]:
        return [t for t in self._running if t.generation.finish_reason is None]

    def _take_waiting(self) -> list[Ticket]:
        """Who joins now: as many as there are rows, and time to read their prompts."""
        joining: list[Ticket] = []
        longest = 0
        while self._waiting and len(self.batch.rows) + len(joining) < self.batch.batch_size:
            generation = self._waiting[0].generation
            longest = max(longest, len(generation.prompt_ids))
            if joining and longest * (len(joining) + 1) > PREFILL_TOKENS:
                break
            ticket = self._waiting.popleft()
            if generation.finish_reason is None:  # it may have been cancelled meanwhile
                joining.append(ticket)
        return joining

    def _send_tokens(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            generation = ticket.generation
            self._send(ticket, (ticket.index, generation.tokens[-1], generation.finish_reason))

    def _send(self, ticket: Ticket, event: Any) -> None:
        """Into the event loop; one call delivers all that has come since the last."""
        self._outbox.append((ticket, event))
        if len(self._outbox) == 1 and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody listens
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._outbox:
            ticket, event = self._outbox[0]
            ticket.events.put_nowait(event)
            self._outbox.popleft()


@dataclass(frozen=True)
class LocalLevel:
    """One level's model, ready to answer."""

    loaded: LoadedModel
    template: Template | None  # None for a model without chat template
    thread: BatchThread

    @property
    def tokenizer(self) -> Any:
        """The tokenizers library's own, which decodes in pieces."""
        return self.loaded.tokenizer._tokenizer  # pyright: ignore[reportAttributeAccessIssue]

    def chat_prompt(self, request: ChatRequest) -> tuple[list[int], Phase]:
        """Token ids of a conversation, and whether its template opens the thinking."""
        template = self.template
        if template is None:
            raise ApiError(400, "This model has no chat template: use /v1/completions.")
        thinking = request.chat_template_kwargs and request.chat_template_kwargs.enable_thinking
        if thinking is not None:
            settings = replace(template.settings, enable_thinking=thinking)
            template = replace(template, settings=settings)
        try:
            prompt = render_turns(request.turns, template)
        except CrtError as error:
            raise ApiError(400, f"The messages cannot be used: {error}", param="messages") from None
        return list(prompt.token_ids), "thinking" if prompt.opens_thinking else "start"

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
    """Answers requests from the levels' weights."""

    def __init__(self, family: Family, levels: dict[str, LocalLevel]) -> None:
        self.family, self.levels = family, levels

    async def answer(self, call: Call) -> dict[str, Any] | Chunks:
        """The whole answer, or its chunks with the usage at the end."""
        level = self.levels[call.level.name]
        if call.kind == "chat":
            request = parse_request(ChatRequest, call.body)
            prompts = [await asyncio.to_thread(level.chat_prompt, request)]
        else:
            request = parse_request(TextRequest, call.body)
            prompts = await asyncio.to_thread(level.text_prompts, request)
        seed = secrets.randbits(48) if request.seed is None else request.seed
        usual, capacity = self.family.measured.max_tokens, level.thread.batch.capacity
        events: asyncio.Queue[Event | ApiError] = asyncio.Queue()
        tickets: list[Ticket] = []
        splitters: list[ReasoningSplitter] = []
        for prompt_ids, phase in prompts:
            limit = fit_tokens(len(prompt_ids), request.limit, capacity, usual)
            for _ in range(request.n or 1):
                index = len(tickets)
                sampling = (request.temperature, request.top_p, seed * 1_000_003 + index)
                tickets.append(Ticket(Generation(prompt_ids, limit, *sampling), index, events))
                splitters.append(ReasoningSplitter(level.tokenizer, phase, request.stops))
        level.thread.submit(tickets)
        prompt_tokens = sum(len(prompt_ids) for prompt_ids, _ in prompts)
        chunks = answer_chunks(call, tickets, splitters, prompt_tokens, request.running_usage)
        return chunks if call.stream else await collect(chunks)

    def load(self) -> dict[str, tuple[int, int]]:
        """Level → responses being sampled, responses in the queue."""
        return {name: level.thread.load for name, level in self.levels.items()}

    async def health(self) -> dict[str, str]:
        """Level → whether its thread works."""
        return {n: "ok" if level.thread.alive else "failed" for n, level in self.levels.items()}

    async def close(self) -> None:
        """Ends the threads."""
        for level in self.levels.values():
            await asyncio.to_thread(level.thread.close)


async def answer_chunks(
    call: Call,
    tickets: Sequence[Ticket],
    splitters: Sequence[ReasoningSplitter],
    prompt_tokens: int,
    running_usage: bool,
) -> Chunks:
    """An answer as it is sampled, in OpenAI's form; who stops reading it frees its places."""
    head, chat = _head(call), call.kind == "chat"
    unfinished = set(range(len(tickets)))
    try:
        if chat:
            opening = {"role": "assistant", "content": ""}
            yield {**head, "choices": [_choice(i, {"delta": opening}) for i in unfinished]}
        while unfinished:
            new: dict[int, tuple[Piece, str | None]] = {}
            for index, token_id, finish in await _next_events(tickets[0].events):
                if index not in unfinished:
                    continue
                piece = splitters[index].feed(token_id, end=finish == "stop")
                if splitters[index].stopped:
                    tickets[index].generation.cancel()
                    finish = "stop"
                elif finish:
                    piece += splitters[index].close()
                unfinished -= {index} if finish else set()
                new[index] = (new.get(index, (Piece(), None))[0] + piece, finish)
            choices = [
                _choice(index, {"delta": piece.delta} if chat else {"text": piece.content}, finish)
                for index, (piece, finish) in new.items()
                if piece.delta or finish
            ]
            if choices:
                usage = {"usage": _usage(splitters, prompt_tokens)} if running_usage else {}
                yield {**head, "choices": choices, **usage}
        yield {**head, "choices": [], "usage": _usage(splitters, prompt_tokens)}
    finally:
        for ticket in tickets:
            ticket.generation.cancel()


async def collect(chunks: Chunks) -> dict[str, Any]:
    """The chunks of an answer as a whole one."""
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    async with aclosing(chunks):
        async for chunk in chunks:
            whole = chunk
            for new in chunk["choices"]:
                choice = choices.setdefault(new["index"], {**new, "text": "", "reasoning": ""})
                delta = new.get("delta") or {"content": new.get("text", "")}
                choice["text"] += delta.get("content", "")
                choice["reasoning"] += delta.get("reasoning_content", "")
                choice["finish_reason"] = new["finish_reason"]
    for _, choice in sorted(choices.items()):
        reasoning = choice.pop("reasoning")
        if choice.pop("delta", None) is not None:
            message = {"role": "assistant", "content": choice.pop("text"), "refusal": None}
            thinking = {"reasoning_content": reasoning} if reasoning else {}
            choice["message"] = {**message, **thinking}
    kind = whole["object"].removesuffix(".chunk")
    return {**whole, "object": kind, "choices": [choices[i] for i in sorted(choices)]}


async def _next_events(events: "asyncio.Queue[Any]") -> list[Event]:
    """At least one token, and every other that is there already."""
    batch = [await events.get()]
    while not events.empty():
        batch.append(events.get_nowait())
    for event in batch:
        if isinstance(event, ApiError):
            raise event
    return batch


def _choice(index: int, text: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": index, **text, "logprobs": None, "finish_reason": finish}


def _head(call: Call) -> dict[str, Any]:
    chat = call.kind == "chat"
    return {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": int(time.time()),
        "model": call.model,
        "system_fingerprint": f"fp_{call.level.hash[:12]}",
    }


def _usage(splitters: Sequence[ReasoningSplitter], prompt_tokens: int) -> dict[str, Any]:
    """Tokens so far; the token that ends a response counts."""
    completion = sum(splitter.tokens for splitter in splitters)
    reasoning = sum(splitter.reasoning_tokens for splitter in splitters)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt_tokens + completion,
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
    family: Family, file: Path, settings: LocalSettings, note: Callable[[str], None]
) -> LocalEngine:
    """Every level's weights, checked against the hash in the family, with a thread each."""
    models = {level.name: _load(level, file, settings) for level in family.levels}
    levels: dict[str, LocalLevel] = {}
    for name, loaded in models.items():
        longest = loaded.files.context or MOST_POSITIONS
        capacity = min(settings.context or MOST_POSITIONS, longest)
        fit = CACHE_BYTES // (len(models) * capacity * cache_bytes(loaded.model))
        rows = max(1, min(settings.slots, fit))
        batch = ContinuousBatch(loaded.model, rows, capacity, frozenset(loaded.files.eos_token_ids))
        thread = BatchThread(batch, settings.queue, name)
        levels[name] = LocalLevel(loaded, _template(loaded, family), thread)
        note(f"{name}: {rows} responses at once of up to {capacity} tokens, {loaded.dtype}")
    return LocalEngine(family, levels)


def _load(level: Level, file: Path, settings: LocalSettings) -> LoadedModel:
    where = model_of(level, file)
    loaded = load_model(where, revision=level.revision, dtype=settings.dtype)
    check_weights(level, loaded.hash, where, file)
    return loaded


def _template(loaded: LoadedModel, family: Family) -> Template | None:
    settings = family.prompt
    if settings.plain is None and not loaded.tokenizer.chat_template:
        return None
    return prepare(loaded.tokenizer, settings)  # pyright: ignore[reportArgumentType]
