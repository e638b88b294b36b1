"""The local engine: the weights of all levels in this process, each with a continuous batch.

Responses join and leave a batch between two tokens. Only the model's own steps run in a thread.
"""

import asyncio
import logging
import random
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from crt.data.prompts import Template, prepare, render_turns
from crt.errors import CrtError, EngineError
from crt.levels.answers import AnswerReader, Phase, vocabulary_of
from crt.levels.family import Family, level_files
from crt.levels.requests import (
    ApiError,
    Call,
    ChatRequest,
    Chunks,
    Kind,
    TextRequest,
    internal_error,
    parse_request,
    queue_full,
)
from crt.sampling.hf import draw_tokens, keep_top_p, left_padded
from crt.sampling.models import Dtype, LoadedModel, cache_bytes, with_weights

log = logging.getLogger("crt.levels")
CACHE_BYTES = 4 * 2**30  # of keys and values of all levels together
MOST_POSITIONS = 8192
PREFILL_TOKENS = 2048  # read between two tokens of the others, at most, so that streams don't stall


# ---- the batch


@dataclass(eq=False)
class Generation:
    """One response: what to sample, and the tokens so far. Its seed alone decides what is drawn."""

    prompt_ids: Sequence[int]
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    index: int = 0  # among the choices of its answer
    events: "asyncio.Queue[Any]" = field(default_factory=asyncio.Queue)  # where its tokens go
    tokens: list[int] = field(default_factory=list[int])
    finish_reason: Literal["stop", "length", "cancelled"] | None = None
    _taken: int = 0  # tokens that were taken

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    @property
    def position(self) -> int:
        return len(self.prompt_ids) + len(self.tokens) - 1

    def take_new_tokens(self) -> list[int]:
        new = self.tokens[self._taken :]
        self._taken = len(self.tokens)
        return new

    def cancel(self) -> None:
        """It leaves the batch before the next token."""
        self.finish_reason = self.finish_reason or "cancelled"

    def add(self, token_id: int, eos_token_ids: frozenset[int]) -> None:
        """One more token, which may be the last."""
        self.tokens.append(token_id)
        if token_id in eos_token_ids:
            self.finish_reason = "stop"
        elif len(self.tokens) >= self.max_tokens:
            self.finish_reason = "length"


@dataclass
class Write:
    """Where the next keys and values go: whole prompts, or one token for each active row."""

    first_row: int = 0
    prompt_lengths: Sequence[int] = ()
    positions: Tensor | None = None  # of the single tokens; None while prompts are read
    width: int = 0  # positions that a single token may attend to, itself included


class BatchLayer(CacheLayerMixin):
    """Keys and values of one layer: a preallocated row per response, filled to its own length."""

    def __init__(self, batch_size: int, capacity: int, write: Write) -> None:
        super().__init__()
        self.batch_size, self.capacity, self.write = batch_size, capacity, write

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Zeros, because a short row is read as far as the longest is filled."""
        shape = (self.batch_size, key_states.shape[1], self.capacity)
        self.keys = key_states.new_zeros(*shape, key_states.shape[-1])
        self.values = value_states.new_zeros(*shape, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Stores new keys and values; returns those to attend to."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        write = self.write
        if write.positions is None:  # prompts are padded on the left
            for row, length in enumerate(write.prompt_lengths):
                self.keys[write.first_row + row, :, :length] = key_states[row, :, -length:]
                self.values[write.first_row + row, :, :length] = value_states[row, :, -length:]
            return key_states, value_states
        active = len(write.positions)
        rows = torch.arange(active, device=write.positions.device)
        self.keys[rows, :, write.positions] = key_states[:, :, 0]
        self.values[rows, :, write.positions] = value_states[:, :, 0]
        return self.keys[:active, :, : write.width], self.values[:active, :, : write.width]

    def copy_row(self, source: int, target: int, length: int) -> None:
        for states in (self.keys, self.values):
            assert states is not None
            states[target, :, :length] = states[source, :, :length]

    def get_seq_length(self) -> int:
        """Positions before the next token, of the longest row."""
        return 0 if self.write.positions is None else self.write.width - 1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of this length sees."""
        return (query_length if self.write.positions is None else self.write.width), 0

    def get_max_cache_shape(self) -> int:
        return self.capacity


@dataclass
class ContinuousBatch:
    """A model that samples up to `batch_size` responses at once.

    Active rows are the first ones: when a response ends, the last active row takes its place. No
    idle row is computed.
    """

    model: PreTrainedModel
    batch_size: int
    capacity: int  # positions of a row, prompt and response together
    eos_token_ids: frozenset[int]
    rows: list[Generation] = field(default_factory=list[Generation])

    def __post_init__(self) -> None:
        config = self.model.config.get_text_config(decoder=True)
        refuse_sliding_windows(type(self.model).__name__, config, self.capacity)
        self._write = Write()
        self._layers = [
            BatchLayer(self.batch_size, self.capacity, self._write)
            for _ in range(config.num_hidden_layers)
        ]
        self._cache = Cache(layers=list(self._layers))

    @torch.inference_mode()
    def admit(self, new: Sequence[Generation]) -> None:
        """These join: their prompts are read together, and each gets its first token."""
        prompts = [generation.prompt_ids for generation in new]
        ids, mask = left_padded(prompts, torch.device("cpu"))
        self._write.first_row, self._write.positions = len(self.rows), None
        self._write.prompt_lengths = [len(prompt) for prompt in prompts]
        logits = self._forward(ids, mask, (mask.cumsum(1) - 1).clamp(min=0))
        self.rows += new
        self._sample(new, logits)

    @torch.inference_mode()
    def step(self) -> None:
        """Every response gets one more token."""
        positions = torch.tensor([generation.position for generation in self.rows])
        self._write.positions = positions.to(self.model.device)
        self._write.width = int(positions.max()) + 1
        mask = (torch.arange(self._write.width) <= positions[:, None]).long()
        ids = torch.tensor([[generation.tokens[-1]] for generation in self.rows])
        self._sample(self.rows, self._forward(ids, mask, positions[:, None]))

    @torch.inference_mode()
    def remove_finished(self) -> None:
        """Responses that have ended free their rows."""
        for at in reversed(range(len(self.rows))):
            if self.rows[at].finish_reason:
                last = self.rows.pop()
                if at < len(self.rows):
                    for layer in self._layers:
                        layer.copy_row(len(self.rows), at, last.position)
                    self.rows[at] = last

    def _forward(self, ids: Tensor, mask: Tensor, position: Tensor) -> Tensor:
        """Logits of the next token in float32."""
        device = self.model.device
        output = self.model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=position.to(device),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    def _sample(self, generations: Sequence[Generation], logits: Tensor) -> None:
        token_ids = sample_tokens(logits, generations).tolist()
        for generation, token_id in zip(generations, token_ids, strict=True):
            generation.add(token_id, self.eos_token_ids)


def sample_tokens(logits: Tensor, generations: Sequence[Generation]) -> Tensor:
    """One token per row, by its own temperature, top-p and random numbers.

    So a response does not depend on those around it.
    """
    token_ids = logits.argmax(-1)
    rows = [i for i, generation in enumerate(generations) if generation.temperature > 0]
    if rows:
        sampled = [generations[i] for i in rows]
        temperature = torch.tensor([[g.temperature] for g in sampled], device=logits.device)
        probability = torch.softmax(logits[rows] / temperature, -1)
        if min(g.top_p for g in sampled) < 1:  # a top-p of 1 must not lose its tail to rounding
            top_p = [[g.top_p if g.top_p < 1 else 2.0] for g in sampled]
            probability = keep_top_p(probability, torch.tensor(top_p, device=logits.device))
        uniform = torch.tensor([g.rng.random() for g in sampled], device=logits.device)
        token_ids[rows] = draw_tokens(probability, uniform)
    return token_ids


def refuse_sliding_windows(name: str, config: Any, capacity: int) -> None:
    """Rows of different length need layers that attend to everything before them."""
    layer_types = getattr(config, "layer_types", None) or ()
    window = getattr(config, "sliding_window", None)
    other = sorted({kind for kind in layer_types if kind != "full_attention"})
    if not other and not layer_types and window is not None and window < capacity:
        other = ["sliding_attention"]
    if other:
        raise EngineError(
            f"{name} has layers of type {', '.join(other)}, which the local engine cannot batch: "
            "serve it with vLLM, --engine vllm."
        )


# ---- the queue before it


class BatchLoop:
    """Keeps the batch of one model full from a bounded queue, as long as there is work.

    The events of a response are `(index, new token ids, finish reason)`, or an ApiError.
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


# ---- OpenAI's requests to it


@dataclass(frozen=True)
class LocalLevel:
    loaded: LoadedModel
    template: Template | None  # None for a model without chat template
    batches: BatchLoop

    def chat_prompt(self, request: ChatRequest) -> tuple[list[int], Phase]:
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
        return list(prompt.token_ids), "thinking" if prompt.opens_thinking else "start"

    def text_prompts(self, request: TextRequest) -> list[list[int]]:
        tokenizer, size = self.loaded.tokenizer, len(self.loaded.tokenizer)
        prompts = [tokenizer.encode(p) if isinstance(p, str) else p for p in request.prompts]
        if not all(0 <= token < size for prompt in prompts for token in prompt):
            raise ApiError(400, f"A token is not from 0 to {size - 1}.", param="prompt")
        return prompts


class LocalEngine:
    def __init__(self, family: Family, levels: dict[str, LocalLevel]) -> None:
        self.family, self.levels = family, levels

    async def answer(self, call: Call) -> Chunks:
        """The whole answer, or its chunks with the usage at the end."""
        level = self.levels[call.level.name]
        if call.kind == "chat":
            request = parse_request(ChatRequest, call.body)
            prompt, phase = await asyncio.to_thread(level.chat_prompt, request)
            prompts = [prompt]
        else:
            request, phase = parse_request(TextRequest, call.body), "answer"
            prompts = await asyncio.to_thread(level.text_prompts, request)
        reader = AnswerReader(vocabulary_of(level.loaded.files), request.stops, phase)
        seed = secrets.randbits(48) if request.seed is None else request.seed
        usual, capacity = self.family.measured.max_tokens, level.batches.batch.capacity
        events: asyncio.Queue[Any] = asyncio.Queue()
        generations: list[Generation] = []
        for prompt_ids in prompts:
            limit = fit_tokens(len(prompt_ids), request.limit, capacity, usual)
            for index in range(len(generations), len(generations) + request.n):
                sampling = (request.temperature, request.top_p, seed * 1_000_003 + index)
                generations.append(Generation(prompt_ids, limit, *sampling, index, events))

        def usage() -> dict[str, Any]:
            prompt_tokens = sum(map(len, prompts))
            completion = sum(splitter.tokens for splitter in reader.splitters.values())
            reasoning = sum(splitter.reasoning_tokens for splitter in reader.splitters.values())
            return {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion,  # the token that ends a response counts
                "total_tokens": prompt_tokens + completion,
                "completion_tokens_details": {"reasoning_tokens": reasoning},
            }

        head = _head(call)
        level.batches.submit(generations)
        try:
            if call.stream and call.kind == "chat":
                delta = {"delta": {"role": "assistant", "content": ""}}
                yield {**head, "choices": [_choice(g.index, delta) for g in generations]}
            async for choices in _read_choices(generations, reader, call.kind):
                if call.stream:
                    running = request.stream_options.continuous_usage_stats
                    yield {**head, "choices": choices, **({"usage": usage()} if running else {})}
            whole = [] if call.stream else _whole_choices(call.kind, reader)
            yield {**head, "choices": whole, "usage": usage()}
        finally:  # who stops reading frees the places
            for generation in generations:
                generation.cancel()

    def load(self) -> dict[str, tuple[int, int]]:
        """Level → responses being sampled, responses in the queue."""
        return {name: level.batches.load for name, level in self.levels.items()}

    async def health(self) -> dict[str, str]:
        """A model that fails answers with errors, and goes on."""
        return dict.fromkeys(self.levels, "ok")

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()


async def _read_choices(
    generations: Sequence[Generation], reader: AnswerReader, kind: Kind
) -> AsyncGenerator[list[dict[str, Any]], None]:
    """What becomes readable as it is sampled, until all have ended or come to a stop."""
    events, place = generations[0].events, "delta" if kind == "chat" else "text"
    unfinished = set(range(len(generations)))
    while unfinished:
        new = [await events.get()]
        while not events.empty():
            new.append(events.get_nowait())
        choices: dict[int, dict[str, Any]] = {}  # by their index
        for event in new:
            if isinstance(event, ApiError):
                raise event
            index, token_ids, finish_reason = event
            choice = choices.setdefault(index, {**_choice(index, {place: {}}), "token_ids": []})
            choice["token_ids"] += token_ids
            choice["finish_reason"] = finish_reason
        if chunk := reader.read({"choices": list(choices.values())}):
            yield chunk["choices"]
        for index in [i for i in unfinished if i in reader.splitters]:
            if reader.splitters[index].finish_reason:
                generations[index].cancel()
                unfinished.remove(index)


def _head(call: Call) -> dict[str, Any]:
    chat, suffix = call.kind == "chat", ".chunk" if call.stream else ""
    return {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
        "object": f"chat.completion{suffix}" if chat else "text_completion",
        "created": int(time.time()),
        "model": call.model,
        "system_fingerprint": f"fp_{call.level.hash[:12]}",
    }


def _choice(index: int, text: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, **text, "logprobs": None, "finish_reason": finish_reason}


def _whole_choices(kind: Kind, reader: AnswerReader) -> list[dict[str, Any]]:
    choices: list[dict[str, Any]] = []
    for index, splitter in sorted(reader.splitters.items()):
        thinking, answer = splitter.texts
        message = {"role": "assistant", "content": answer, "refusal": None}
        message |= {"reasoning_content": thinking} if thinking else {}
        text = {"text": answer} if kind == "text" else {"message": message}
        choices.append(_choice(index, text, splitter.finish_reason))
    return choices


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
    family: Family,
    file: Path,
    *,
    slots: int,
    queue: int,
    context: int | None = None,
    dtype: Dtype = "auto",
    note: Callable[[str], None] = lambda _: None,
) -> LocalEngine:
    """Every level's weights, checked against the hash in the family, with a batch each."""
    models = {level.name: with_weights(level_files(level, file), dtype) for level in family.levels}
    levels: dict[str, LocalLevel] = {}
    for name, loaded in models.items():
        longest = loaded.files.context or MOST_POSITIONS
        capacity = min(context or MOST_POSITIONS, longest)
        fit = CACHE_BYTES // (len(models) * capacity * cache_bytes(loaded.model))
        rows = max(1, min(slots, fit))
        batch = ContinuousBatch(loaded.model, rows, capacity, frozenset(loaded.files.eos_token_ids))
        template: Template | None = None
        if family.prompt.plain is not None or loaded.tokenizer.chat_template:
            template = prepare(loaded.tokenizer, family.prompt)
        levels[name] = LocalLevel(loaded, template, BatchLoop(batch, queue))
        note(f"{name}: {rows} responses at once of up to {capacity} tokens, {loaded.dtype}")
    return LocalEngine(family, levels)
