"""The supervised phase: next-token prediction of worked answers, the working first."""

import random
from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from crt.pocket import tokenizer as vocabulary
from crt.pocket.muon import Muon
from crt.pocket.problems import exercises, problem
from crt.pocket.styles import STYLES, answer

# Shares of the styles, in the order of STYLES: first much arithmetic in few tokens, then the
# overthinking mixture that the model is to have.
WORKING_SHARES = (0.02, 0.28, 0.50, 0.20)
FINAL_SHARES = (0.03, 0.12, 0.15, 0.70)
WORKING_PART = 0.6  # of all steps
DECAY_PART = 0.4  # the learning rate falls to zero over the last 40 % of the steps
WARM_UP = 50
BATCH = 64
MICRO_BATCHES = 8  # of like length: little padding, and small enough for the cache

Example = tuple[list[int], list[int]]  # prompt, answer


def corpus(count: int, seed: int) -> Iterator[str]:
    """Texts to learn the tokenizer's merges from."""
    rng = random.Random(f"corpus-{seed}")
    for _, item in zip(range(count), exercises("train", rng), strict=False):
        yield problem(item, rng).question + "\n"
        yield answer(item, rng.choice(STYLES), rng)


def shares_at(progress: float) -> tuple[float, ...]:
    """The mixture of styles at a point between 0 and 1 of the phase."""
    return WORKING_SHARES if progress < WORKING_PART else FINAL_SHARES


def rate_at(progress: float, step: int) -> float:
    """The learning rate as a share of its peak: warm up, hold, fall to zero."""
    return min(1.0, (step + 1) / WARM_UP) * min(1.0, (1 - progress) / DECAY_PART)


def examples(
    tokenizer: PreTrainedTokenizerFast, shares: tuple[float, ...], rng: random.Random
) -> list[Example]:
    """One batch of prompts with answers, shortest first."""
    found = []
    for _, item in zip(range(BATCH), exercises("train", rng), strict=False):
        style = rng.choices(STYLES, shares)[0]
        asked = vocabulary.prompt(tokenizer, problem(item, rng).question)
        text = answer(item, style, rng) + vocabulary.END
        ids = tokenizer([asked, text], add_special_tokens=False)["input_ids"]
        found.append((ids[0], ids[1]))
    return sorted(found, key=lambda pair: len(pair[0]) + len(pair[1]))


def padded(pairs: list[Example]) -> tuple[Tensor, Tensor]:
    """Token ids filled up with zeros on the right, and which of them belong to answers."""
    longest = max(len(asked) + len(text) for asked, text in pairs)
    ids = torch.zeros(len(pairs), longest, dtype=torch.long)
    wanted = torch.zeros(len(pairs), longest, dtype=torch.bool)
    for row, (asked, text) in enumerate(pairs):
        ids[row, : len(asked) + len(text)] = torch.tensor(asked + text)
        wanted[row, len(asked) : len(asked) + len(text)] = True
    return ids, wanted


def logits_before(model: Qwen2ForCausalLM, ids: Tensor, wanted: Tensor) -> Tensor:
    """Logits for the wanted positions only; padding on the right needs no attention mask."""
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    return model.lm_head(hidden[:, :-1][wanted[:, 1:]])


def backward(model: Qwen2ForCausalLM, pairs: list[Example], weight: float = 1.0) -> float:
    """Adds the gradient of the mean loss over answer tokens, in micro-batches of like length."""
    tokens = sum(len(text) for _, text in pairs)
    size = -(-len(pairs) // MICRO_BATCHES)
    total = 0.0
    for first in range(0, len(pairs), size):
        ids, wanted = padded(pairs[first : first + size])
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
    for optimizer in (muon := Muon(matrices, lr=0.02), adam):
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return [muon, adam]


def step(
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
    loss = backward(model, examples(tokenizer, shares_at(progress), rng))
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for each in optimiser:
        for group in each.param_groups:
            group["lr"] = group["peak"] * rate_at(progress, number)
        each.step()
        each.zero_grad()
    return loss
