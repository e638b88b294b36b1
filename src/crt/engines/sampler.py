"""Fast batched sampling for any causal LM: its own forward, a preallocated cache, no idle rows.

A prompt is read once for all of its rollouts, and a finished rollout leaves the batch. Every
rollout has its own stream of uniform numbers, drawn beforehand, so what it says depends on the
seed alone and not on when the others finish.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from crt.engines.cache import RoomyLayer
from crt.engines.shared_prompt import SharedPromptLayer, can_share, sharing
from crt.errors import EngineError

FEW = (4, 64)  # tokens among which the nucleus is looked for first, then in the whole vocabulary
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout: its tokens with EOS if it ended, and their log-probabilities at the temperature.

    With `top_p` below 1 they are still those of the whole distribution, as a trainer needs them.
    """

    tokens: list[int]
    logprobs: list[float]
    stop: Literal["eos", "length"]


class PreallocatedLayer(RoomyLayer):
    """Of all rollouts, each with its own copy of the prompt."""

    def __init__(self, rows: int, copies: int, room: int) -> None:
        super().__init__(rows, room)
        self.copies, self.used = copies, 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Stores new keys and values; the prompt's are copied to each of its rollouts."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self.stored()
        rows, start, end = key_states.shape[0], self.used, self.used + key_states.shape[2]
        self.used = end
        if start == 0:
            keys[:, :, :end] = key_states.repeat_interleave(self.copies, 0)
            values[:, :, :end] = value_states.repeat_interleave(self.copies, 0)
            return key_states, value_states
        keys[:rows, :, start:end] = key_states
        values[:rows, :, start:end] = value_states
        return keys[:rows, :, :end], values[:rows, :, :end]

    def move(self, source: Tensor, target: Tensor, stay: int) -> None:
        """Fills the places of finished rows with rows from the end that go on."""
        self.copy_rows(source, target, self.used)

    def get_seq_length(self) -> int:
        """Positions filled so far."""
        return self.used

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of this length sees."""
        return self.used + query_length, 0


Layers = list[PreallocatedLayer] | list[SharedPromptLayer]


def layers_for(model: PreTrainedModel, mask: Tensor, copies: int, room: int, share: bool) -> Layers:
    """One layer of cache per layer of the model; prompts that many ask are kept once."""
    config = model.config.get_text_config(decoder=True)
    other = set(getattr(config, "layer_types", None) or ()) - ATTENTION
    if other:
        raise EngineError(
            f"{type(model).__name__} has layers of type {', '.join(sorted(other))}, which this "
            "sampler cannot cache. Generate with the model's own `generate` or with vLLM."
        )
    rows, count = len(mask) * copies, config.num_hidden_layers
    if share and can_share(model):
        return [SharedPromptLayer(rows, room, mask) for _ in range(count)]
    return [PreallocatedLayer(rows, copies, mask.shape[1] + room) for _ in range(count)]


def left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Prompts as one tensor with its attention mask; what pads them is masked, so any id does."""
    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids.to(device), mask.to(device)


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


def check(prompts: Sequence[Sequence[int]], copies: int, max_new_tokens: int) -> None:
    """Refuses what cannot be sampled."""
    if not prompts or not all(prompts):
        raise EngineError("there is no prompt, or one has no tokens: nothing can be sampled")
    if copies < 1 or max_new_tokens < 1:
        raise EngineError(f"cannot sample {copies} rollouts of {max_new_tokens} tokens: at least 1")


class Spoken:
    """What the rollouts have said so far, and how likely it was."""

    def __init__(self, rows: int, room: int, device: torch.device) -> None:
        self.tokens = torch.zeros(rows, room, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(rows, room, device=device)
        self.length = torch.zeros(rows, dtype=torch.long, device=device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device)

    def add(self, rollout: Tensor, at: int, token: Tensor, logprob: Tensor, over: Tensor) -> None:
        """Notes one more token of every live rollout."""
        self.tokens[rollout, at] = token
        self.logprobs[rollout, at] = logprob
        self.length[rollout] += 1
        self.ended[rollout] = over

    def samples(self, copies: int) -> list[list[Sample]]:
        """All rollouts, in order, by prompt."""
        told = [
            Sample(tokens[:length], logprobs[:length], "eos" if ended else "length")
            for tokens, logprobs, length, ended in zip(
                self.tokens.tolist(),
                self.logprobs.tolist(),
                self.length.tolist(),
                self.ended.tolist(),
                strict=True,
            )
        ]
        return [told[first : first + copies] for first in range(0, len(told), copies)]


class Live:
    """The rows of the batch: which rollout each carries, where it is, what it may look at."""

    def __init__(self, mask: Tensor, copies: int, room: int) -> None:
        mask = mask.repeat_interleave(copies, 0)
        self.rollout = torch.arange(len(mask), device=mask.device)
        self.position = mask.sum(1, keepdim=True) - 1
        self.seen = torch.cat([mask, mask.new_ones(len(mask), room)], 1)

    def without(self, over: Tensor, token: Tensor, layers: Layers) -> Tensor:
        """Lets finished rows leave and the others move on; returns what those said last."""
        source, target, stay = compaction(over)
        if stay < len(over):
            for layer in layers:
                layer.move(source, target, stay)
            for kept in (self.rollout, self.position, self.seen, token):
                kept[target] = kept[source]
        self.rollout, self.seen = self.rollout[:stay], self.seen[:stay]
        self.position = self.position[:stay] + 1
        return token[:stay]


def compaction(over: Tensor) -> tuple[Tensor, Tensor, int]:
    """Which rows from the end take the places of finished ones, those places, how many stay."""
    stay = int((~over).sum())
    return (~over[stay:]).nonzero()[:, 0] + stay, over[:stay].nonzero()[:, 0], stay


@torch.inference_mode()
def sample(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    copies: int,
    max_new_tokens: int,
    eos_ids: Iterable[int],
    *,
    generator: torch.Generator | Sequence[torch.Generator],
    temperature: float = 1.0,
    top_p: float = 1.0,
    on_token: Callable[[int, int], None] | None = None,
    share_prompts: bool = True,
) -> list[list[Sample]]:
    """`copies` rollouts of every prompt, (P, G); `on_token(rollout, token)` sees each as it comes.

    `generator` is a CPU generator for all, or one for each prompt: the same seeds give the same
    rollouts. Temperature 0 is greedy, with log-probabilities at temperature 1. The model should be
    in evaluation mode.
    """
    check(prompts, copies, max_new_tokens)
    device, rows = model.device, len(prompts) * copies
    ids, mask = left_padded(prompts, device)
    width = ids.shape[1]
    layers = layers_for(model, mask, copies, max_new_tokens, share_prompts)
    cache = Cache(layers=list(layers))
    uniform = uniforms(generator, rows, max_new_tokens).to(device)
    stops = torch.tensor(sorted(eos_ids), device=device)
    spoken, live = Spoken(rows, max_new_tokens, device), Live(mask, copies, max_new_tokens)

    position = (mask.cumsum(1) - 1).clamp(min=0)
    logits = forward(model, ids, mask, position, cache).repeat_interleave(copies, 0)
    with sharing(model, layers):
        for at in range(max_new_tokens):
            token, logprob = choose(logits, uniform[live.rollout, at], temperature, top_p)
            over = torch.isin(token, stops)
            spoken.add(live.rollout, at, token, logprob, over)
            if on_token is not None:
                for rollout, value in zip(live.rollout.tolist(), token.tolist(), strict=True):
                    on_token(rollout, value)
            token = live.without(over, token, layers)
            if len(token) == 0 or at == max_new_tokens - 1:
                break
            seen = live.seen[:, : width + at + 1]
            logits = forward(model, token[:, None], seen, live.position, cache)
    return spoken.samples(copies)


def forward(
    model: PreTrainedModel, ids: Tensor, mask: Tensor, position: Tensor, cache: Cache
) -> Tensor:
    """Logits of the next token in float32."""
    result = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=position,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return result.logits[:, -1].float()


def choose(
    logits: Tensor, uniform: Tensor, temperature: float, top_p: float
) -> tuple[Tensor, Tensor]:
    """One token a row and its log-probability."""
    logprobs = torch.log_softmax(logits / (temperature or 1.0), -1)
    if temperature == 0:
        token = logprobs.argmax(-1)
    else:
        probability = logprobs.exp()
        token = draw(probability if top_p >= 1 else nucleus(probability, top_p), uniform)
    return token, logprobs.gather(1, token[:, None])[:, 0]
