"""The update on fewer tokens: micro-batches without padding, shared beginnings computed once."""

import inspect
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from crt.sampling.kv_cache import attention_replaced, has_plain_attention, unwrap_model

MicroBatch = dict[str, Any]
SHARED = "crt_shared_prefixes"  # the name of our attention in transformers' table
MAX_LOGITS = 2**29  # 2 GB in float32, and as much again for logarithms and for gradients


def regroup(batches: list[MicroBatch], by_prefix: bool) -> list[MicroBatch]:
    """The same rows in another order, trimmed to width; what is masked costs next to nothing.

    Rows of like length come together, or rows that begin alike. Sums over the whole batch, which
    the token-mean loss is made of, do not change. Batches with images are left as they are.
    """
    if any(name in batches[0] for name in ("pixel_values", "num_images")):
        return batches
    rows = len(batches[0]["completion_ids"])
    columns = [k for k, v in batches[0].items() if isinstance(v, Tensor) and v.shape[:1] == (rows,)]
    joined = {name: torch.cat([batch[name] for batch in batches]) for name in columns}
    completion = joined["completion_mask"].sum(1)
    cost = torch.where(completion > 0, completion + joined["prompt_mask"].sum(1), 0)
    if by_prefix:
        sequences = torch.cat([joined["prompt_ids"], joined["completion_ids"]], 1)
        order = sequences.unique(dim=0, return_inverse=True)[1].masked_fill(cost == 0, -1).argsort()
    else:
        order = cost.argsort(stable=True)
    pieces = {name: value[order].chunk(len(batches)) for name, value in joined.items()}
    return [
        trim({**batch, **{name: pieces[name][i] for name in columns}})
        for i, batch in enumerate(batches)
    ]


def trim(batch: MicroBatch) -> MicroBatch:
    """Without the columns that are padding in every row: prompts at the left, completions right."""
    width = batch["completion_ids"].shape[1]
    needed = int(batch["completion_mask"].sum(1).max())
    # Where every completion is masked nothing comes of the prompts either.
    prompt = max(int(batch["prompt_mask"].sum(1).max()), 1) if needed else 1
    # Two columns at the least: TRL takes a single one for a value per sequence and unmasks it.
    completion = max(needed, 2)
    trimmed: MicroBatch = {}
    for name, value in batch.items():
        if name in ("prompt_ids", "prompt_mask"):
            value = value[:, -prompt:]
        elif isinstance(value, Tensor) and value.ndim == 2 and value.shape[1] == width:
            value = value[:, :completion]
        trimmed[name] = value
    return trimmed


# --- shared beginnings ---------------------------------------------------------------------------
# All of a model but its attention looks at each token alone, so it runs once on every distinct
# beginning. Attention runs row by row, on the rows put together again.


def can_share_prefixes(model: Any, positions: int) -> bool:
    """Whether a model on a CPU can score so many tokens with shared beginnings.

    Not with dropout, which would drop in common, nor with gradient checkpointing, which attends
    once more later.
    """
    plain = unwrap_model(model)
    config = plain.config.get_text_config(decoder=True)
    dropout = plain.training and any(v for name, v in vars(config).items() if "drop" in name)
    return (
        positions * config.vocab_size <= MAX_LOGITS
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
    length = (attention_mask.sum(1) - 1).clamp(min=1)
    prefixes = merge_prefixes(aligned[:, : int(length.max())], length)
    prompt = attention_mask[:, :-width].sum(1, keepdim=True)
    column = prompt + torch.arange(width, device=input_ids.device)  # of each completion token
    before = (column - 1).clamp(0, prefixes.index.shape[1] - 1)
    predicting, row = prefixes.index.gather(1, before).unique(return_inverse=True)
    logits = forward(model, prefixes, predicting).float()
    logprobs = (logits if temperature == 1 else logits / temperature).log_softmax(-1)
    with torch.no_grad():
        entropies = -(logprobs.exp() * logprobs).sum(-1)
    token = aligned.gather(1, column.clamp(max=aligned.shape[1] - 1))
    return logprobs[row, token], entropies[row]


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The distinct beginnings of some rows, each with its last token."""

    token: Tensor  # (prefixes,)
    position: Tensor  # (prefixes,) of that token
    index: Tensor  # (rows, width) which prefix ends here; behind the end of a row, any
    place: Tensor  # (prefixes,) where the first row with it has it, in rows · width


def merge_prefixes(ids: Tensor, length: Tensor) -> Prefixes:
    """Of rows that begin at the left edge; in sorted rows a new prefix is where rows part."""
    rows, width = ids.shape
    inside = torch.arange(width, device=ids.device) < length[:, None]
    tokens = ids.masked_fill(~inside, -1)
    order = torch.tensor(sorted(range(rows), key=tokens.tolist().__getitem__), device=ids.device)
    tokens, new = tokens[order], inside[order]
    new[1:] &= ~(tokens[1:] == tokens[:-1]).cumprod(1).bool()
    number = torch.where(new, new.flatten().cumsum(0).view(rows, width) - 1, 0).cummax(0).values
    row, position = new.nonzero(as_tuple=True)
    return Prefixes(tokens[new], position, number[order.argsort()], order[row] * width + position)


_prefixes: ContextVar[Prefixes] = ContextVar("prefixes")


def forward(model: Any, prefixes: Prefixes, predicting: Tensor) -> Tensor:
    """Logits (n, vocabulary) after these prefixes, by the model's own forward."""
    token = _prefixes.set(prefixes)
    try:
        with attention_replaced(unwrap_model(model), SHARED):
            output = model(
                input_ids=prefixes.token[None],
                position_ids=prefixes.position[None],
                use_cache=False,
                logits_to_keep=predicting,
            )
    finally:
        _prefixes.reset(token)
    return output.logits[0]


def _attend_by_row(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """In transformers' form. Rows are padded behind their end, where nothing before them looks."""
    index, place = _prefixes.get().index, _prefixes.get().place

    def by_row(states: Tensor) -> Tensor:  # (1, heads, prefixes, size) → (rows, heads, width, size)
        rows = states[0].index_select(1, index.flatten()).unflatten(1, index.shape)
        # Under autocast the rotation leaves float32 behind.
        return rows.transpose(0, 1).to(value.dtype)

    grouped = query.shape[1] > key.shape[1]
    output = scaled_dot_product_attention(
        by_row(query), by_row(key), by_row(value), is_causal=True, scale=scaling, enable_gqa=grouped
    )
    return output.transpose(1, 2).flatten(0, 1).index_select(0, place)[None], None


ALL_ATTENTION_FUNCTIONS.register(SHARED, _attend_by_row)
