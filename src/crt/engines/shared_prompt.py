"""Attention of a group's rollouts to their one prompt: its keys are kept and read once.

What a rollout attends to is split in two: the prompt, for all rollouts of the group together, and
what it has said itself. Each part comes with the logarithm of its weight, by which the two add up.
Rollouts say their k-th token together, so nothing of what they said is padding to be masked.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import CacheLayerMixin
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from crt.engines.attention import replaced
from crt.engines.cache import RoomyLayer

NAME = "crt_shared_prompt"

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class SharedPromptLayer(RoomyLayer):
    """Keys and values of every prompt once, and of what each rollout says."""

    def __init__(self, rows: int, room: int, mask: Tensor) -> None:
        super().__init__(rows, room)
        self.used, self.copies = 0, rows // len(mask)
        self.seen = torch.zeros(mask.shape, device=mask.device)
        self.seen.masked_fill_(mask == 0, -torch.inf)
        self.place = torch.arange(0, rows, self.copies, device=mask.device)  # of each row

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Stores the prompts', then what is said; returns what has been stored of that kind."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.prompt = key_states.contiguous(), value_states.contiguous()
            return key_states, value_states
        keys, values = self.stored()
        rows, self.used = len(key_states), self.used + 1
        keys[:rows, :, self.used - 1] = key_states[:, :, 0]
        values[:rows, :, self.used - 1] = value_states[:, :, 0]
        return keys[:rows, :, : self.used], values[:rows, :, : self.used]

    def move(self, source: Tensor, target: Tensor, speaker: Tensor) -> None:
        """Copies rows to where their rollouts go on; `speaker` is one rollout of each row."""
        self.copy_rows(source, target, self.used)
        self.place = speaker

    def get_seq_length(self) -> int:
        """Positions filled so far, the prompt's with its padding."""
        return (self.seen.shape[1] if self.is_initialized else 0) + self.used

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of this length sees."""
        return self.get_seq_length() + query_length, 0

    def get_max_cache_shape(self) -> int:
        """Positions there is room for, the prompt's among them."""
        return self.seen.shape[1] + self.room

    def to_prompt(self, query: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
        """Attention of the rows to their prompts, and the logarithm of its weight.

        Queries stand in the place of one of their rollouts, groups whole; of the places that are
        empty nobody reads what comes out.
        """
        keys, values = self.prompt
        _, heads, share, size = query.shape
        prompts, width = self.seen.shape
        asked = query.new_zeros(self.rows, heads, share, size)
        asked[self.place] = query
        asked = asked.view(prompts, self.copies, heads, share, size).transpose(1, 2)
        asked = asked.reshape(prompts, heads, self.copies * share, size)
        seen = self.seen.to(query.dtype)[:, None, None].expand(-1, 1, asked.shape[2], width)
        found, weight = flash(asked, keys, values, attn_mask=seen, scale=scale)
        found = found.view(prompts, heads, self.copies, share, -1).transpose(1, 2)
        weight = weight.reshape(prompts, heads, self.copies, share).transpose(1, 2)
        return found.flatten(0, 1)[self.place], weight.flatten(0, 1)[self.place]


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
    own, own_weight = flash(query, key, value, scale=scaling)
    layer = _layers.get()[module.layer_idx]
    prompt, prompt_weight = layer.to_prompt(query, scaling)
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
