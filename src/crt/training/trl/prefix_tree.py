"""Responses that begin alike, as a tree: what they have in common is computed once.

All of a model but its attention looks at each token alone, so it works on the nodes, which stand
in the order of the sorted responses. What a response adds to those before it, a branch, is one
slice of them, and so is all that hangs on one of its nodes: attention goes from slice to slice,
and nothing is padded.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from crt.sampling.kv_cache import attention_replaced, unwrap_model

NAME = "crt_tree"

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, slots=True)
class Tree:
    """Rows of tokens as nodes, a parent before its children, all descendants right behind it."""

    token: Tensor  # (nodes,)
    depth: Tensor  # (nodes,)
    parent: Tensor  # (nodes,) a root is its own
    node: Tensor  # (rows, width) of every token; behind the end of a row it is some node


def tree_of(ids: Tensor, length: Tensor) -> Tree:
    """Of rows that begin at the left edge; in sorted rows a node is where a row leaves the last."""
    rows, width = ids.shape
    known = torch.arange(width, device=ids.device) < length[:, None]
    told = ids.masked_fill(~known, -1)
    order = torch.tensor(sorted(range(rows), key=told.tolist().__getitem__), device=ids.device)
    told, new = told[order], known[order]
    new[1:] &= ~(told[1:] == told[:-1]).cumprod(1).bool()
    number = torch.where(new, new.flatten().cumsum(0).view(rows, width) - 1, 0).cummax(0).values
    before = torch.cat([number[:, :1], number[:, :-1]], 1)
    return Tree(told[new], new.nonzero()[:, 1], before[new], number[order.argsort()])


@dataclass(frozen=True, slots=True)
class Part:
    """Of attention: a branch asks itself, causally, or all that hang on a node ask up to it."""

    asking: slice
    asked: slice

    @property
    def causal(self) -> bool:
        """Whether a node may not look at those after it."""
        return self.asking == self.asked


def parts_of(tree: Tree) -> list[Part]:
    """Every branch asks itself; then what hangs on it asks, so that each ancestor is asked once."""
    number = torch.arange(len(tree.parent), device=tree.parent.device)
    begins = tree.parent != number - 1  # a branch: it does not go on from the node before
    first = begins.nonzero()[:, 0].tolist()
    depth, parent = tree.depth[begins].tolist(), tree.parent[begins].tolist()
    branches = [slice(*pair) for pair in pairwise([*first, len(number)])]
    parts = [Part(branch, branch) for branch in branches]
    hanging: dict[int, slice] = {}  # on each node, from the first that does to the end of the last
    for k, (start, on) in enumerate(zip(first, parent, strict=True)):
        after = (first[j] for j in range(k + 1, len(first)) if depth[j] <= depth[k])
        if on != start:
            hanging[on] = slice(hanging.get(on, slice(start, 0)).start, next(after, len(number)))
    for on, behind in hanging.items():
        branch = branches[bisect_right(first, on) - 1]
        parts.append(Part(behind, slice(branch.start, on + 1)))
    return parts


def attended(
    query: Tensor, key: Tensor, value: Tensor, parts: Sequence[Part], scale: float
) -> tuple[Tensor, Tensor]:
    """Of every node to itself and its ancestors: (1, heads, nodes, size) from as much of each.

    A part comes with the logarithm of its weight, by which it is added to what a node has from
    other parts; that of the whole is told too. The first parts are each node's own branch.
    """
    found = torch.empty_like(query)
    weight = found.new_empty(query.shape[:-1], dtype=torch.float32)
    for part in parts:
        told, own = flash(
            query[:, :, part.asking], key[:, :, part.asked], value[:, :, part.asked],
            is_causal=part.causal, scale=scale,
        )  # fmt: skip
        if part.causal:
            found[:, :, part.asking], weight[:, :, part.asking] = told, own
        else:
            so_far = weight[:, :, part.asking]
            share = torch.sigmoid(own - so_far)[..., None]
            found[:, :, part.asking].lerp_(told, share.to(told.dtype))
            torch.logaddexp(so_far, own, out=so_far)
    return found, weight


def attended_back(
    gradient: Tensor,
    asked: Sequence[Tensor],
    found: Tensor,
    weight: Tensor,
    parts: Sequence[Part],
    scale: float,
    back: Sequence[Tensor],
) -> None:
    """Puts the gradients of the query, key and value that were asked into `back`.

    A part need only know the whole that was found, and its weight.
    """
    query, key, value = asked
    for part in parts:
        told = flash_backward(
            gradient[:, :, part.asking], query[:, :, part.asking],
            key[:, :, part.asked], value[:, :, part.asked],
            found[:, :, part.asking], weight[:, :, part.asking], 0.0, part.causal, scale=scale,
        )  # fmt: skip
        for whole, where, some in zip(
            back, (part.asking, part.asked, part.asked), told, strict=True
        ):
            if part.causal:  # the first of every node
                whole[:, :, where] = some
            else:
                whole[:, :, where] += some


class Attention(torch.autograd.Function):
    """Of every node to its past, for autograd."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, parts: list[Part], scale: float
    ) -> Tensor:
        """What is found."""
        found, weight = attended(query, key, value, parts, scale)
        ctx.save_for_backward(query, key, value, found, weight)
        ctx.parts, ctx.scale = parts, scale
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Of query, key and value."""
        *asked, found, weight = ctx.saved_tensors
        back = [torch.empty_like(each) for each in asked]
        attended_back(gradient, asked, found, weight, ctx.parts, ctx.scale, back)
        return *back, None, None


_parts: ContextVar[list[Part]] = ContextVar("parts")


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of every node to its past, in transformers' form."""
    # Under autocast the rotation leaves float32 behind; torch's own attention would cast it too.
    query, key = query.to(value.dtype), key.to(value.dtype)
    share = query.shape[1] // key.shape[1]
    if share > 1:
        key, value = key.repeat_interleave(share, 1), value.repeat_interleave(share, 1)
    scale = scaling or query.shape[-1] ** -0.5
    found: Any = Attention.apply(query, key, value, _parts.get(), scale)
    return found.transpose(1, 2), None


ALL_ATTENTION_FUNCTIONS.register(NAME, attend)


def forward(model: Any, tree: Tree, asked: Tensor) -> Tensor:
    """Logits (n, vocabulary) after the nodes that are asked, by the model's own forward."""
    token = _parts.set(parts_of(tree))
    try:
        with attention_replaced(unwrap_model(model), NAME):
            said = model(
                input_ids=tree.token[None],
                position_ids=tree.depth[None],
                use_cache=False,
                logits_to_keep=asked,
            )
    finally:
        _parts.reset(token)
    return said.logits[0]
