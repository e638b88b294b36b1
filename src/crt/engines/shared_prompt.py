"""Attention of a group's rollouts to their one prompt: its keys are kept and read once.

What a rollout attends to is split in two: the prompt, for all rollouts of the group together, and
what it has said itself. Each part comes with the logarithm of its weight, by which the two add up.
Rollouts say their k-th token together, so nothing of what they said is padding to be masked.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import CacheLayerMixin
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from crt.engines.attention import flash, replaced

NAME = "crt_shared_prompt"
BLOCK = 32  # tokens


@dataclass(frozen=True, slots=True)
class Seats:
    """Rows in order of their prompts, so many seats for each: as many as the prompt with most."""

    count: int
    seat: Tensor  # of each row
    row: Tensor  # in each seat; the first where nobody sits


def seats_of(prompt: Tensor, prompts: int) -> Seats:
    """For rows with these prompts."""
    rows = torch.arange(len(prompt), device=prompt.device)
    asking = prompt.bincount(minlength=prompts)
    count = int(asking.max())
    order = prompt.argsort(stable=True)
    rank = torch.empty_like(rows)
    rank[order] = rows - (asking.cumsum(0) - asking)[prompt[order]]
    seat = prompt * count + rank
    return Seats(count, seat, rows.new_zeros(prompts * count).index_copy(0, seat, rows))


class SharedPromptLayer(CacheLayerMixin):
    """Keys and values of every prompt once, and of what each row says in blocks of a few tokens.

    A block's rows lie one behind another, so that memory is read in one go. With room for the
    longest rollout in every row it would be read in leaps, at half the speed.
    """

    def __init__(self, rows: int, mask: Tensor) -> None:
        super().__init__()
        self.rows, self.used = rows, 0
        self.blocks: list[tuple[Tensor, Tensor]] = []
        self.seen = torch.zeros(mask.shape, device=mask.device)
        self.seen.masked_fill_(mask == 0, -torch.inf)
        self.seats = seats_of(torch.arange(len(mask), device=mask.device), len(mask))

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The prompts' keys and values are the first."""
        self.prompt = key_states.contiguous(), value_states.contiguous()
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Stores the prompts', then what is said; `attend` finds it here."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            return key_states, value_states
        at = self.used % BLOCK
        if at == 0:
            self.blocks.append((self._room(key_states), self._room(value_states)))
        keys, values = self.blocks[-1]
        keys[: len(key_states), :, at] = key_states[:, :, 0]
        values[: len(value_states), :, at] = value_states[:, :, 0]
        self.used += 1
        return key_states, value_states

    def _room(self, like: Tensor) -> Tensor:
        """A block's for all rows there may be."""
        return like.new_empty(self.rows, like.shape[1], BLOCK, like.shape[3])

    def move(self, source: Tensor, target: Tensor, seats: Seats) -> None:
        """Copies rows to where their rollouts go on, and seats them anew."""
        for block in self.blocks:
            for kept in block:
                kept.index_copy_(0, target, kept.index_select(0, source))
        self.seats = seats

    def get_seq_length(self) -> int:
        """Positions filled so far, the prompt's with its padding."""
        return (self.seen.shape[1] if self.is_initialized else 0) + self.used

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of this length sees."""
        return self.get_seq_length() + query_length, 0

    def get_max_cache_shape(self) -> int:
        """There is always another block."""
        return -1

    def to_own(self, query: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """Attention of the rows to what they have said, and the logarithm of its weight."""
        rows, query = len(query), query * scale
        scores = [query @ keys[:rows].transpose(-1, -2) for keys, _ in self.blocks]
        score = torch.cat(scores, -1)[..., : self.used].float()
        share = score.softmax(-1)
        parts = share.to(query.dtype).split(BLOCK, -1)
        found = [
            part @ values[:rows, :, : part.shape[-1]]
            for part, (_, values) in zip(parts, self.blocks, strict=True)
        ]
        return reduce(torch.add, found), score.amax(-1) - share.amax(-1).log()

    def to_prompt(self, query: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """Attention of the rows to their prompts, and the logarithm of its weight.

        Those of one prompt ask together; what comes out at empty seats nobody reads.
        """
        keys, values = self.prompt
        _, heads, share, size = query.shape
        (prompts, width), count = self.seen.shape, self.seats.count
        asked = query.index_select(0, self.seats.row)
        asked = asked.view(prompts, count, heads, share, size).transpose(1, 2)
        asked = asked.reshape(prompts, heads, count * share, size)
        seen = self.seen.to(query.dtype)[:, None, None].expand(-1, 1, asked.shape[2], width)
        found, weight = flash(asked, keys, values, attn_mask=seen, scale=scale)
        found = found.view(prompts, heads, count, share, -1).transpose(1, 2).flatten(0, 1)
        weight = weight.reshape(prompts, heads, count, share).transpose(1, 2).flatten(0, 1)
        return found.index_select(0, self.seats.seat), weight.index_select(0, self.seats.seat)


_layers: ContextVar[Sequence[Any]] = ContextVar("layers")


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """One token's attention, in transformers' form: to its own past and to its prompt."""
    rows, heads, size = len(query), query.shape[1], query.shape[3]
    # The query heads that share a key are queries to it: nothing has to be repeated.
    query = query.reshape(rows, key.shape[1], heads // key.shape[1], size)
    layer, scale = _layers.get()[module.layer_idx], scaling or size**-0.5
    own, own_weight = layer.to_own(query, scale)
    prompt, prompt_weight = layer.to_prompt(query, scale)
    share = torch.sigmoid(own_weight - prompt_weight)[..., None]
    found = torch.lerp(prompt, own, share.to(own.dtype))
    return found.reshape(rows, 1, heads, -1), None


ALL_ATTENTION_FUNCTIONS.register(NAME, attend)


@contextmanager
def sharing(model: PreTrainedModel, layers: Sequence[CacheLayerMixin]) -> Iterator[None]:
    """Within it, a model with such a cache attends to its past in two parts."""
    if not isinstance(layers[0], SharedPromptLayer):
        yield
        return
    token = _layers.set(layers)
    try:
        with replaced(model, NAME):
            yield
    finally:
        _layers.reset(token)
