"""A small Llama's next token, straight from its weights.

Of a step of a million parameters a quarter is not arithmetic but calls, a hundred a layer. Written
out, a layer needs half of them: weights that read the same stand side by side behind one norm, and
queries and keys turn together. Other models, and larger ones, to which calls are nothing, take
their own way.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

from crt.engines.shared_prompt import SharedPromptLayer

FAMILIES = (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
SMALL = 2**22  # parameters


def lean_forward(model: Any, caches: Sequence[Any]) -> "Lean | None":
    """Of a model that may be written out: small, as its family builds it, nobody listens inside."""
    parts = list(model.modules())
    mixed = hasattr(model, "_original_forward")  # accelerate's, within which precision is lower
    changed = any("forward" in vars(part) for part in parts[1:])
    lean = (
        isinstance(caches[0], SharedPromptLayer)
        and type(model) in FAMILIES
        and model.dtype == torch.float32
        and not mixed
        and not changed
        and model.num_parameters() <= SMALL
        and all(type(part) is nn.Linear for part in parts if hasattr(part, "in_features"))
        and not any(part._forward_hooks or part._forward_pre_hooks for part in parts)
    )
    return Lean(model, caches) if lean else None


class Lean:
    """The forward of one more token a row, with these caches."""

    def __init__(self, model: Any, caches: Sequence[SharedPromptLayer]) -> None:
        self.inner = model.model
        self.head = Together(self.inner.norm, model.lm_head)
        layers = zip(self.inner.layers, caches, strict=True)
        self.layers = [Layer(layer, cache) for layer, cache in layers]

    def __call__(self, token: Tensor, position: Tensor) -> Tensor:
        """Logits (rows, vocabulary) after tokens (rows,) at positions (rows, 1)."""
        hidden = self.inner.embed_tokens(token)
        cos, sin = self.inner.rotary_emb(hidden, position)
        first, second = sin.chunk(2, -1)
        sin = torch.cat([-first, second], -1)  # of what is half a turn away
        for layer in self.layers:
            hidden = layer(hidden, cos, sin)
        return self.head(hidden)


class Layer:
    """A layer of the model, with its cache."""

    def __init__(self, layer: Any, cache: SharedPromptLayer) -> None:
        self.cache, self.attention, self.mlp = cache, layer.self_attn, layer.mlp
        projections = [self.attention.q_proj, self.attention.k_proj, self.attention.v_proj]
        self.heads = [each.out_features // self.attention.head_dim for each in projections]
        self.projected = Together(layer.input_layernorm, *projections)
        self.widened = Together(
            layer.post_attention_layernorm, self.mlp.gate_proj, self.mlp.up_proj
        )

    def __call__(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(rows, size) to the same."""
        hidden = hidden + self.attended(hidden, cos, sin)
        gate, up = self.widened(hidden).chunk(2, -1)
        return hidden.add_(self.mlp.down_proj(self.mlp.act_fn(gate).mul_(up)))

    def attended(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """What the rows find in their past, after they have told it their keys and values."""
        queries, keys, values = self.heads
        told = self.projected(hidden).unflatten(1, (-1, self.attention.head_dim))
        turning, value = told.split([queries + keys, values], 1)
        if hasattr(self.attention, "q_norm"):
            query, key = turning.split([queries, keys], 1)
            turning = torch.cat([self.attention.q_norm(query), self.attention.k_norm(key)], 1)
        away = turning.roll(turning.shape[-1] // 2, -1)
        query, key = torch.addcmul(turning * cos, away, sin).split([queries, keys], 1)
        self.cache.update(key[:, :, None], value[:, :, None])
        found = self.cache.attended(query.unflatten(1, (keys, -1)), self.attention.scaling)
        return self.attention.o_proj(found.flatten(1))


class Together:
    """Linear layers that read the same, behind a norm, as one."""

    def __init__(self, norm: Any, *layers: Any) -> None:
        self.epsilon, self.scale = norm.variance_epsilon, norm.weight
        self.weight = torch.cat([layer.weight for layer in layers]).t().contiguous()
        told = layers[0].bias is not None
        self.bias = torch.cat([layer.bias for layer in layers]) if told else None

    def __call__(self, values: Tensor) -> Tensor:
        """What they say, one behind the other."""
        read = values * values.square().mean(-1, True).add_(self.epsilon).rsqrt_()
        read = read.mul_(self.scale)  # as the model does, also where numbers overflow
        return (
            read @ self.weight if self.bias is None else torch.addmm(self.bias, read, self.weight)
        )
