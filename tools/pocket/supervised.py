"""The supervised phase: next-token prediction of worked answers, the working first."""

import random
import re
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from crt.pocket.problems import exercises, put
from crt.pocket.stories import NAMES
from crt.pocket.tokenizer import prompt
from tools.pocket.styles import (
    STYLES,
    answer,
    thought_broken_down,
    thought_in_head,
    thought_in_steps,
)
from tools.pocket.vocabulary import END
from tools.pocket.worlds import Example, World

# Shares of the styles, in the order of STYLES: first much arithmetic in few tokens, then the
# overthinking mixture that the model is to have.
WORKING_SHARES = (0.02, 0.10, 0.30, 0.40, 0.18)
FINAL_SHARES = (0.04, 0.11, 0.15, 0.15, 0.55)
# Part of a batch that is bare arithmetic: sums are what takes longest to learn.
WORKING_DRILL, FINAL_DRILL = 0.4, 0.2
# Exercises in one row of drill, in the kinds of working that are drilled: about as many tokens.
DRILLS = ((thought_in_steps, 6), (thought_broken_down, 3), (thought_in_head, 6))
RESULT = re.compile(r"(?<=[=o]) \d+")  # after “=” and “so”
WORKING_PART = 0.6  # of all steps
DECAY_PART = 0.5  # the learning rate falls to zero over the second half of the steps
WARM_UP = 50
BATCH = 48
MICRO_BATCH = 8  # rows of like length: little padding, and small enough for the cache


def corpus(count: int, seed: int) -> Iterator[str]:
    """Texts to learn the tokenizer's merges from."""
    rng = random.Random(f"corpus-{seed}")
    yield " ".join(f"{name}. {name}" for name in NAMES)
    for _, item in zip(range(count), exercises("train", rng), strict=False):
        question = put(item, rng)
        yield question.text + "\n"
        yield answer(question, rng.choice(STYLES), rng)


class Mixture(NamedTuple):
    """Shares of the styles, the part of drill in a batch, and whether people are mentioned."""

    styles: tuple[float, ...]
    drill: float
    mentions: bool = False


FINAL = Mixture(FINAL_SHARES, FINAL_DRILL)
# In the second cycle: more arithmetic, and whom and what a question is about to be copied.
SECOND = Mixture(FINAL_SHARES, 0.3, mentions=True)
SECOND_PEAK = 0.6  # of the first cycle's learning rate


def mixture_at(progress: float) -> Mixture:
    """What a batch consists of at a point of the first cycle below 1, and from its end on at 1."""
    if progress < WORKING_PART:
        return Mixture(WORKING_SHARES, WORKING_DRILL)
    return FINAL if progress < 1 else SECOND


def rate_at(progress: float, step: int) -> float:
    """The learning rate as a share of its peak: warm up, hold, fall to zero."""
    return min(1.0, (step + 1) / WARM_UP) * min(1.0, (1 - progress) / DECAY_PART)


def worked(tokenizer: PreTrainedTokenizerFast, mixture: Mixture, rng: random.Random) -> Example:
    """A problem with its answer, of which the answer is to be learned."""
    question = put(next(exercises("train", rng)), rng)
    asked = prompt(tokenizer, question.text)
    style = rng.choices(STYLES, mixture.styles)[0]
    text = answer(question, style, rng, mixture.mentions) + END
    given, reply = tokenizer([asked, text], add_special_tokens=False)["input_ids"]
    return after(given, reply)


def after(prompt: list[int], reply: list[int]) -> Example:
    """A reply to be learned after a prompt that is given."""
    return prompt + reply, [False] * len(prompt) + [True] * len(reply)


def drill(tokenizer: PreTrainedTokenizerFast, number: int, rng: random.Random) -> Example:
    """Working without problems, of which the results are to be learned."""
    thought, count = DRILLS[number % len(DRILLS)]
    items = zip(range(count), exercises("train", rng), strict=False)
    text = " ".join(thought(item.expression) for _, item in items)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    result = {place for match in RESULT.finditer(text) for place in range(*match.span())}
    return encoded["input_ids"], [start in result for start, _ in encoded["offset_mapping"]]


def examples(
    tokenizer: PreTrainedTokenizerFast, mixture: Mixture, rng: random.Random
) -> list[Example]:
    """One batch, shortest first."""
    count = round(mixture.drill * BATCH)
    found = [drill(tokenizer, number, rng) for number in range(count)]
    found += [worked(tokenizer, mixture, rng) for _ in range(BATCH - count)]
    return sorted(found, key=lambda example: len(example[0]))


def padded(batch: list[Example]) -> tuple[Tensor, Tensor]:
    """Token ids filled up with zeros on the right, and which of them are to be learned."""
    longest = max(len(tokens) for tokens, _ in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    wanted = torch.zeros(len(batch), longest, dtype=torch.bool)
    for row, (tokens, learned) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        wanted[row, : len(tokens)] = torch.tensor(learned)
    return ids, wanted


def logits_before(model: Qwen2ForCausalLM, ids: Tensor, wanted: Tensor) -> Tensor:
    """Logits for the wanted positions only; padding on the right needs no attention mask."""
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    return model.lm_head(hidden[:, :-1][wanted[:, 1:]])


def backward(model: Qwen2ForCausalLM, batch: list[Example], weight: float = 1.0) -> float:
    """Adds the gradient of the mean loss over learned tokens, in micro-batches of like length."""
    tokens = sum(sum(learned) for _, learned in batch)
    total = 0.0
    for first in range(0, len(batch), MICRO_BATCH):
        ids, wanted = padded(batch[first : first + MICRO_BATCH])
        logits = logits_before(model, ids, wanted)
        loss = torch.nn.functional.cross_entropy(logits, ids[wanted], reduction="sum") / tokens
        (loss * weight).backward()
        total += loss.item()
    return total


def optimizers(model: Qwen2ForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for embeddings, norms and biases."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    inside = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in inside]
    adam = torch.optim.AdamW(others, lr=4e-3, betas=(0.9, 0.98), weight_decay=0.0)
    muon = torch.optim.Muon(matrices, lr=0.02, weight_decay=0.0)
    for optimizer in (muon, adam):
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return [muon, adam]


def step(
    world: World,
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    optimiser: list[torch.optim.Optimizer],
    number: int,
    steps: int,
    seed: int,
) -> float:
    """One supervised step; its data depend on seed and number alone, so a run can be resumed."""
    progress = number / steps
    rng = random.Random(f"supervised-{seed}-{number}")
    return learn(model, optimiser, world.batch(tokenizer, progress, rng), rate_at(progress, number))


def second_step(
    world: World,
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    optimiser: list[torch.optim.Optimizer],
    number: int,
    steps: int,
    seed: int,
) -> float:
    """One step of the second cycle, in which the learning rate falls from lower down."""
    rng = random.Random(f"second-{seed}-{number}")
    rate = SECOND_PEAK * min(1.0, (number + 1) / WARM_UP) * (1 - number / steps)
    return learn(model, optimiser, world.batch(tokenizer, 1.0, rng), rate)


def learn(
    model: Qwen2ForCausalLM,
    optimiser: list[torch.optim.Optimizer],
    batch: list[Example],
    rate: float,
) -> float:
    """One clipped update on a batch, at a share of the peak learning rates."""
    loss = backward(model, batch)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for each in optimiser:
        for group in each.param_groups:
            group["lr"] = group["peak"] * rate
        each.step()
        each.zero_grad()
    return loss
