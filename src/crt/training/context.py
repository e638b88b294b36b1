"""What a run works with, loaded once: problems, prompts, grader, and models by name."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from crt.algorithm.batch import Batch
from crt.config import RunConfig
from crt.data.datasets import digest, load_mixture
from crt.data.prompts import Template, prepare
from crt.grading.grader import grader_identity, make_grader
from crt.processes import Ranks
from crt.sampling.base import InProcess, Sampler, Sampling, choose_engine
from crt.sampling.models import Dtype, LoadedModel, load_model
from crt.sampling.policy import Policy
from crt.sampling.vllm import VllmSampler
from crt.training.progress import Progress
from crt.training.reference import Reference, Store
from crt.types import Problem, Rollout

REFERENCE_SEED = 0  # a reference is shared by runs of every seed


class FrozenSampler(Sampler, Protocol):
    """An engine of its own for a model that stays as it is; it may hold memory of a GPU."""

    def close(self) -> None:
        """Gives the memory back; the next call loads the model again."""
        ...


@dataclass(frozen=True)
class Backend:
    """How an engine loads models, and what samples those that stay as they are.

    Without a sampler of its own (None) the process that trains samples them too.
    """

    load: Callable[..., LoadedModel]
    frozen_sampler: "Callable[[RunContext, LoadedModel, Sampling], FrozenSampler | None]"


class RunContext:
    """Problems, prompts, grader and sampler of a run; `cache` holds reference rollouts.

    `progress` shows what is done, for whoever waits.
    """

    def __init__(
        self,
        config: RunConfig,
        cache: Path,
        backend: Backend | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.config, self.cache, self.backend = config, cache, backend or IN_PROCESS
        self.progress = progress or Progress(shown=False)
        self.ranks = Ranks.found()
        self.base = self.load(config.model.name)
        tokenizer: Any = self.base.tokenizer
        self.template: Template = prepare(tokenizer, config.prompt)
        # The reference is the model as it was: no budget is stated to it.
        unstated = replace(config.prompt, budget="none", budget_tokens=None)
        self.plain: Template = prepare(tokenizer, unstated)
        sampling = config.sampling
        self.sampling = Sampling(sampling.max_tokens, sampling.temperature, sampling.top_p)
        self.reference_sampling = reference_sampling(config)
        self.validation_sampling = validation_sampling(config)
        workers = max(1, config.grading.workers // self.ranks.count)  # every rank has its own
        self.grader = make_grader(config.grading.model_copy(update={"workers": workers}))
        self.grader.self_test()
        self.measures = config.contract.measures()
        self.frozen_samplers: list[FrozenSampler] = []

    def load(self, name: str, dtype: Dtype | None = None) -> LoadedModel:
        """A model by name or folder, as the recipe says, or in another precision."""
        model = self.config.model
        revision = model.revision if name == model.name else None
        with loading_whole():
            return self.backend.load(
                name,
                revision=revision,
                dtype=dtype or model.dtype,
                trust_remote_code=model.trust_remote_code,
            )

    @cached_property
    def problems(self) -> tuple[list[Problem], list[Problem]]:
        """Training problems, and those on which checkpoints are measured."""
        data, validation = self.config.data, self.config.validation
        options: dict[str, Any] = {"folder": data.folder, "skip_bad": data.skip_bad}
        train = load_mixture(data.train, columns=data.columns, **options).problems
        self.grader.check(train)
        if not validation.data:
            return held_out(train, validation.problems, self.config.seed)
        others = load_mixture(validation.data, split="test", **options).problems
        self.grader.check(others)
        return list(train), list(others[: validation.problems])

    def policy(
        self,
        model: LoadedModel,
        template: Template | None = None,
        sampler: Sampler | None = None,
        sampling: Sampling | None = None,
    ) -> Policy:
        """A model that answers problems as in training, or otherwise, or elsewhere."""
        sampler = sampler or InProcess(
            model.model, model.files.eos_token_ids, sampling or self.sampling
        )
        return Policy(sampler, model.files.eos_token_ids, template or self.template, self.grader)

    def frozen(self, model: LoadedModel, sampling: Sampling) -> Sampler | None:
        """The engine's own sampler of a model that stays as it is, if it has one."""
        sampler = self.backend.frozen_sampler(self, model, sampling)
        if sampler is not None:
            self.frozen_samplers.append(sampler)
        return sampler

    def sample_ahead(self, reference: Reference, problems: Sequence[Problem]) -> None:
        """What vLLM is to draw is drawn before training, which then has the GPU for itself."""
        if self.frozen_samplers:
            reference.sample_ahead(problems)
            self.release()

    def release(self) -> None:
        """Gives back the GPU memory that vLLM holds."""
        for sampler in self.frozen_samplers:
            sampler.close()

    def reference(self, model: LoadedModel, sampling: Sampling | None = None) -> Reference:
        """The frozen policy's rollouts for any problem, kept unless the recipe wants them fresh."""
        settings, sampling = self.config.reference, sampling or self.reference_sampling
        engine = self.frozen(model, sampling)
        policy = self.policy(model, self.plain, engine, sampling)
        train, validation = self.problems

        def sampler(problems: Sequence[Problem]) -> Sequence[Rollout]:
            # What is kept is drawn for each problem alone; what is fresh, for this batch anew.
            fresh = [int(digest(*(p.id for p in problems))[:8], 16)] if store is None else []
            tell = self.counter("reference", len(problems))
            return policy.rollouts(problems, settings.rollouts, REFERENCE_SEED, *fresh, tell=tell)

        about = self.about(model, sampling, vllm=engine is not None)
        store = Store(self.cache, about) if settings.mode == "cached" else None
        truncated = self.config.grading.truncated
        problems = [*train, *validation]
        return Reference(problems, sampler, store, truncated, self.ranks, self.measures)

    def about(self, model: LoadedModel, sampling: Sampling, vllm: bool = False) -> dict[str, Any]:
        """All that a reference rollout depends on: the key of its cache."""
        return {
            "model": model.hash,
            "dtype": model.dtype,
            "prompt": self.plain.hash,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "rollouts": self.config.reference.rollouts,
            "grader": grader_identity(self.config.grading),
        } | ({"engine": "vllm"} if vllm else {})

    def measured(self, policy: Policy, num_samples: int, step: int, draw: int = 1) -> list[Rollout]:
        """Rollouts of a policy on the validation problems.

        Every step and every `draw` has its own stream of random numbers: neighbouring policies say
        much the same on the same stream, and would all be lucky or unlucky together. Every
        process draws for its share of the problems, and all get the whole.
        """
        problems = self.problems[1]
        mine = problems[self.ranks.rank :: self.ranks.count]
        tell = self.counter(f"step {step} measured", len(mine))
        rollouts = policy.rollouts(mine, num_samples, self.config.seed, draw, step, tell=tell)
        place = {problem.id: i for i, problem in enumerate(problems)}
        return sorted(self.ranks.gathered(rollouts), key=lambda one: place[one.problem_id])

    def counter(self, what: str, problems: int) -> Callable[[int], None]:
        """Shows how many problems of this process's share are answered, counted for all."""
        total = problems * self.ranks.count

        def tell(answered: int) -> None:
            self.progress.count(what, answered * self.ranks.count, total)

        return tell

    def on_validation(self, reference: Reference) -> Batch | None:
        """The frozen policy on the validation problems, sampled as checkpoints are there."""
        return self.validation_reference(reference)([problem.id for problem in self.problems[1]])

    def validation_reference(self, reference: Reference) -> Reference:
        """The same reference, or that of the sampling with which checkpoints are measured."""
        if self.validation_sampling == self.reference_sampling:
            return reference
        return self.reference(self.base, self.validation_sampling)

    def close(self) -> None:
        """Stops the grader's workers and whatever holds a GPU."""
        self.release()
        self.grader.close()


@contextmanager
def loading_whole() -> Iterator[None]:
    """Models are loaded whole within it, though ZeRO-3 may be training another one.

    transformers would give every process its shard of any model that is loaded meanwhile.
    """
    from transformers.integrations import deepspeed

    reference = deepspeed._hf_deepspeed_config_weak_ref
    config = reference() if reference is not None else None
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if config is not None:
            deepspeed.set_hf_deepspeed_config(config)


def vllm_if_trained_with(
    context: RunContext, model: LoadedModel, sampling: Sampling
) -> VllmSampler | None:
    """vLLM, if the recipe trains with it and it can run."""
    config = context.config
    if not config.trl.get("use_vllm") or config.reference.mode == "fresh":
        return None  # a fresh reference is asked in training, when the GPU is the policy's
    if choose_engine("auto", model.files) == "fast":
        return None
    return VllmSampler(
        model.files, sampling, dtype=model.dtype,
        trust_remote_code=config.model.trust_remote_code, alone=context.ranks.count == 1,
    )  # fmt: skip


IN_PROCESS = Backend(load_model, vllm_if_trained_with)


def reference_sampling(config: RunConfig) -> Sampling:
    """How the guard's reference is sampled: as the policy, but for its cap if one is set.

    A policy that is cut off counts as wrong, so one that only gets shorter gains accuracy at the
    cap of training. Against a reference at the cap of use that gain is worth nothing.
    """
    trained = config.sampling
    cap = config.reference.max_tokens or trained.max_tokens
    return Sampling(cap, trained.temperature, trained.top_p)


def validation_sampling(config: RunConfig) -> Sampling:
    """How checkpoints and the base are sampled on the validation problems."""
    validation, trained = config.validation, config.sampling
    return Sampling(
        validation.max_tokens or trained.max_tokens,
        trained.temperature if validation.temperature is None else validation.temperature,
        trained.top_p if validation.top_p is None else validation.top_p,
    )


def held_out(
    problems: Sequence[Problem], count: int, seed: int
) -> tuple[list[Problem], list[Problem]]:
    """The problems without `count` of them, and those."""
    chosen = set(np.random.default_rng([seed, 1 << 31]).permutation(len(problems))[:count].tolist())
    kept = [problem for i, problem in enumerate(problems) if i not in chosen]
    return kept, [problem for i, problem in enumerate(problems) if i in chosen]
