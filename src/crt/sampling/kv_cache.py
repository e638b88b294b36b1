"""Caches of keys and values for sampling, and the attention that reads a group's prompt once.

Rollouts of one prompt share its keys. What a rollout attends to is split in two: the prompt, for
all rollouts of the group together, and its own tokens. Rollouts produce their k-th token together,
so nothing of what they produced is padding.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import extract_model_from_parallel
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import CacheLayerMixin
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from crt.errors import EngineError

CACHEABLE = {"full_attention", "sliding_attention", "chunked_attention"}
SHARED_PREFIX = "crt_shared_prefix"  # the name of our attention in transformers' table
BLOCK = 32  # tokens


# --- models and their attention ------------------------------------------------------------------


def unwrap_model(model: Any) -> Any:
    """The model itself, without what several processes and LoRA have put around it."""
    model = extract_model_from_parallel(model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def has_plain_attention(model: Any) -> bool:
    """Whether a model on a CPU has transformers' own attention over all of the past.

    torch's kernel does not take keys and values of two sizes, as in DeepSeek's latent attention.
    """
    config = model.config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None) if not hasattr(config, "layer_types") else None
    return (
        model.device.type == "cpu"
        and config._attn_implementation == "sdpa"
        and bool(getattr(model, "_supports_attention_backend", False))
        and kinds == {"full_attention"}
        and window is None
        and getattr(config, "v_head_dim", None) is None
    )


@contextmanager
def attention_replaced(model: Any, name: str) -> Iterator[None]:
    """Within it the model attends by the function that transformers knows by this name."""
    config = model.config.get_text_config(decoder=True)
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


# --- rows and their prompts ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Rows grouped by prompt, each prompt with as many slots as the largest group has rows."""

    slots: int  # per prompt
    slot: Tensor  # of each row
    row: Tensor  # in each slot; row 0 where the slot is empty

    def by_prompt(self, values: Tensor) -> Tensor:
        """(rows, heads, share, …) → (prompts, heads, slots · share, …)."""
        values = values.index_select(0, self.row).unflatten(0, (-1, self.slots))
        return values.transpose(1, 2).flatten(2, 3)

    def by_row(self, values: Tensor, share: int) -> Tensor:
        """Back to the rows; nobody reads what is in empty slots."""
        values = values.unflatten(2, (self.slots, share)).transpose(1, 2)
        return values.flatten(0, 1).index_select(0, self.slot)


def row_layout(prompt: Tensor, num_prompts: int) -> RowLayout:
    """For rows of these prompts."""
    rows = torch.arange(len(prompt), device=prompt.device)
    group_size = prompt.bincount(minlength=num_prompts)
    slots = int(group_size.max())
    order = prompt.argsort(stable=True)
    rank = torch.empty_like(rows)
    rank[order] = rows - (group_size.cumsum(0) - group_size)[prompt[order]]
    slot = prompt * slots + rank
    return RowLayout(slots, slot, rows.new_zeros(num_prompts * slots).index_copy(0, slot, rows))


# --- cache layers --------------------------------------------------------------------------------


class SharedPrefixLayer(CacheLayerMixin):
    """Keys and values of every prompt once, and of each row's own tokens in blocks.

    The rows of a block lie one behind another, so that memory is read in one go. With capacity for
    the longest rollout in every row it would be read in leaps, at half the speed.
    """

    def __init__(self, rows: int, prompt_mask: Tensor) -> None:
        super().__init__()
        self.rows, self.length = rows, 0
        self.blocks: list[tuple[Tensor, Tensor]] = []
        self.prompt_mask = prompt_mask
        prompts = torch.arange(len(prompt_mask), device=prompt_mask.device)
        self.layout = row_layout(prompts, len(prompt_mask))

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The first keys and values are the prompts'."""
        self.prompt = key_states.contiguous(), value_states.contiguous()
        mask = key_states.new_zeros(self.prompt_mask.shape)
        self.bias = mask.masked_fill_(self.prompt_mask == 0, -torch.inf)[:, None, None]
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Stores the prompts', then one token per row; `attend` reads them from here."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            return key_states, value_states
        at = self.length % BLOCK
        if at == 0:
            self.blocks.append((self._new_block(key_states), self._new_block(value_states)))
        keys, values = self.blocks[-1]
        keys[: len(key_states), :, at] = key_states[:, :, 0]
        values[: len(value_states), :, at] = value_states[:, :, 0]
        self.length += 1
        return key_states, value_states

    def _new_block(self, like: Tensor) -> Tensor:
        return like.new_empty(self.rows, like.shape[1], BLOCK, like.shape[3])

    def move_rows(self, source: Tensor, target: Tensor, layout: RowLayout, rows: int) -> None:
        """Copies rows to where their rollouts continue; at most `rows` are live from now on."""
        for block in self.blocks:
            for stored in block:
                stored.index_copy_(0, target, stored.index_select(0, source))
        self.layout, self.rows = layout, rows

    def get_seq_length(self) -> int:
        """Positions filled so far, the prompt's padding included."""
        return (self.prompt_mask.shape[1] if self.is_initialized else 0) + self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of this length sees."""
        return self.get_seq_length() + query_length, 0

    def get_max_cache_shape(self) -> int:
        """Unlimited."""
        return -1

    def attend(self, query: Tensor, scale: float) -> Tensor:
        """Of (rows, key heads, share, size): each row over its prompt and its own tokens.

        The query heads that share a key are queries to it, so nothing has to be repeated.
        """
        query = query * scale
        scores = [self._prompt_scores(query), *self._own_scores(query)]
        weights = torch.cat(scores, -1).softmax(-1, dtype=torch.float32).to(query.dtype)
        of_prompt, *of_own = weights.split([score.shape[-1] for score in scores], -1)
        output = self.layout.by_row(
            self.layout.by_prompt(of_prompt) @ self.prompt[1], of_prompt.shape[2]
        )
        for part, (_, values) in zip(of_own, self.blocks, strict=True):
            output += part @ values[: len(part), :, : part.shape[-1]]
        return output

    def _prompt_scores(self, query: Tensor) -> Tensor:
        """The rows of one prompt are multiplied with its keys together."""
        score = self.layout.by_prompt(query) @ self.prompt[0].transpose(-1, -2)
        return self.layout.by_row(score + self.bias, query.shape[2])

    def _own_scores(self, query: Tensor) -> Iterator[Tensor]:
        for number, (keys, _) in enumerate(self.blocks):
            filled = self.length - number * BLOCK
            yield query @ keys[: len(query), :, :filled].transpose(-1, -2)


class PerRowLayer(CacheLayerMixin):
    """Keys and values of every row, each with its own copy of the prompt, preallocated."""

    def __init__(self, rows: int, capacity: int) -> None:
        super().__init__()
        self.rows, self.capacity, self.length = rows, capacity, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Takes shape, dtype and device from the first keys and values."""
        _, heads, _, size = key_states.shape
        self.stored_keys = key_states.new_empty(self.rows, heads, self.capacity, size)
        self.stored_values = value_states.new_empty(
            self.rows, heads, self.capacity, value_states.shape[-1]
        )
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Stores new keys and values, and returns all there are."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, start, end = len(key_states), self.length, self.length + key_states.shape[2]
        self.length = end
        self.stored_keys[:rows, :, start:end] = key_states
        self.stored_values[:rows, :, start:end] = value_states
        return self.stored_keys[:rows, :, :end], self.stored_values[:rows, :, :end]

    def move_rows(self, source: Tensor, target: Tensor, layout: RowLayout, rows: int) -> None:
        """Copies rows to where their rollouts continue."""
        for stored in (self.stored_keys, self.stored_values):
            stored[target, :, : self.length] = stored[source, :, : self.length]

    def get_seq_length(self) -> int:
        """Positions filled so far."""
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of this length sees."""
        return self.length + query_length, 0

    def get_max_cache_shape(self) -> int:
        """Positions it was made for."""
        return self.capacity


Layers = list[SharedPrefixLayer] | list[PerRowLayer]


def cache_layers(
    model: PreTrainedModel, prompt_mask: Tensor, num_samples: int, max_new_tokens: int, share: bool
) -> Layers:
    """One cache layer per layer of the model; prompts are kept once where the model allows it."""
    config = model.config.get_text_config(decoder=True)
    other = set(getattr(config, "layer_types", None) or ()) - CACHEABLE
    if other:
        raise EngineError(
            f"{type(model).__name__} has layers of type {', '.join(sorted(other))}, which this "
            "sampler cannot cache. Generate with the model's own `generate` or with vLLM."
        )
    rows, count = len(prompt_mask) * num_samples, config.num_hidden_layers
    if share and has_plain_attention(model):
        return [SharedPrefixLayer(rows, prompt_mask) for _ in range(count)]
    return [PerRowLayer(rows, prompt_mask.shape[1] + max_new_tokens) for _ in range(count)]


# --- the attention, in transformers' form --------------------------------------------------------

_layers: ContextVar[Sequence[Any]] = ContextVar("layers")


def _shared_prefix_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    rows, heads, size = len(query), query.shape[1], query.shape[3]
    query = query.reshape(rows, key.shape[1], heads // key.shape[1], size)
    output = _layers.get()[module.layer_idx].attend(query, scaling or size**-0.5)
    return output.reshape(rows, 1, heads, -1), None


ALL_ATTENTION_FUNCTIONS.register(SHARED_PREFIX, _shared_prefix_attention)


@contextmanager
def shared_prefix_attention(model: PreTrainedModel, layers: Layers) -> Iterator[None]:
    """Within it, a model with shared prefixes attends to prompt and own tokens apart."""
    if not isinstance(layers[0], SharedPrefixLayer):
        yield
        return
    token = _layers.set(layers)
    try:
        with attention_replaced(model, SHARED_PREFIX):
            yield
    finally:
        _layers.reset(token)
