"""A small Llama straight from its weights, forwards and backwards.

Of a step of a million parameters a quarter is not arithmetic but calls, a hundred a layer. Written
out, a layer needs half of them: weights that read the same stand side by side behind one norm, and
queries and keys turn together. What it takes to go backwards can be kept on the way, so that an
update need not go forwards again. Other models, and larger ones, to which calls are nothing, take
their own way.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from transformers import LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

from crt.engines.lean_parts import Gradients, Norm, Together, Turn, linear_back, plus_linear
from crt.engines.tree import Part, attended_back

FAMILIES = (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
SMALL = 2**22  # parameters
PIECE = 256  # nodes that go backwards together, however many rows come at once: a cache holds them

silu_backward = torch.ops.aten.silu_backward.grad_input


def may_be_lean(model: Any) -> bool:
    """Whether a model may be written out: small, as its family builds it, nobody listens inside."""
    parts = list(model.modules())
    mixed = hasattr(model, "_original_forward")  # accelerate's, within which precision is lower
    changed = any("forward" in vars(part) for part in parts[1:])
    return (
        type(model) in FAMILIES
        and model.dtype == torch.float32
        and not mixed
        and not changed
        and model.num_parameters() <= SMALL
        and model.config.hidden_act == "silu"
        and all(type(part) is nn.Linear for part in parts if hasattr(part, "in_features"))
        and not any(part._forward_hooks or part._forward_pre_hooks for part in parts)
    )


class Kept(NamedTuple):
    """Of nodes in a layer, what it takes to go backwards, or where it is to be put."""

    hidden: Tensor  # (nodes, size), as they came
    told: Tensor  # queries, keys and values, before they turn
    found: Tensor  # in attention
    weight: Tensor  # (nodes, heads), the logarithm of what the scores add up to
    after: Tensor  # as they left attention
    wide: Tensor  # gate and up


NOWHERE: Any = Kept(*[None] * 6)  # pyright: ignore[reportArgumentType]

Attend = Callable[[int, Tensor, Tensor, Tensor, Kept], Tensor]


class Lean:
    """The model as it is now."""

    def __init__(self, model: Any) -> None:
        self.inner = model.model
        self.head = Together(self.inner.norm, model.lm_head)
        self.layers = [Layer(layer) for layer in self.inner.layers]

    def __call__(
        self, token: Tensor, position: Tensor, attend: Attend, rooms: Sequence[Kept]
    ) -> Tensor:
        """Tokens (nodes,) at positions (nodes,) as they leave the last layer, (nodes, size).

        What is to be kept of each layer goes into its room; there is one more, for what leaves.
        """
        turn = self.turn(position)
        hidden = torch.index_select(self.inner.embed_tokens.weight, 0, token, out=rooms[0].hidden)
        for number, layer in enumerate(self.layers):
            told = layer.projected(hidden, rooms[number].told)
            found = attend(number, *layer.asking(told, turn), rooms[number])
            hidden = layer.left(hidden, found, rooms[number], rooms[number + 1].hidden)
        return hidden

    def back(
        self,
        gradient: Tensor,
        kept: Sequence[Kept],
        nodes: Tensor,
        position: Tensor,
        parts: Sequence[Part],
    ) -> tuple[Tensor, Gradients]:
        """From the gradient of what left the last layer to that of what came to the first.

        `nodes` are where those that go backwards are in what is kept. Those of weights besides.
        """
        gradient, found, turn = gradient.clone(), Gradients(), self.turn(position)
        for layer, of_layer in reversed(list(zip(self.layers, kept[:-1], strict=True))):
            layer.back(gradient, of_layer, nodes, turn, parts, found)
        return gradient, found

    def turn(self, position: Tensor) -> "Turn":
        """Of queries and keys at these positions."""
        like = self.inner.embed_tokens.weight.detach()
        cos, sin = self.inner.rotary_emb(like, position[:, None])
        first, second = sin.chunk(2, -1)
        return Turn(cos, torch.cat([-first, second], -1))


class Layer:
    """A layer of the model."""

    def __init__(self, layer: Any) -> None:
        self.attention, self.mlp = layer.self_attn, layer.mlp
        projections = [self.attention.q_proj, self.attention.k_proj, self.attention.v_proj]
        self.size, self.scale = self.attention.head_dim, self.attention.scaling
        self.heads = [each.out_features // self.size for each in projections]
        self.projected = Together(layer.input_layernorm, *projections)
        self.widened = Together(
            layer.post_attention_layernorm, self.mlp.gate_proj, self.mlp.up_proj
        )
        normed = hasattr(self.attention, "q_norm")
        self.norms = [Norm(self.attention.q_norm), Norm(self.attention.k_norm)] if normed else None

    @property
    def widths(self) -> tuple[int, ...]:
        """Of what is kept of a node, in order."""
        size, wide = self.projected.weight.shape[0], self.widened.weight.shape[1]
        queries = self.heads[0]
        return size, sum(self.heads) * self.size, queries * self.size, queries, size, wide

    def asking(self, told: Tensor, turn: Turn) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (nodes, heads, size) each, of what was projected."""
        queries, keys, values = self.heads
        turning, value = told.unflatten(1, (-1, self.size)).split([queries + keys, values], 1)
        if self.norms is not None:
            each = zip(self.norms, turning.split([queries, keys], 1), strict=True)
            turning = torch.cat([norm(some) for norm, some in each], 1)
        query, key = turn(turning).split([queries, keys], 1)
        return query, key, value

    def left(self, hidden: Tensor, found: Tensor, room: Kept, left: Tensor | None) -> Tensor:
        """Nodes as they leave, from what they came as and what they found in attention."""
        after = plus_linear(hidden, self.attention.o_proj, found, room.after)
        gate, up = self.widened(after, room.wide).chunk(2, -1)
        return plus_linear(after, self.mlp.down_proj, silu(gate).mul_(up), left)

    def back(
        self,
        gradient: Tensor,
        kept: Kept,
        nodes: Tensor,
        turn: Turn,
        parts: Sequence[Part],
        found: Gradients,
    ) -> None:
        """Makes the gradient of what left that of what came; those of weights go into `found`."""
        whole = kept.found.index_select(0, nodes)
        through = torch.empty_like(whole)
        for some in pieces(len(nodes)):
            after, wide = (each.index_select(0, nodes[some]) for each in (kept.after, kept.wide))
            self.left_back(gradient[some], after, wide, found)
            through[some] = linear_back(self.attention.o_proj, whole[some], gradient[some], found)
        told, weight = (each.index_select(0, nodes) for each in (kept.told, kept.weight))
        asking = self.found_back(through, whole, weight, self.asking(told, turn), parts)
        for some in pieces(len(nodes)):
            of_told = self.asking_back(asking[some], told[some], turn.of(some), found)
            hidden = kept.hidden.index_select(0, nodes[some])
            gradient[some] += self.projected.back(of_told, hidden, found)

    def left_back(self, gradient: Tensor, after: Tensor, wide: Tensor, found: Gradients) -> None:
        """Makes the gradient of what left that of what left attention; `wide` is used up."""
        gate, up = wide.chunk(2, -1)
        opened = silu(gate)
        through = linear_back(self.mlp.down_proj, opened * up, gradient, found)
        of_up = opened.mul_(through)
        silu_backward(through.mul_(up), gate, grad_input=gate)
        up.copy_(of_up)
        gradient += self.widened.back(wide, after, found)

    def found_back(
        self,
        gradient: Tensor,
        whole: Tensor,
        weight: Tensor,
        asked: Sequence[Tensor],
        parts: Sequence[Part],
    ) -> Tensor:
        """The gradients of every head's query, key and value, (nodes, 3 · heads, size)."""
        queries = self.heads[0]
        by_head = [each.unflatten(1, (queries, -1)) for each in (gradient, whole)]
        back = gradient.new_empty(len(gradient), 3 * queries, self.size)
        gradient, whole, *each = (
            every_head(values, queries) for values in (*by_head, *asked, *back.chunk(3, 1))
        )
        weight = weight.t()[None]
        attended_back(gradient, each[:3], whole, weight, parts, self.scale, each[3:])
        return back

    def asking_back(self, back: Tensor, told: Tensor, turn: Turn, found: Gradients) -> Tensor:
        """The gradient of what was projected, from that of every head's query, key and value."""
        queries, keys, _ = self.heads
        if keys < queries:  # heads that share a key
            query, *shared = back.chunk(3, 1)
            summed = [each.unflatten(1, (keys, -1)).sum(2) for each in shared]
            back = torch.cat([query, *summed], 1)
        turning = back[:, : queries + keys]
        turned = turn.back(turning)
        if self.norms is not None:
            came = told.unflatten(1, (-1, self.size))[:, : queries + keys]
            both = (each.split([queries, keys], 1) for each in (turned, came))
            each = zip(self.norms, *both, strict=True)
            turned = torch.cat(
                [norm.back(some, *norm.shrunk(raw), found) for norm, some, raw in each], 1
            )
        turning.copy_(turned)
        return back.flatten(1)


def pieces(count: int) -> Iterator[slice]:
    """So many nodes, a few at once."""
    for first in range(0, count, PIECE):
        yield slice(first, min(first + PIECE, count))


def every_head(values: Tensor, heads: int) -> Tensor:
    """(nodes, perhaps fewer heads, size) as attention takes them, (1, heads, nodes, size)."""
    share = heads // values.shape[1]
    values = values if share == 1 else values.repeat_interleave(share, 1)
    return values.transpose(0, 1)[None]
