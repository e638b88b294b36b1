"""The polish: reinforcement learning for accuracy alone, so that the base is near its ceiling."""

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from crt.pocket.problems import exercises, problem
from tools.pocket.rollouts import Sampled, is_correct, sample_rollouts
from tools.pocket.supervised import (
    after,
    backward,
    examples,
    logits_before,
    mixture_at,
    padded,
)

PROBLEMS = 32
NUM_SAMPLES = 8
MICRO_BATCH = 16
PEAK = 2e-4
# Accuracy alone would in time drop the guesses and the work in the head, which are to stay.
SUPERVISED_WEIGHT = 0.2
WARM_UP = 5


class Outcome(NamedTuple):
    """What a polishing step saw before it changed the model."""

    accuracy: float
    length: float


def advantages(correct: Sequence[bool]) -> list[float]:
    """Group-standardised correctness; 0 for all where all are right or all are wrong."""
    values = torch.tensor([float(value) for value in correct])
    spread = values.std(correction=0)
    return [0.0] * len(correct) if spread == 0 else ((values - values.mean()) / spread).tolist()


def policy_gradient(model: Qwen2ForCausalLM, sampled: Sampled, weights: Sequence[float]) -> None:
    """Adds the gradient of the token-mean loss; one step per batch is on-policy, so no ratio."""
    tokens = sum(map(len, sampled.token_ids))
    useful = [
        (after(prompt, token_ids), weight)
        for prompt, token_ids, weight in zip(
            sampled.prompts, sampled.token_ids, weights, strict=True
        )
        if weight != 0
    ]
    useful.sort(key=lambda pair: sum(pair[0][1]))
    for first in range(0, len(useful), MICRO_BATCH):
        part = useful[first : first + MICRO_BATCH]
        ids, wanted = padded([example for example, _ in part])
        logprobs = torch.log_softmax(logits_before(model, ids, wanted), -1)
        taken = logprobs.gather(1, ids[wanted][:, None])[:, 0]
        weight = torch.repeat_interleave(
            torch.tensor([advantage for _, advantage in part]), wanted.sum(1)
        )
        (-(weight * taken).sum() / tokens).backward()


def step(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    optimiser: list[torch.optim.Optimizer],
    number: int,
    steps: int,
    seed: int,
) -> Outcome:
    """One step on fresh problems; everything random in it depends on seed and number alone."""
    rng = random.Random(f"polish-{seed}-{number}")
    items = [
        problem(item, rng)
        for _, item in zip(range(PROBLEMS), exercises("train", rng), strict=False)
    ]
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    sampled = sample_rollouts(model, tokenizer, items, NUM_SAMPLES, generator)
    correct = [is_correct(rollout) for rollout in sampled.rollouts]
    groups = [correct[at : at + NUM_SAMPLES] for at in range(0, len(correct), NUM_SAMPLES)]
    policy_gradient(model, sampled, [value for group in groups for value in advantages(group)])
    backward(model, examples(tokenizer, mixture_at(1.0), rng), SUPERVISED_WEIGHT)
    update(model, optimiser, number, steps)
    tokens = sum(map(len, sampled.token_ids))
    return Outcome(sum(correct) / len(correct), tokens / len(correct))


def update(
    model: Qwen2ForCausalLM, optimiser: list[torch.optim.Optimizer], number: int, steps: int
) -> None:
    """One clipped update at the learning rate of this step: warm up, then fall to a tenth."""
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    rate = min(1.0, (number + 1) / WARM_UP) * (1 - 0.9 * number / steps)
    for each in optimiser:
        for group in each.param_groups:
            group["lr"] = PEAK * rate
        each.step()
        each.zero_grad()


def optimizers(model: Qwen2ForCausalLM) -> list[torch.optim.Optimizer]:
    """Plain AdamW: small steps from a trained model."""
    return [torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.95), weight_decay=0.0)]
