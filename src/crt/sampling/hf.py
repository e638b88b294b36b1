"""Batched sampling from any causal LM of transformers: nothing is computed twice, no row is idle.

Rollouts that agree so far share one row of the batch. A prompt is read once for its group, rows
split where their rollouts do, and finished rollouts leave. Every rollout has its own stream of
uniform numbers, drawn beforehand, so its tokens depend on the seed alone and not on the rows it
shares or on when others finish.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from crt.errors import EngineError
from crt.sampling.kv_cache import Layers, cache_layers, row_layout, shared_prefix_attention
from crt.sampling.packed import packed_weights

TOP_P_CANDIDATES = (4, 64)  # most likely tokens to look among first, then the whole vocabulary


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout: its tokens with EOS if it ended, and their log-probabilities at the temperature.

    With `top_p` below 1 they are still those of the whole distribution, as a trainer needs them.
    """

    tokens: list[int]
    logprobs: list[float]
    stop: Literal["eos", "length"]


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Numbers below 1e-38, such as tiny attention weights, are 0: they make a CPU crawl."""
    before = sys.float_info.min / 2 == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@torch.inference_mode()
@denormals_flushed()
def sample(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    num_samples: int,
    max_new_tokens: int,
    eos_token_ids: Iterable[int],
    *,
    generator: torch.Generator | None = None,
    uniform: Tensor | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    on_token: Callable[[int, int], None] | None = None,
    share_prompts: bool = True,
) -> list[list[Sample]]:
    """`num_samples` rollouts per prompt, (P, G); `on_token(rollout, token)` sees each as it comes.

    The random numbers come from a CPU generator, or are given as `uniform`, (P · G, tokens) in
    [0, 1): the same numbers give the same rollouts. Temperature 0 is greedy, with
    log-probabilities at temperature 1. The model should be in evaluation mode.
    """
    _check(prompts, num_samples, max_new_tokens)
    device, rollouts = model.device, len(prompts) * num_samples
    input_ids, mask = left_padded(prompts, device)
    layers = cache_layers(model, mask, num_samples, max_new_tokens, share_prompts)
    if uniform is None:
        uniform = torch.rand(rollouts, max_new_tokens, generator=generator)
    uniform = uniform.to(device)
    stops = torch.tensor(sorted(eos_token_ids), device=device)
    outputs, active = _Outputs(rollouts, max_new_tokens, device), _ActiveRows(mask, num_samples)

    decoder = _Decoder(model, layers)
    with packed_weights(model, max_new_tokens):
        logits = decoder.prefill(input_ids, mask)
        for step in range(max_new_tokens):
            draws = uniform[active.rollout, step]
            token, logprob = choose_tokens(logits, active.row, draws, temperature, top_p)
            ended = torch.isin(token, stops)
            outputs.add(active.rollout, step, token, logprob, ended)
            if on_token is not None:
                for rollout, value in zip(active.rollout.tolist(), token.tolist(), strict=True):
                    on_token(rollout, value)
            if step == max_new_tokens - 1 or ended.all():
                break
            split = active.advance(token, ended, layers)
            logits = decoder.decode(split.token, active.position, split.origin)
    return outputs.samples(num_samples)


def left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Prompts as one tensor with its attention mask; padding is masked, so any id does."""
    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids.to(device), mask.to(device)


def _check(prompts: Sequence[Sequence[int]], num_samples: int, max_new_tokens: int) -> None:
    if not prompts or not all(prompts):
        raise EngineError("there is no prompt, or one has no tokens: nothing can be sampled")
    if num_samples < 1 or max_new_tokens < 1:
        raise EngineError(
            f"cannot sample {num_samples} rollouts of {max_new_tokens} tokens: at least 1"
        )


# --- one step of the model -----------------------------------------------------------------------


class _Decoder:
    """The model's own forward with our cache."""

    def __init__(self, model: PreTrainedModel, layers: Layers) -> None:
        self.model, self.layers, self.cache = model, layers, Cache(layers=list(layers))

    def prefill(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        """Logits after the prompts."""
        self.mask = mask
        position = (mask.cumsum(1) - 1).clamp(min=0)
        return self._forward(input_ids, position)

    def decode(self, token: Tensor, position: Tensor, origin: Tensor) -> Tensor:
        """Logits after one more token per row; `origin` is the row that each continues."""
        self.mask = torch.cat([self.mask[origin], self.mask.new_ones(len(origin), 1)], 1)
        with shared_prefix_attention(self.model, self.layers):
            return self._forward(token[:, None], position[:, None])

    def _forward(self, input_ids: Tensor, position: Tensor) -> Tensor:
        output = self.model(
            input_ids=input_ids,
            attention_mask=self.mask,
            position_ids=position,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()


# --- rollouts and the rows they share ------------------------------------------------------------


class _Outputs:
    """Tokens of all rollouts so far, and their log-probabilities."""

    def __init__(self, rollouts: int, max_new_tokens: int, device: torch.device) -> None:
        self.tokens = torch.zeros(rollouts, max_new_tokens, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(rollouts, max_new_tokens, device=device)
        self.length = torch.zeros(rollouts, dtype=torch.long, device=device)
        self.ended = torch.zeros(rollouts, dtype=torch.bool, device=device)

    def add(self, rollout: Tensor, at: int, token: Tensor, logprob: Tensor, ended: Tensor) -> None:
        """One more token of every active rollout."""
        self.tokens[rollout, at] = token
        self.logprobs[rollout, at] = logprob
        self.length[rollout] += 1
        self.ended[rollout] = ended

    def samples(self, num_samples: int) -> list[list[Sample]]:
        """All rollouts, in order, by prompt."""
        columns = (self.tokens, self.logprobs, self.length, self.ended)
        flat = [
            Sample(tokens[:length], logprobs[:length], "eos" if ended else "length")
            for tokens, logprobs, length, ended in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]
        return [flat[first : first + num_samples] for first in range(0, len(flat), num_samples)]


class _ActiveRows:
    """The rollouts that continue, and the rows of the batch that they share while they agree."""

    def __init__(self, prompt_mask: Tensor, num_samples: int) -> None:
        device, self.num_prompts = prompt_mask.device, len(prompt_mask)
        self.rollout = torch.arange(self.num_prompts * num_samples, device=device)
        self.row = self.rollout // num_samples  # of each rollout
        self.prompt = torch.arange(self.num_prompts, device=device)  # of each row
        self.position = prompt_mask.sum(1) - 1  # of each row

    def advance(self, token: Tensor, ended: Tensor, layers: Layers) -> "RowSplit":
        """Ended rollouts leave, rows split where their rollouts differ."""
        going = ~ended
        self.rollout = self.rollout[going]
        split = split_rows(self.row[going], token[going])
        self.row = split.row
        if len(split.source) or len(split.origin) < len(self.position):
            self.prompt = self.prompt[split.origin]
            self.position = self.position[split.origin]
            layout = row_layout(self.prompt, self.num_prompts)
            for layer in layers:
                layer.move_rows(split.source, split.target, layout, len(self.rollout))
        self.position = self.position + 1
        return split


@dataclass(frozen=True, slots=True)
class RowSplit:
    """Rows after a token: `origin` is the row each continues, `token` the one that leads to it."""

    origin: Tensor
    token: Tensor
    row: Tensor  # of each rollout
    source: Tensor  # rows to copy
    target: Tensor  # where to; nobody needs what was there


def split_rows(row: Tensor, token: Tensor) -> RowSplit:
    """Of rollouts in these rows with these tokens; the rows that are left stand at the front.

    The first to continue a row keeps its place, unless that is beyond the last; the others take
    places that nobody continues.
    """
    pairs, which = ((row << 32) + token).unique(return_inverse=True)
    origin, token = pairs >> 32, pairs & 0xFFFFFFFF
    stays = origin < len(origin)
    stays[1:] &= origin[1:] != origin[:-1]
    free = torch.ones_like(stays)
    free[origin[stays]] = False
    place = origin.clone()
    place[~stays] = free.nonzero()[:, 0]
    order = place.argsort()
    return RowSplit(origin[order], token[order], place[which], origin[~stays], place[~stays])


# --- choosing tokens -----------------------------------------------------------------------------


def choose_tokens(
    logits: Tensor, row: Tensor, uniform: Tensor, temperature: float, top_p: float
) -> tuple[Tensor, Tensor]:
    """One token per rollout and its log-probability; `row` is whose logits it draws from."""
    logprobs = torch.log_softmax(logits / (temperature or 1.0), -1)
    if temperature == 0:
        token = logprobs.argmax(-1)[row]
    else:
        probability = logprobs.exp()
        kept = probability if top_p >= 1 else keep_top_p(probability, top_p)
        token = draw_tokens(kept[row], uniform)
    return token, logprobs[row, token]


def keep_top_p(probability: Tensor, top_p: float | Tensor) -> Tensor:
    """Zeroes all but the most likely tokens that together reach `top_p`.

    A few nearly always do, so more are sorted only for the rows that need it.
    """
    limit = torch.as_tensor(top_p, device=probability.device).expand(len(probability), 1)
    kept, rows, rest = torch.zeros_like(probability), None, probability
    for count in (*TOP_P_CANDIDATES, probability.shape[-1]):
        ordered, index = rest.topk(min(count, rest.shape[-1]), dim=-1)
        inside = ordered.masked_fill(ordered.cumsum(-1) - ordered >= limit, 0.0)
        some = torch.zeros_like(rest).scatter(-1, index, inside)
        kept = some if rows is None else kept.index_copy(0, rows, some)
        short = (ordered.cumsum(-1)[:, -1:] < limit)[:, 0].nonzero()[:, 0]
        if len(short) == 0:
            break
        rows = short if rows is None else rows[short]
        rest, limit = probability[rows], limit[short]
    return kept


def draw_tokens(probability: Tensor, uniform: Tensor) -> Tensor:
    """The token under which each row's uniform number falls."""
    reached = probability.cumsum(-1)
    total = reached[:, -1:]
    # Below the total even after rounding, so that a token with a probability above 0 is there.
    threshold = (uniform[:, None] * total).minimum(total.nextafter(torch.zeros_like(total)))
    token = torch.searchsorted(reached, threshold, right=True)[:, 0]
    return token.clamp(max=probability.shape[-1] - 1)  # NaN falls nowhere; the trainer reports it
