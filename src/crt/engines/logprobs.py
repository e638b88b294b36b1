"""How likely a model finds what was said, from whole logits: faster on a CPU than in tiles.

TRL projects to the vocabulary in tiles of 32,768 columns, first forwards and then once more
backwards, prompts included. That keeps a GPU's memory small; a small vocabulary's logits are then
spread over one such row for each token, out of reach of a CPU's caches.
"""

import inspect
from typing import Any

import torch
from torch import Tensor

FEW_LOGITS = 2**26  # a quarter of a gigabyte, and as much each for logarithms and gradients


def fits(model: Any, positions: int) -> bool:
    """Whether whole logits of so many positions are the better way."""
    inside = model.get_base_model() if hasattr(model, "get_base_model") else model  # of LoRA
    vocabulary = inside.config.get_text_config(decoder=True).vocab_size
    return (
        inside.device.type == "cpu"
        and positions * vocabulary <= FEW_LOGITS
        and "logits_to_keep" in inspect.signature(inside.forward).parameters
    )


def logprobs_and_entropies(
    model: Any, ids: Tensor, kept: int, temperature: float
) -> tuple[Tensor, Tensor]:
    """(rows, kept) log-probabilities of the last tokens of each row; entropies without gradient.

    Rows begin at the left edge, so attention is plainly causal.
    """
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=kept + 1).logits[:, :-1].float()
    logprobs = (logits if temperature == 1 else logits / temperature).log_softmax(-1)
    with torch.no_grad():
        entropies = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(-1, ids[:, -kept:, None])[..., 0], entropies
