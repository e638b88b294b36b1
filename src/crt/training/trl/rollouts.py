"""TRL's `rollout_func` and reward function: who samples in training, and what is correct."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import PreTrainedModel
from trl.trainer.grpo_trainer import GRPOTrainer

from crt.data.prompts import Prompt
from crt.errors import ConfigError
from crt.grading.grader import Grader
from crt.sampling.base import Group, Sampling, prompt_seeds, sample_groups
from crt.sampling.models import LoadedModel
from crt.sampling.policy import (
    Response,
    decode_response,
    grade_responses,
    mix_seeds,
    thinking_length,
)
from crt.types import Problem, Rollout, Verdict

WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.", "module.")


class Correctness:
    """The reward function: is the response correct? `rollouts` are those of its last call."""

    __name__ = "correct"

    def __init__(
        self,
        policy: LoadedModel,
        grader: Grader,
        problems: Sequence[Problem],
        prompts: Sequence[Prompt],
    ) -> None:
        self.tokenizer: Any = policy.tokenizer
        self.grader = grader
        self.eos_token_ids = {*policy.files.eos_token_ids, self.tokenizer.pad_token_id}
        self.opens_thinking = {prompt.problem_id: prompt.opens_thinking for prompt in prompts}
        self.problems = {problem.id: problem for problem in problems}
        self.rollouts: list[Rollout] = []

    def __call__(self, completion_ids: Any, problem_id: Any, **_: Any) -> list[float | None]:
        """1 for correct, 0 for wrong or no answer, None for what could not be graded."""
        responses = [
            [
                Response(
                    decode_response(self.tokenizer, token_ids, self.eos_token_ids),
                    len(token_ids),
                    "eos" if token_ids[-1] in self.eos_token_ids else "length",
                    self.opens_thinking[name],
                    thinking_length(self.tokenizer, token_ids, self.opens_thinking[name]),
                )
            ]
            for token_ids, name in zip(completion_ids, problem_id, strict=True)
        ]
        problems = [self.problems[name] for name in problem_id]
        self.rollouts = grade_responses(problems, responses, self.grader)
        return [reward_of(rollout.verdict) for rollout in self.rollouts]


def reward_of(verdict: Verdict) -> float | None:
    """As a reward function says it."""
    return None if verdict is Verdict.UNGRADED else float(verdict is Verdict.CORRECT)


def prompt_ids(prompts: Sequence[Prompt]) -> Callable[[Sequence[Any]], list[list[int]]]:
    """Finds prompts' token ids by their messages: TRL would render them by its own settings."""
    token_ids = {_key(prompt.messages or prompt.text): list(prompt.token_ids) for prompt in prompts}
    return lambda messages: [token_ids[_key(message)] for message in messages]


def _key(messages: Any) -> str:
    """Messages, or a plain text, as something to look up."""
    return messages if isinstance(messages, str) else repr([dict(turn) for turn in messages])


class FastRollouts:
    """Samples by the policy's weights; what is drawn depends on seed, step and prompt alone.

    `model` says in which form; without it the policy is sampled as it is. With `frozen` it is that
    model that is sampled, whatever the policy has become.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        seed: int,
        max_tokens: int,
        top_p: float,
        model: "SamplingModel | None" = None,
        frozen: PreTrainedModel | None = None,
    ) -> None:
        self.prompt_ids = prompt_ids(prompts)
        self.seed, self.max_tokens, self.top_p = seed, max_tokens, top_p
        self.model, self.frozen = model, frozen

    def __call__(self, messages: Sequence[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """TRL's form: prompts come already repeated for their rollouts, equal ones together."""
        prompts = self.prompt_ids(messages)
        drawn = sample_groups(
            self._model(trainer),
            self._groups(prompts, trainer),
            trainer.eos_token_ids,
            Sampling(self.max_tokens, trainer.temperature, self.top_p),
        )
        samples = [sample for group in drawn for sample in group]
        return {
            "prompt_ids": prompts,
            "completion_ids": [sample.tokens for sample in samples],
            "logprobs": [sample.logprobs for sample in samples],
        }

    def _groups(self, prompts: list[list[int]], trainer: GRPOTrainer) -> list[Group]:
        """This process's rollouts; seeds are those of the whole step, whoever draws which."""
        size, begin = trainer.num_generations, trainer.accelerator.process_index * len(prompts)
        everyone: list[list[int]] = gather_object(prompts)
        step_seed = mix_seeds(self.seed, trainer.state.global_step)
        seeds = prompt_seeds(everyone[::size], step_seed)
        groups: list[Group] = []
        at, end = begin, begin + len(prompts)
        while at < end:
            number, first = divmod(at, size)
            count = min(size - first, end - at)
            groups.append(Group(everyone[at], seeds[number], count, first))
            at += count
        return groups

    def _model(self, trainer: GRPOTrainer) -> Any:
        if self.frozen is not None:
            return self.frozen.to(trainer.accelerator.device)  # pyright: ignore[reportArgumentType]
        if self.model is not None:
            return self.model.current(trainer)
        return trainer.accelerator.unwrap_model(trainer.model)


class VllmRollouts:
    """vLLM as TRL runs it, after our own prompts."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        self.prompt_ids = prompt_ids(prompts)

    def __call__(self, messages: Sequence[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """TRL has given vLLM the policy's weights before it asks."""
        engine: Any = trainer.vllm_generation
        prompts = self.prompt_ids(messages)
        _, completion_ids, logprobs, _ = engine.generate(
            prompts=prompts, images=None, num_generations=trainer.num_generations
        )
        return {
            "prompt_ids": prompts,
            "completion_ids": completion_ids,
            "logprobs": [[candidates[0] for candidates in tokens] for tokens in logprobs],
        }


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
