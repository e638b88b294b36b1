"""The fast sampler behind TRL's `rollout_func`: a group's prompt is read once."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from trl.trainer.grpo_trainer import GRPOTrainer

from crt.data.prompts import Prompt
from crt.engines.sampler import sample


class FastRollouts:
    """Samples with the policy's own forward; what a step samples depends on seed and step alone.

    With `frozen` it is that model that is sampled, whatever the policy has become.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        seed: int,
        max_tokens: int,
        top_p: float,
        frozen: PreTrainedModel | None = None,
    ) -> None:
        self.token_ids = {_key(prompt.messages): list(prompt.token_ids) for prompt in prompts}
        self.seed, self.max_tokens, self.top_p, self.frozen = seed, max_tokens, top_p, frozen

    def __call__(self, messages: Sequence[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """TRL's form: prompts come already repeated for their rollouts, equal ones together."""
        prompts = [self.token_ids[_key(each)] for each in messages]
        groups = [len(list(group)) for _, group in groupby(prompts)]
        copies = groups[0] if len(set(groups)) == 1 else 1  # a group split over ranks is ragged
        model: Any = trainer.accelerator.unwrap_model(trainer.model)
        if self.frozen is not None:
            model = self.frozen.to(trainer.accelerator.device)  # pyright: ignore[reportArgumentType]
        was_training = model.training
        model.eval()
        rollouts = sample(
            model,
            prompts[::copies],
            copies,
            self.max_tokens,
            trainer.eos_token_ids,
            generator=self._generator(trainer.state.global_step, trainer.accelerator.process_index),
            temperature=trainer.temperature,
            top_p=self.top_p,
            tape=getattr(trainer, "tape", None),
        )
        model.train(was_training)
        flat = [one for group in rollouts for one in group]
        return {
            "prompt_ids": prompts,
            "completion_ids": [one.tokens for one in flat],
            "logprobs": [one.logprobs for one in flat],
        }

    def _generator(self, step: int, rank: int) -> torch.Generator:
        return generator_for(self.seed, step, rank)


class VllmRollouts:
    """vLLM as TRL runs it, after our own prompts: TRL would render them by its own settings."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        self.token_ids = {_key(prompt.messages): list(prompt.token_ids) for prompt in prompts}

    def __call__(self, messages: Sequence[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """TRL has given vLLM the policy's weights before it asks."""
        engine: Any = trainer.vllm_generation
        prompts = [self.token_ids[_key(each)] for each in messages]
        _, tokens, logprobs, _ = engine.generate(
            prompts=prompts, images=None, num_generations=trainer.num_generations
        )
        return {
            "prompt_ids": prompts,
            "completion_ids": tokens,
            "logprobs": [[of_token[0] for of_token in each] for each in logprobs],
        }


def generator_for(*seeds: int) -> torch.Generator:
    """A stream of its own for every combination of seeds."""
    mixed = np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(mixed >> np.uint64(1)))


def _key(messages: Any) -> str:
    """Messages, or a plain text, as something to look up."""
    return messages if isinstance(messages, str) else repr([dict(turn) for turn in messages])
