"""Responses that begin alike, as a tree: what they have in common is computed once.

All of a model but its attention looks at each token alone, so it works on the nodes. Attention
needs what was said in order: there the nodes are spread to whole rows, and one place of each node
gives what comes out.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from crt.engines.attention import inside, replaced

NAME = "crt_tree"
ROWS = 4  # that attend at once: rows of like length need little padding


@dataclass(frozen=True, slots=True)
class Tree:
    """Rows of tokens as nodes, a parent before its children."""

    token: Tensor  # (nodes,)
    depth: Tensor  # (nodes,)
    parent: Tensor  # (nodes,) a root is its own
    node: Tensor  # (rows, width) of every token; behind the end of a row it is some node
    new: Tensor  # (rows, width) whether a node is there for the first time


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
    back = order.argsort()
    return Tree(told[new], new.nonzero()[:, 1], before[new], number[back], new[back])


@dataclass(frozen=True, slots=True)
class Places:
    """Where the nodes stand when rows attend, in pieces of a few rows of like length."""

    shapes: list[tuple[int, int]]  # rows and width of each piece
    node: Tensor  # at every place of all pieces, one after another
    one: Tensor  # (nodes,) a place of each
    all: Tensor  # every place of the first node, then of the second, …
    first: Tensor  # (nodes,) where a node's begin among those


def places_of(tree: Tree, length: Tensor) -> Places:
    """Of the nodes in rows of these lengths."""
    pieces = [(some, int(length[some].max())) for some in length.argsort(stable=True).split(ROWS)]

    def laid(values: Tensor) -> Tensor:
        return torch.cat([values[some, :width].flatten() for some, width in pieces])

    node, new = laid(tree.node), laid(tree.new).nonzero()[:, 0]
    known = laid(torch.arange(tree.node.shape[1], device=node.device) < length[:, None])
    held, order = node[known].sort(stable=True)
    count = torch.arange(len(tree.token), device=node.device)
    return Places(
        [(len(some), width) for some, width in pieces],
        node,
        new[node[new].argsort()],
        known.nonzero()[:, 0][order],
        torch.searchsorted(held, count),
    )


class Spread(torch.autograd.Function):
    """Values of nodes at all of their places; gradients add up."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, places: Places) -> Tensor:
        """(places, …) from (nodes, …)."""
        ctx.places = places
        return values.index_select(0, places.node)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Of a node the sum over its places: much faster so than by adding row for row."""
        places: Places = ctx.places
        return embedding_bag(places.all, gradient.contiguous(), places.first, mode="sum"), None


class Gathered(torch.autograd.Function):
    """Values at one place of every node, where all of its places have the same."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, places: Places) -> Tensor:
        """(nodes, …) from (places, …)."""
        ctx.places, ctx.shape = places, values.shape
        return values.index_select(0, places.one)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """To that place."""
        return gradient.new_zeros(ctx.shape).index_copy_(0, ctx.places.one, gradient), None


_places: ContextVar[Places] = ContextVar("places")


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of every node to its past, in transformers' form."""
    places, heads = _places.get(), [query.shape[1], key.shape[1], value.shape[1]]
    nodes = [each[0].transpose(0, 1) for each in (query, key, value)]
    spread: Any = Spread.apply(torch.cat(nodes, 1).flatten(1), places)
    found: list[Tensor] = []
    for piece, (rows, width) in zip(
        spread.split([rows * width for rows, width in places.shapes]), places.shapes, strict=True
    ):
        asked = piece.view(rows, width, sum(heads), -1).transpose(1, 2).split(heads, 1)
        told = scaled_dot_product_attention(
            *asked, dropout_p=dropout, is_causal=True, scale=scaling, enable_gqa=True
        )
        found.append(told.transpose(1, 2).reshape(rows * width, -1))
    own: Any = Gathered.apply(torch.cat(found), places)
    return own.view(1, len(own), heads[0], -1), None


ALL_ATTENTION_FUNCTIONS.register(NAME, attend)


def logits_before(model: Any, ids: Tensor, length: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """Logits (n, vocabulary), and which of them each of a row's last tokens was said from."""
    tree = tree_of(ids, length)
    asked, which = tree.parent[tree.node[:, -kept:]].unique(return_inverse=True)
    token = _places.set(places_of(tree, length))
    try:
        with replaced(inside(model), NAME):
            said = model(
                input_ids=tree.token[None],
                position_ids=tree.depth[None],
                use_cache=False,
                logits_to_keep=asked,
            )
    finally:
        _places.reset(token)
    return said.logits[0], which
