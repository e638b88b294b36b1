"""Log-probabilities of responses that begin alike: what they share is computed once.

The rows of a micro-batch are the paths of a tree. All of a model but its attention looks at each
token alone, so it runs on the nodes, which stand in the order of the sorted rows. What a row adds
to those before it, a branch, is one slice of the nodes; so are all descendants of a node.
Attention goes from slice to slice, and nothing is padded.
"""

import inspect
from bisect import bisect_right
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from crt.sampling.kv_cache import attention_replaced, has_plain_attention, unwrap_model

TREE_ATTENTION = "crt_tree"  # the name of our attention in transformers' table
MAX_LOGITS = 2**29  # 2 GB in float32, and as much again for logarithms and for gradients

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def tree_fits(model: Any, positions: int) -> bool:
    """Whether a model on a CPU can score so many tokens through the tree.

    Not with dropout, nor with gradient checkpointing, which attends once more later.
    """
    plain = unwrap_model(model)
    config = plain.config.get_text_config(decoder=True)
    dropout = plain.training and any(v for name, v in vars(config).items() if "drop" in name)
    return (
        plain.device.type == "cpu"
        and positions * config.vocab_size <= MAX_LOGITS
        and "logits_to_keep" in inspect.signature(plain.forward).parameters
        and has_plain_attention(plain)
        and not getattr(plain, "is_gradient_checkpointing", False)
        and not dropout
    )


def completion_logprobs(
    model: Any, input_ids: Tensor, attention_mask: Tensor, width: int, temperature: float
) -> tuple[Tensor, Tensor]:
    """(rows, width) log-probabilities of the last tokens; entropies, without gradient.

    Prompts are padded at the left, completions at the right. Padding has some finite value.
    """
    aligned = input_ids.gather(1, attention_mask.argsort(dim=1, descending=True, stable=True))
    # Nothing is predicted from the last token of a row.
    tree = build_tree(aligned, (attention_mask.sum(1) - 1).clamp(min=1))
    prompt = attention_mask[:, :-width].sum(1, keepdim=True)
    column = prompt + torch.arange(width, device=input_ids.device)  # of each completion token
    column = column.clamp(1, aligned.shape[1] - 1)
    parents, row = tree.node.gather(1, column - 1).unique(return_inverse=True)
    logits = forward(model, tree, parents).float()
    logprobs = (logits if temperature == 1 else logits / temperature).log_softmax(-1)
    with torch.no_grad():
        entropies = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs[row, aligned.gather(1, column)], entropies[row]


# --- the tree ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tree:
    """Rows of tokens as nodes, a parent before its children, all descendants right behind it."""

    token: Tensor  # (nodes,)
    depth: Tensor  # (nodes,)
    parent: Tensor  # (nodes,) a root is its own
    node: Tensor  # (rows, width) of every token; behind the end of a row it is some node


def build_tree(ids: Tensor, length: Tensor) -> Tree:
    """Of rows that begin at the left edge; in sorted rows a node is where a row leaves the last."""
    rows, width = ids.shape
    inside = torch.arange(width, device=ids.device) < length[:, None]
    tokens = ids.masked_fill(~inside, -1)
    order = torch.tensor(sorted(range(rows), key=tokens.tolist().__getitem__), device=ids.device)
    tokens, new = tokens[order], inside[order]
    new[1:] &= ~(tokens[1:] == tokens[:-1]).cumprod(1).bool()
    number = torch.where(new, new.flatten().cumsum(0).view(rows, width) - 1, 0).cummax(0).values
    before = torch.cat([number[:, :1], number[:, :-1]], 1)
    return Tree(tokens[new], new.nonzero()[:, 1], before[new], number[order.argsort()])


@dataclass(frozen=True, slots=True)
class Block:
    """A block of attention: a branch with itself, causally, or descendants with an ancestor."""

    query: slice
    key: slice

    @property
    def causal(self) -> bool:
        """Whether a node may not look at those after it."""
        return self.query == self.key


def attention_blocks(tree: Tree) -> list[Block]:
    """Every branch with itself, then with what hangs on it, so that no ancestor comes twice."""
    number = torch.arange(len(tree.parent), device=tree.parent.device)
    begins = tree.parent != number - 1  # a branch: it does not go on from the node before
    first = begins.nonzero()[:, 0].tolist()
    depth, parent = tree.depth[begins].tolist(), tree.parent[begins].tolist()
    branches = [slice(*pair) for pair in pairwise([*first, len(number)])]
    blocks = [Block(branch, branch) for branch in branches]
    descendants: dict[int, slice] = {}  # of each node on which branches hang
    for k, (start, on) in enumerate(zip(first, parent, strict=True)):
        after = (first[j] for j in range(k + 1, len(first)) if depth[j] <= depth[k])
        if on != start:
            begin = descendants.get(on, slice(start, 0)).start
            descendants[on] = slice(begin, next(after, len(number)))
    for on, below in descendants.items():
        branch = branches[bisect_right(first, on) - 1]
        blocks.append(Block(below, slice(branch.start, on + 1)))
    return blocks


# --- attention by blocks -------------------------------------------------------------------------


class TreeAttention(torch.autograd.Function):
    """Of every node to itself and its ancestors: (1, heads, nodes, size) from as much of each.

    Every block comes with the logarithm of its softmax's denominator, by which blocks are added
    up; the backward pass of a block needs only the whole output and its denominator.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float
    ) -> Tensor:
        """The first blocks are each node's own branch; the others are added to it."""
        output = torch.empty_like(query)
        logsumexp = output.new_empty(query.shape[:-1], dtype=torch.float32)
        for block in blocks:
            part, own = flash(
                query[:, :, block.query], key[:, :, block.key], value[:, :, block.key],
                is_causal=block.causal, scale=scale,
            )  # fmt: skip
            if block.causal:
                output[:, :, block.query], logsumexp[:, :, block.query] = part, own
            else:
                so_far = logsumexp[:, :, block.query]
                share = torch.sigmoid(own - so_far)[..., None]
                output[:, :, block.query].lerp_(part, share.to(part.dtype))
                torch.logaddexp(so_far, own, out=so_far)
        ctx.save_for_backward(query, key, value, output, logsumexp)
        ctx.blocks, ctx.scale = blocks, scale
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Of query, key and value."""
        query, key, value, output, logsumexp = ctx.saved_tensors
        gradients = [torch.empty_like(tensor) for tensor in (query, key, value)]
        for block in ctx.blocks:
            parts = flash_backward(
                gradient[:, :, block.query], query[:, :, block.query],
                key[:, :, block.key], value[:, :, block.key], output[:, :, block.query],
                logsumexp[:, :, block.query], 0.0, block.causal, scale=ctx.scale,
            )  # fmt: skip
            places = (block.query, block.key, block.key)
            for whole, place, part in zip(gradients, places, parts, strict=True):
                if block.causal:  # the first of every node
                    whole[:, :, place] = part
                else:
                    whole[:, :, place] += part
        return *gradients, None, None


_blocks: ContextVar[list[Block]] = ContextVar("blocks")


def _tree_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """In transformers' form."""
    # Under autocast the rotation leaves float32 behind; torch's own attention would cast it too.
    query, key = query.to(value.dtype), key.to(value.dtype)
    share = query.shape[1] // key.shape[1]
    if share > 1:
        key, value = key.repeat_interleave(share, 1), value.repeat_interleave(share, 1)
    scale = scaling or query.shape[-1] ** -0.5
    output: Any = TreeAttention.apply(query, key, value, _blocks.get(), scale)
    return output.transpose(1, 2), None


ALL_ATTENTION_FUNCTIONS.register(TREE_ATTENTION, _tree_attention)


def forward(model: Any, tree: Tree, nodes: Tensor) -> Tensor:
    """Logits (n, vocabulary) after these nodes, by the model's own forward."""
    token = _blocks.set(attention_blocks(tree))
    try:
        with attention_replaced(unwrap_model(model), TREE_ATTENTION):
            output = model(
                input_ids=tree.token[None],
                position_ids=tree.depth[None],
                use_cache=False,
                logits_to_keep=nodes,
            )
    finally:
        _blocks.reset(token)
    return output.logits[0]
