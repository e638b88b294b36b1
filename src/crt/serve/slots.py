"""Continuous batching: a request joins the running batch between two tokens and leaves at its end.

Each request has a row of a preallocated cache, filled to its own length. Live rows stand together
at the front: when one leaves, the last takes its place, so that no idle row is computed.
"""

import random
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from crt.errors import EngineError
from crt.sampling.cache import RoomyLayer
from crt.sampling.hf import left_padded
from crt.sampling.reading import forward
from crt.sampling.token_choice import draw, nucleus

Stop = Literal["eos", "length"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One response wanted: `key` names it, `seed` decides what is drawn."""

    key: Hashable
    prompt: Sequence[int]
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Said:
    """One token of a response, its log-probability at the temperature, and whether it is the last.

    With temperature 0 the log-probability is that at temperature 1, as the sampler gives it.
    """

    key: Hashable
    token: int
    logprob: float
    stop: Stop | None


@dataclass(slots=True)
class Row:
    """A request in the batch: how far it is, and what it said last."""

    ask: Ask
    rng: random.Random
    length: int  # positions of the cache that are filled
    said: int = 0
    last: int = -1


@dataclass
class Place:
    """Where the next keys and values go: prompts into new rows, or one token into each row."""

    rows: Sequence[int] = ()
    lengths: Sequence[int] = ()  # of the prompts; empty for a step of single tokens
    at: tuple[Tensor, Tensor] | None = None  # rows and positions of the single tokens
    width: int = 0  # positions a single token may look at, itself included


class SlotLayer(RoomyLayer):
    """Keys and values of one layer, a row for each request."""

    def __init__(self, slots: int, room: int, place: Place) -> None:
        super().__init__(slots, room)
        self.place = place

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Emptied, because a short row is looked at as far as the widest is filled."""
        super().lazy_initialization(key_states, value_states)
        for kept in self.stored():
            kept.zero_()

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Stores new keys and values, and returns those to look at."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self.stored()
        place = self.place
        if place.at is None:
            for i, (row, length) in enumerate(zip(place.rows, place.lengths, strict=True)):
                keys[row, :, :length] = key_states[i, :, -length:]
                values[row, :, :length] = value_states[i, :, -length:]
            return key_states, value_states
        rows, positions = place.at
        keys[rows, :, positions] = key_states[:, :, 0]
        values[rows, :, positions] = value_states[:, :, 0]
        live = len(rows)
        return keys[:live, :, : place.width], values[:live, :, : place.width]

    def get_seq_length(self) -> int:
        """Positions before the next token, as the widest row counts them."""
        return 0 if self.place.at is None else self.place.width - 1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of this length sees."""
        return (query_length if self.place.at is None else self.place.width), 0


@dataclass
class SlotBatch:
    """A model with a fixed number of places for requests that are answered at the same time."""

    model: PreTrainedModel
    slots: int
    room: int  # positions of a place, prompt and response together
    ends: frozenset[int]
    live: list[Row] = field(default_factory=list[Row])

    def __post_init__(self) -> None:
        if self.slots < 1 or self.room < 2:
            raise EngineError(
                f"{self.slots} places of {self.room} tokens cannot work: at least 1 and 2."
            )
        config = self.model.config.get_text_config(decoder=True)
        refuse_windows(type(self.model).__name__, config, self.room)
        self._place = Place()
        layers = range(config.num_hidden_layers)
        self._layers = [SlotLayer(self.slots, self.room, self._place) for _ in layers]
        self._cache = Cache(layers=list(self._layers))

    @property
    def free(self) -> int:
        """Places that nobody has."""
        return self.slots - len(self.live)

    @torch.inference_mode()
    def admit(self, asks: Sequence[Ask]) -> list[Said]:
        """New requests take places; their prompts are read together and each says a first token."""
        for ask in asks:
            self._check(ask)
        if len(asks) > self.free:
            raise EngineError(f"{len(asks)} requests for {self.free} free places.")
        first = len(self.live)
        ids, mask = left_padded([ask.prompt for ask in asks], self.model.device)
        self._place.rows = range(first, first + len(asks))
        self._place.lengths = [len(ask.prompt) for ask in asks]
        self._place.at = None
        position = (mask.cumsum(1) - 1).clamp(min=0)
        logits = forward(self.model, ids, mask, position, self._cache)
        rows = [Row(ask, random.Random(ask.seed), len(ask.prompt)) for ask in asks]
        self.live += rows
        return self._spoken(rows, logits)

    @torch.inference_mode()
    def step(self) -> list[Said]:
        """Every live request says one more token; those that end leave."""
        if not self.live:
            return []
        device, rows = self.model.device, list(self.live)
        positions = torch.tensor([row.length for row in rows], device=device)
        self._place.at = (torch.arange(len(rows), device=device), positions)
        self._place.width = max(row.length for row in rows) + 1
        token = torch.tensor([[row.last] for row in rows], device=device)
        seen = torch.arange(self._place.width, device=device) <= positions[:, None]
        logits = forward(self.model, token, seen.long(), positions[:, None], self._cache)
        for row in rows:
            row.length += 1
        return self._spoken(rows, logits)

    @torch.inference_mode()
    def drop(self, keys: Collection[Hashable]) -> None:
        """These leave at once; the last rows take their places."""
        for at in reversed(range(len(self.live))):
            if self.live[at].ask.key in keys:
                self._leave(at)

    def clear(self) -> None:
        """All leave."""
        self.live.clear()

    def _spoken(self, rows: Sequence[Row], logits: Tensor) -> list[Said]:
        token, logprob = choose_each(logits, rows)
        told: list[Said] = []
        for row, value, how_likely in zip(rows, token.tolist(), logprob.tolist(), strict=True):
            row.said += 1
            row.last = value
            stop: Stop | None = None
            if value in self.ends:
                stop = "eos"
            elif row.said >= row.ask.max_tokens:
                stop = "length"
            told.append(Said(row.ask.key, value, how_likely, stop))
        self.drop({each.key for each in told if each.stop})
        return told

    def _leave(self, at: int) -> None:
        last = self.live.pop()
        if at < len(self.live):
            for layer in self._layers:
                layer.copy_rows(len(self.live), at, last.length)
            self.live[at] = last

    def _check(self, ask: Ask) -> None:
        if not ask.prompt or ask.max_tokens < 1:
            raise EngineError("a request needs a prompt and room for at least 1 token.")
        if len(ask.prompt) + ask.max_tokens > self.room:
            raise EngineError(
                f"a prompt of {len(ask.prompt)} tokens and {ask.max_tokens} more do not fit into "
                f"{self.room}."
            )


def choose_each(logits: Tensor, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """One token a row by its own temperature, top-p and stream of numbers, and how likely it was.

    Every response has its own stream, so what it says does not depend on who else is there.
    """
    heat = torch.tensor([row.ask.temperature or 1.0 for row in rows], device=logits.device)
    logprobs = torch.log_softmax(logits / heat[:, None], -1)
    token = logprobs.argmax(-1)
    drawn = [i for i, row in enumerate(rows) if row.ask.temperature > 0]
    if drawn:
        probability = logprobs[drawn].exp()
        shares = [rows[i].ask.top_p for i in drawn]
        if min(shares) < 1:  # a share of 1 must not lose its tail to rounding
            limit = torch.tensor([s if s < 1 else 2.0 for s in shares], device=logits.device)
            probability = nucleus(probability, limit[:, None])
        uniform = torch.tensor([rows[i].rng.random() for i in drawn], device=logits.device)
        token[drawn] = draw(probability, uniform)
    return token, logprobs.gather(1, token[:, None])[:, 0]


def refuse_windows(name: str, config: Any, room: int) -> None:
    """Rows of different length need layers that look at everything before them."""
    kinds: Iterable[str] = getattr(config, "layer_types", None) or ()
    window = getattr(config, "sliding_window", None)
    other = sorted({kind for kind in kinds if kind != "full_attention"})
    if not other and not kinds and window is not None and window < room:
        other = ["sliding_attention"]
    if other:
        raise EngineError(
            f"{name} has layers of type {', '.join(other)}, which continuous batching here cannot "
            "cache: serve it with vLLM, --engine vllm."
        )
