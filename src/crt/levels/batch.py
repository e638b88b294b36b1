"""Continuous batching for one model: responses join and leave between two tokens.

Every response owns a row of a preallocated KV cache, filled to its own length. Active rows are the
first ones: when a response ends, the last active row takes its place. No idle row is computed.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from crt.errors import EngineError
from crt.sampling.hf import draw_tokens, keep_top_p

FinishReason = Literal["stop", "length", "cancelled"]


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
    finish_reason: FinishReason | None = None
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
    """Keys and values of one layer, a row per response."""

    def __init__(self, batch_size: int, capacity: int, write: Write) -> None:
        super().__init__()
        self.batch_size, self.capacity, self.write = batch_size, capacity, write

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Zeros, because a short row is read as far as the longest is filled."""
        _, heads, _, size = key_states.shape
        shape = (self.batch_size, heads, self.capacity)
        self.keys = key_states.new_zeros(*shape, size)
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
            for row, length in enumerate(write.prompt_lengths, write.first_row):
                self.keys[row, :, :length] = key_states[row - write.first_row, :, -length:]
                self.values[row, :, :length] = value_states[row - write.first_row, :, -length:]
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
    """A model that samples up to `batch_size` responses at once."""

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
        prompts = [list(generation.prompt_ids) for generation in new]
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        self._write.first_row = len(self.rows)
        self._write.prompt_lengths = [len(prompt) for prompt in prompts]
        self._write.positions = None
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
        temperature = torch.tensor([g.temperature for g in sampled], device=logits.device)
        probability = torch.softmax(logits[rows] / temperature[:, None], -1)
        if min(g.top_p for g in sampled) < 1:  # a top-p of 1 must not lose its tail to rounding
            top_p = [g.top_p if g.top_p < 1 else 2.0 for g in sampled]
            probability = keep_top_p(
                probability, torch.tensor(top_p, device=logits.device)[:, None]
            )
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
