"""How a model reads prompts, and then one more token of every row."""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from crt.errors import EngineError
from crt.sampling.attention import is_plain
from crt.sampling.cache import RoomyLayer
from crt.sampling.kv_cache import Seats, SharedPromptLayer, sharing

ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}


class PreallocatedLayer(RoomyLayer):
    """Of all rows, each with its own copy of the prompt."""

    def __init__(self, rows: int, room: int) -> None:
        super().__init__(rows, room)
        self.used = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Stores new keys and values, and returns all there are."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self.stored()
        rows, start, end = key_states.shape[0], self.used, self.used + key_states.shape[2]
        self.used = end
        keys[:rows, :, start:end] = key_states
        values[:rows, :, start:end] = value_states
        return keys[:rows, :, :end], values[:rows, :, :end]

    def move(self, source: Tensor, target: Tensor, seats: Seats, rollouts: int) -> None:
        """Copies rows to where their rollouts go on."""
        self.copy_rows(source, target, self.used)

    def get_seq_length(self) -> int:
        """Positions filled so far."""
        return self.used

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of this length sees."""
        return self.used + query_length, 0


Layers = list[PreallocatedLayer] | list[SharedPromptLayer]


def layers_for(model: PreTrainedModel, mask: Tensor, copies: int, room: int, share: bool) -> Layers:
    """One layer of cache per layer of the model; prompts that many ask are kept once."""
    config = model.config.get_text_config(decoder=True)
    other = set(getattr(config, "layer_types", None) or ()) - ATTENTION
    if other:
        raise EngineError(
            f"{type(model).__name__} has layers of type {', '.join(sorted(other))}, which this "
            "sampler cannot cache. Generate with the model's own `generate` or with vLLM."
        )
    rows, count = len(mask) * copies, config.num_hidden_layers
    if share and is_plain(model):
        return [SharedPromptLayer(rows, mask) for _ in range(count)]
    return [PreallocatedLayer(rows, mask.shape[1] + room) for _ in range(count)]


class Reader:
    """The model's own forward."""

    def __init__(self, model: PreTrainedModel, layers: Layers) -> None:
        self.model, self.layers, self.cache = model, layers, Cache(layers=list(layers))

    def prompts(self, ids: Tensor, mask: Tensor) -> Tensor:
        """All at once."""
        self.seen = mask
        position = (mask.cumsum(1) - 1).clamp(min=0)
        return forward(self.model, ids, mask, position, self.cache)

    def next(self, token: Tensor, position: Tensor, origin: Tensor) -> Tensor:
        """With the prompts' keys read once for all rows, if they are kept so."""
        self.seen = torch.cat([self.seen[origin], self.seen.new_ones(len(origin), 1)], 1)
        with sharing(self.model, self.layers):
            return forward(self.model, token[:, None], self.seen, position[:, None], self.cache)


def forward(
    model: PreTrainedModel, ids: Tensor, mask: Tensor, position: Tensor, cache: Cache
) -> Tensor:
    """Logits of the next token in float32."""
    result = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=position,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return result.logits[:, -1].float()
