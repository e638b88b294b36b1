"""Attention of a group's rollouts to their one prompt: its keys are kept and read once.

What a rollout attends to is split in two: the prompt, for all rollouts of the group together, and
what it has said itself. Rollouts say their k-th token together, so nothing of what they said is
padding to be masked.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import CacheLayerMixin
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from crt.sampling.attention import replaced

NAME = "crt_shared_prompt"
BLOCK = 32  # tokens


@dataclass(frozen=True, slots=True)
class Seats:
    """Rows in order of their prompts, so many seats for each: as many as the prompt with most."""

    count: int
    seat: Tensor  # of each row
    row: Tensor  # in each seat; the first where nobody sits

    def taken(self, values: Tensor) -> Tensor:
        """(rows, heads, share, …) by prompt: (prompts, heads, seats · share, …)."""
        values = values.index_select(0, self.row).unflatten(0, (-1, self.count))
        return values.transpose(1, 2).flatten(2, 3)

    def left(self, values: Tensor, share: int) -> Tensor:
        """Back to the rows; what is at empty seats nobody reads."""
        values = values.unflatten(2, (self.count, share)).transpose(1, 2)
        return values.flatten(0, 1).index_select(0, self.seat)


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
        self.mask = mask
        self.seats = seats_of(torch.arange(len(mask), device=mask.device), len(mask))

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The prompts' keys and values are the first."""
        self.prompt = key_states.contiguous(), value_states.contiguous()
        self.seen = key_states.new_zeros(self.mask.shape).masked_fill_(self.mask == 0, -torch.inf)
        self.seen = self.seen[:, None, None]
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
        """A block's for all rows there may be: as many as rollouts that go on."""
        return like.new_empty(self.rows, like.shape[1], BLOCK, like.shape[3])

    def move(self, source: Tensor, target: Tensor, seats: Seats, rollouts: int) -> None:
        """Copies rows to where so many rollouts go on, and seats them anew."""
        for block in self.blocks:
            for kept in block:
                kept.index_copy_(0, target, kept.index_select(0, source))
        self.seats, self.rows = seats, rollouts

    def get_seq_length(self) -> int:
        """Positions filled so far, the prompt's with its padding."""
        return (self.mask.shape[1] if self.is_initialized else 0) + self.used

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of this length sees."""
        return self.get_seq_length() + query_length, 0

    def get_max_cache_shape(self) -> int:
        """There is always another block."""
        return -1

    def attended(self, query: Tensor, scale: float, weight: Tensor | None = None) -> Tensor:
        """Of (rows, key heads, share, size), what each row finds in its prompt and its own past.

        The query heads that share a key are queries to it: nothing has to be repeated. `weight`
        is filled with the logarithm of what the scores add up to.
        """
        query = query * scale
        scores = [self._of_prompt(query), *self._of_own(query)]
        joined = torch.cat(scores, -1)
        share = joined.softmax(-1, dtype=torch.float32)
        if weight is not None:
            torch.sub(joined.amax(-1), share.amax(-1).log_(), out=weight)
        widths = [score.shape[-1] for score in scores]
        of_prompt, *of_own = share.to(query.dtype).split(widths, -1)
        found = self._in_prompt(of_prompt)
        for part, (_, values) in zip(of_own, self.blocks, strict=True):
            found += part @ values[: len(part), :, : part.shape[-1]]
        return found

    def _of_own(self, query: Tensor) -> Iterator[Tensor]:
        """Scores of what the rows have said, block by block."""
        for number, (keys, _) in enumerate(self.blocks):
            filled = self.used - number * BLOCK
            yield query @ keys[: len(query), :, :filled].transpose(-1, -2)

    def _of_prompt(self, query: Tensor) -> Tensor:
        """Scores of the prompts: the rows of one prompt ask together."""
        score = self.seats.taken(query) @ self.prompt[0].transpose(-1, -2)
        return self.seats.left(score + self.seen, query.shape[2])

    def _in_prompt(self, share: Tensor) -> Tensor:
        """What rows with these shares find in their prompts."""
        return self.seats.left(self.seats.taken(share) @ self.prompt[1], share.shape[2])


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
    """One token's attention, in transformers' form."""
    rows, heads, size = len(query), query.shape[1], query.shape[3]
    query = query.reshape(rows, key.shape[1], heads // key.shape[1], size)
    found = _layers.get()[module.layer_idx].attended(query, scaling or size**-0.5)
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
