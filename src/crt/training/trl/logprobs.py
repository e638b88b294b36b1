"""How likely a model finds what was said, on a CPU: faster there than TRL's way.

TRL projects to the vocabulary in tiles of 32,768 columns, first forwards and then once more
backwards, prompts included. That keeps a GPU's memory small; a small vocabulary's logits are then
spread over one such row for each token, out of reach of a CPU's caches. Here they are whole, what
responses have in common is computed once.
"""

import inspect
from typing import Any

import torch
from torch import Tensor

from crt.sampling.kv_cache import has_plain_attention, unwrap_model
from crt.training.trl.prefix_tree import forward, tree_of

FEW_LOGITS = 2**26  # a quarter of a gigabyte, and as much each for logarithms and gradients


def fits(model: Any, positions: int) -> bool:
    """Whether whole logits of so many positions are the better way."""
    model = unwrap_model(model)
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    return (
        model.device.type == "cpu"
        and positions * vocabulary <= FEW_LOGITS
        and "logits_to_keep" in inspect.signature(model.forward).parameters
    )


def shares(model: Any, positions: int) -> bool:
    """Whether moreover what rows have in common is computed once."""
    plain = unwrap_model(model)
    config = plain.config.get_text_config(decoder=True)
    checkpointing = getattr(plain, "is_gradient_checkpointing", False)  # it attends once more later
    dropout = plain.training and any("drop" in name and each for name, each in vars(config).items())
    return (
        fits(model, positions) and has_plain_attention(plain) and not checkpointing and not dropout
    )


def logprobs_and_entropies(
    model: Any,
    ids: Tensor,
    length: Tensor,
    kept: int,
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """(rows, kept) log-probabilities of the last columns' tokens; entropies without gradient.

    Rows begin at the left edge, so attention is plainly causal; behind the end of a row they are
    of no meaning.
    """
    said = ids[:, -kept:]
    if shares(model, said.numel()):
        logits, which = logits_before(model, ids, length, kept)
    else:
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=kept + 1).logits[:, :-1]
        which = torch.arange(said.numel(), device=ids.device).view(said.shape)
        logits = logits.flatten(0, 1)
    logits = logits.float()
    logprobs = (logits if temperature == 1 else logits / temperature).log_softmax(-1)
    with torch.no_grad():
        entropies = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs[which, said], entropies[which]


def logits_before(model: Any, ids: Tensor, length: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """Logits (n, vocabulary), and which of them each of a row's last tokens was said from."""
    tree = tree_of(ids, (length - 1).clamp(min=1))  # nothing is said after the last
    asked, which = tree.node[:, -kept - 1 : -1].unique(return_inverse=True)
    return forward(model, tree, asked), which
