"""Which token is said next: the distribution at a temperature, its nucleus, and a draw from it."""

from collections.abc import Sequence

import torch
from torch import Tensor

FEW = (4, 64)  # tokens among which the nucleus is looked for first, then in the whole vocabulary


def nucleus(probability: Tensor, top_p: float | Tensor) -> Tensor:
    """Zeroes all but the most likely tokens that together reach `top_p`.

    Few nearly always do, so more are put in order only for the rows that need it.
    """
    limit = torch.as_tensor(top_p, device=probability.device).expand(len(probability), 1)
    kept, rows, left = torch.zeros_like(probability), None, probability
    for few in (*FEW, probability.shape[-1]):
        ordered, index = left.topk(min(few, left.shape[-1]), dim=-1)
        found = torch.zeros_like(left).scatter(-1, index, _until(ordered, limit))
        kept = found if rows is None else kept.index_copy(0, rows, found)
        short = (ordered.cumsum(-1)[:, -1:] < limit)[:, 0].nonzero()[:, 0]
        if len(short) == 0:
            break
        rows = short if rows is None else rows[short]
        left, limit = probability[rows], limit[short]
    return kept


def _until(ordered: Tensor, limit: Tensor) -> Tensor:
    """The first ones up to that which reaches the limit; the others are 0."""
    return ordered.masked_fill(ordered.cumsum(-1) - ordered >= limit, 0.0)


def draw(probability: Tensor, uniform: Tensor) -> Tensor:
    """The token under which each row's uniform number falls: one number a row and step suffices."""
    reached = probability.cumsum(-1)
    total = reached[:, -1:]
    # Below the total even after rounding, so that somebody is above it, whose probability is not 0.
    threshold = (uniform[:, None] * total).minimum(total.nextafter(torch.zeros_like(total)))
    found = torch.searchsorted(reached, threshold, right=True)[:, 0]
    return found.clamp(
        max=probability.shape[-1] - 1
    )  # NaN is below nothing; the trainer reports it


def uniforms(
    generator: torch.Generator | Sequence[torch.Generator], rows: int, room: int
) -> Tensor:
    """(rows, room) numbers in [0, 1); a prompt's own generator draws for all of its rollouts."""
    if isinstance(generator, torch.Generator):
        return torch.rand(rows, room, generator=generator)
    copies = rows // len(generator)
    return torch.cat([torch.rand(copies, room, generator=each) for each in generator])


def choose(
    logits: Tensor, row: Tensor, uniform: Tensor, temperature: float, top_p: float
) -> tuple[Tensor, Tensor]:
    """One token a rollout and its log-probability; `row` says whose logits it draws from."""
    logprobs = torch.log_softmax(logits / (temperature or 1.0), -1)
    if temperature == 0:
        token = logprobs.argmax(-1)[row]
    else:
        probability = logprobs.exp()
        kept = probability if top_p >= 1 else nucleus(probability, top_p)
        token = draw(kept[row], uniform)
    return token, logprobs[row, token]
