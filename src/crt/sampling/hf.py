"""Fast batched sampling for any causal LM: nothing is read twice, and no row is idle.

Rollouts that have said the same so far are one row of the batch: a prompt is read once for its
group, rows part where their rollouts do, and what is finished leaves. Every rollout has its own
stream of uniform numbers, drawn beforehand, so what it says depends on the seed alone and not on
whom it shares a row with or when the others finish.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from crt.errors import EngineError
from crt.sampling.denormals import denormals_flushed
from crt.sampling.kv_cache import seats_of
from crt.sampling.reading import Layers, Reader, layers_for
from crt.sampling.token_choice import choose, uniforms


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout: its tokens with EOS if it ended, and their log-probabilities at the temperature.

    With `top_p` below 1 they are still those of the whole distribution, as a trainer needs them.
    """

    tokens: list[int]
    logprobs: list[float]
    stop: Literal["eos", "length"]


def left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Prompts as one tensor with its attention mask; what pads them is masked, so any id does."""
    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids.to(device), mask.to(device)


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
    """The rollouts that go on, and the rows of the batch that they share while they agree."""

    def __init__(self, mask: Tensor, copies: int) -> None:
        self.rollout = torch.arange(len(mask) * copies, device=mask.device)
        self.row = self.rollout // copies  # of each rollout
        self.prompts, self.prompt = len(mask), torch.arange(len(mask), device=mask.device)
        self.position = mask.sum(1) - 1  # of each row, as its prompt

    def after(self, token: Tensor, over: Tensor, layers: Layers) -> "Parting":
        """Finished rollouts leave, rows part where rollouts do."""
        going = ~over
        self.rollout = self.rollout[going]
        parting = parted(self.row[going], token[going])
        self.row = parting.row
        if len(parting.source) or len(parting.origin) < len(self.position):
            self.prompt = self.prompt[parting.origin]
            self.position = self.position[parting.origin]
            seats = seats_of(self.prompt, self.prompts)
            for layer in layers:
                layer.move(parting.source, parting.target, seats, len(self.rollout))
        self.position = self.position + 1
        return parting


@dataclass(frozen=True, slots=True)
class Parting:
    """Rows after a token: `origin` is the row each continues, `token` what was said in it."""

    origin: Tensor
    token: Tensor
    row: Tensor  # of each rollout
    source: Tensor  # rows to copy, and where to: those at `target` are needed no more
    target: Tensor


def parted(row: Tensor, token: Tensor) -> Parting:
    """Of rollouts in rows that say tokens; the rows that are left stand together at the front.

    The first to go on from a row has its place, unless that is beyond the last; the others take
    places that nobody goes on from.
    """
    said, which = ((row << 32) + token).unique(return_inverse=True)
    origin, token = said >> 32, said & 0xFFFFFFFF
    stays = origin < len(origin)
    stays[1:] &= origin[1:] != origin[:-1]
    free = torch.ones_like(stays)
    free[origin[stays]] = False
    place = origin.clone()
    place[~stays] = free.nonzero()[:, 0]
    back = place.argsort()
    return Parting(origin[back], token[back], place[which], origin[~stays], place[~stays])


@torch.inference_mode()
@denormals_flushed()
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
    layers = layers_for(model, mask, copies, max_new_tokens, share_prompts)
    uniform = uniforms(generator, rows, max_new_tokens).to(device)
    stops = torch.tensor(sorted(eos_ids), device=device)
    spoken, live = Spoken(rows, max_new_tokens, device), Live(mask, copies)

    reader = Reader(model, layers)
    logits = reader.prompts(ids, mask)
    for at in range(max_new_tokens):
        drawn = uniform[live.rollout, at]
        token, logprob = choose(logits, live.row, drawn, temperature, top_p)
        over = torch.isin(token, stops)
        spoken.add(live.rollout, at, token, logprob, over)
        if on_token is not None:
            for rollout, value in zip(live.rollout.tolist(), token.tolist(), strict=True):
                on_token(rollout, value)
        if at == max_new_tokens - 1 or over.all():
            break
        said = live.after(token, over, layers)
        logits = reader.next(said.token, live.position, said.origin)
    return spoken.samples(copies)
