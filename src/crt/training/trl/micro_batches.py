"""Micro-batches without the padding: rows of like length together, each batch as wide as needed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MicroBatch = dict[str, Any]


def packed(batches: list[MicroBatch], alike: bool) -> list[MicroBatch]:
    """The same rows in another order, cut to width; what is masked costs next to nothing.

    Rows of like length come together, or rows that begin `alike`. Sums over the whole batch, which
    the token-mean loss is made of, do not change. Batches with images are left as they are.
    """
    if any(name in batches[0] for name in ("pixel_values", "num_images")):
        return batches
    rows = len(batches[0]["completion_ids"])
    split = [k for k, v in batches[0].items() if isinstance(v, Tensor) and v.shape[:1] == (rows,)]
    joined = {name: torch.cat([batch[name] for batch in batches]) for name in split}
    cost = _cost(joined)
    if alike:
        said = torch.cat([joined["prompt_ids"], joined["completion_ids"]], 1)
        rank = said.unique(dim=0, return_inverse=True)[1].masked_fill(cost == 0, -1)
        order = rank.argsort(stable=True)
    else:
        order = cost.argsort(stable=True)
    pieces = {name: value[order].chunk(len(batches)) for name, value in joined.items()}
    return [
        trimmed({**batch, **{name: pieces[name][i] for name in split}})
        for i, batch in enumerate(batches)
    ]


def said_once(batch: MicroBatch) -> MicroBatch:
    """Of equal responses with equal advantages one, whose tokens weigh as often as it was said.

    The others are masked. TRL multiplies `tool_mask` into the loss and its figures, and leaves it
    out of attention: there the weights are.
    """
    bits = batch["advantages"].float().view(torch.int32)[:, None]  # equal to the last one
    said = [batch[name] for name in ("prompt_ids", "completion_ids", "completion_mask")]
    _, which, count = torch.cat([*said, bits], 1).unique(
        dim=0, return_inverse=True, return_counts=True
    )
    rows = torch.arange(len(which), device=which.device)
    first = count.new_empty(len(count)).scatter_reduce(0, which, rows, "amin", include_self=False)
    mask = batch["completion_mask"]
    weight = mask.new_zeros(len(rows), 1)
    weight[first, 0] = count.to(weight.dtype)
    once = {"completion_mask": mask * (weight > 0), "tool_mask": weight.expand_as(mask).clone()}
    return batch | once


def _cost(batch: MicroBatch) -> Tensor:
    """Tokens a row needs; none if its completion is masked."""
    completion = batch["completion_mask"].sum(1)
    return torch.where(completion > 0, completion + batch["prompt_mask"].sum(1), 0)


def trimmed(batch: MicroBatch) -> MicroBatch:
    """Without the columns that are padding in every row: prompts at the left, completions right."""
    width = batch["completion_ids"].shape[1]
    needed = int(batch["completion_mask"].sum(1).max())
    # Where every completion is masked nothing comes of the prompts either.
    prompt = max(int(batch["prompt_mask"].sum(1).max()), 1) if needed else 1
    # Two columns at the least: TRL takes a single one for a figure per sequence and unmasks it.
    completion = max(needed, 2)
    kept: MicroBatch = {}
    for name, value in batch.items():
        if name in ("prompt_ids", "prompt_mask"):
            value = value[:, -prompt:]
        elif isinstance(value, Tensor) and value.ndim == 2 and value.shape[1] == width:
            value = value[:, :completion]
        kept[name] = value
    return kept


@dataclass(frozen=True, slots=True)
class LeftAligned:
    """Rows moved to the left edge: with all padding behind them, causal attention needs no mask."""

    ids: Tensor  # (rows, width of the longest)
    kept: int  # columns from the right that hold a completion
    place: Tensor  # (rows, completion width): where among those each completion token is

    def completions(self, values: Tensor) -> Tensor:
        """Values of the kept columns, as columns of the completions."""
        return values.gather(1, self.place)


def left_aligned(ids: Tensor, mask: Tensor, completion_width: int) -> LeftAligned:
    """Takes rows with prompts padded at the left and completions padded at the right."""
    width = max(int(mask.sum(1).max()), 2)  # a token is said after another
    order = mask.argsort(dim=1, descending=True, stable=True)[:, :width]
    prompts = mask[:, : mask.shape[1] - completion_width].sum(1, keepdim=True)
    kept = max(width - int(prompts.min()), 1)
    column = torch.arange(completion_width, device=ids.device)
    return LeftAligned(
        ids.gather(1, order), kept, (prompts + column - (width - kept)).clamp(max=kept - 1)
    )


def scored_in_parts(
    score: Callable[[Tensor, Tensor, int], Tensor],
    ids: Tensor,
    mask: Tensor,
    completion_width: int,
    rows_at_once: int,
    alike: bool,
) -> Tensor:
    """What `score(ids, mask, completion width)` says of completions, a few rows at once.

    Rows of like length, or as they come if neighbours begin `alike`.
    """
    order = torch.arange(len(ids)) if alike else mask.sum(1).argsort(stable=True)
    found = torch.zeros(len(ids), completion_width, device=ids.device)
    for rows in order.split(rows_at_once):
        found[rows] = score(ids[rows], mask[rows], completion_width)
    return found
