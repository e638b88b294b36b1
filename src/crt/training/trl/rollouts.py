"""The fast sampler behind TRL's `rollout_func`: a group's prompt is read once."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from trl.trainer.grpo_trainer import GRPOTrainer

from crt.data.prompts import Prompt
from crt.errors import ConfigError
from crt.sampling.hf import sample

WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.", "module.")


class SamplingModel:
    """The model to sample from: the policy itself, or a copy of its weights in `model.dtype`.

    Trained weights are float32, and several processes may hold a shard each. Then `load_copy`
    makes a whole model in the dtype of use, once, and every step's weights are copied into it.
    """

    def __init__(self, load_copy: Callable[[], PreTrainedModel], dtype: str) -> None:
        self.load_copy, self.dtype = load_copy, getattr(torch, dtype)
        self.copy: Any = None
        self.copied_step = -1

    def current(self, trainer: GRPOTrainer) -> Any:
        """With the weights of this moment."""
        policy: Any = trainer.accelerator.unwrap_model(trainer.model)
        sharded = trainer._dist.is_fsdp or trainer._dist.is_zero3
        if hasattr(policy, "peft_config"):
            if sharded:
                raise ConfigError(
                    "an adapter on a model that is sharded (FSDP, ZeRO-3) can be sampled by vLLM "
                    "alone: set trl.use_vllm = true, or train without sharding."
                )
            return policy
        if not sharded and policy.dtype == self.dtype:
            return policy
        if self.copy is None:
            self.copy = self.load_copy().to(trainer.accelerator.device).eval()
        if self.copied_step != trainer.state.global_step:
            copy_weights(trainer, self.copy)
            self.copied_step = trainer.state.global_step
        return self.copy


@torch.no_grad()
def copy_weights(trainer: GRPOTrainer, target: PreTrainedModel) -> None:
    """The policy's weights into another model of its kind, gathered from all processes."""
    copied = dict(target.named_parameters())
    for name, weight in full_parameters(trainer):
        copied[name].copy_(weight)


def full_parameters(trainer: GRPOTrainer) -> Iterator[tuple[str, torch.Tensor]]:
    """Whole parameters by the model's own names; every process must iterate to the end."""
    model: Any = trainer.model_wrapped if trainer._dist.is_fsdp else trainer.model
    with (
        trainer._dist.summon_full_params(model, writeback=False),
        trainer._dist.gather_params(list(model.parameters())),
    ):
        for name, weight in model.named_parameters():
            for wrapper in WRAPPERS:
                name = name.replace(wrapper, "")
            yield name, weight.full_tensor() if hasattr(weight, "full_tensor") else weight


class FastRollouts:
    """Samples by the policy's weights; what a step samples depends on seed and step alone.

    `model` says in which form; without it the policy is sampled as it is. With `frozen` it is that
    model that is sampled, whatever the policy has become.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        seed: int,
        max_tokens: int,
        top_p: float,
        model: SamplingModel | None = None,
        frozen: PreTrainedModel | None = None,
    ) -> None:
        self.token_ids = {_key(prompt.messages): list(prompt.token_ids) for prompt in prompts}
        self.seed, self.max_tokens, self.top_p = seed, max_tokens, top_p
        self.model, self.frozen = model, frozen

    def __call__(self, messages: Sequence[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """TRL's form: prompts come already repeated for their rollouts, equal ones together."""
        prompts = [self.token_ids[_key(each)] for each in messages]
        groups = [len(list(group)) for _, group in groupby(prompts)]
        num_samples = groups[0] if len(set(groups)) == 1 else 1
        if self.frozen is not None:
            model: Any = self.frozen.to(trainer.accelerator.device)  # pyright: ignore[reportArgumentType]
        elif self.model is not None:
            model = self.model.current(trainer)
        else:
            model = trainer.accelerator.unwrap_model(trainer.model)
        was_training = model.training
        model.eval()
        rollouts = sample(
            model,
            prompts[::num_samples],
            num_samples,
            self.max_tokens,
            trainer.eos_token_ids,
            generator=self._generator(trainer.state.global_step, trainer.accelerator.process_index),
            temperature=trainer.temperature,
            top_p=self.top_p,
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
