"""vLLM as a sampler: an engine of its own for a frozen model, or the one TRL trains with."""

import gc
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crt.sampling.base import Sampling, Seed, prompt_seeds
from crt.sampling.hf import Sample
from crt.sampling.models import ModelFiles, saved_dtype

if TYPE_CHECKING:
    from trl.trainer.grpo_trainer import GRPOTrainer

ROWS = 1024  # requests in one call: vLLM schedules them itself
LARGEST_SEED = 2**31


class VllmSampler:
    """vLLM inside this process, loaded when first asked; every sample has a seed of its own."""

    def __init__(
        self,
        files: ModelFiles,
        sampling: Sampling,
        *,
        positions: int | None = None,
        dtype: str = "auto",
        trust_remote_code: bool = False,
        alone: bool = True,
    ) -> None:
        self.files, self.sampling = files, sampling
        self._engine: Any = None
        self.options: dict[str, Any] = {
            "dtype": dtype,
            "max_model_len": positions,
            "trust_remote_code": trust_remote_code,
            "enable_prefix_caching": True,
            "logprobs_mode": "processed_logprobs",  # at the temperature, as the fast sampler's
        }
        if not alone:  # among processes of a launcher, each with an engine on its own GPU
            self.options["distributed_executor_backend"] = "external_launcher"

    def __call__(
        self, prompts: Sequence[Sequence[int]], num_samples: int, seed: Seed
    ) -> list[list[Sample]]:
        """vLLM gives the k-th sample of a prompt the prompt's seed plus k."""
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        greedy = self.sampling.temperature == 0  # vLLM refuses several greedy samples: all alike
        how = [
            SamplingParams(
                n=1 if greedy else num_samples,
                temperature=self.sampling.temperature,
                top_p=self.sampling.top_p,
                max_tokens=self.sampling.max_tokens,
                stop_token_ids=list(self.files.eos_token_ids),
                seed=own % LARGEST_SEED,
                logprobs=0,  # of the token itself and no other
            )
            for own in prompt_seeds(prompts, seed)
        ]
        asked = [{"prompt_token_ids": list(ids)} for ids in prompts]
        told = self._loaded().generate(asked, how, use_tqdm=False)
        groups = [[_sample(output) for output in each.outputs] for each in told]
        return [group * num_samples for group in groups] if greedy else groups

    def batch_size(self, longest_prompt: int) -> int:
        """Whatever their length."""
        return ROWS

    def close(self) -> None:
        """Gives the GPU's memory back; the next call loads the engine again."""
        if self._engine is not None:
            self._engine = None
            free_memory()

    def _loaded(self) -> Any:
        if self._engine is None:
            from vllm import LLM  # pyright: ignore[reportMissingImports]

            if self.options["dtype"] == "auto":
                # By itself vLLM makes bfloat16 of float32.
                self.options["dtype"] = saved_dtype(self.files.folder) or "auto"
            self._engine = LLM(str(self.files.folder), **self.options)
        return self._engine


class TrainersVllm:
    """The engine TRL trains with, colocated or a server, with the weights of this moment.

    It draws without our seeds. Every process must call it at the same time, because TRL's own call
    is one for all.
    """

    def __init__(
        self, trainer: "GRPOTrainer", eos_token_ids: Collection[int], sampling: Sampling
    ) -> None:
        self.trainer: Any = trainer
        self.eos_token_ids, self.sampling = eos_token_ids, sampling

    def __call__(
        self, prompts: Sequence[Sequence[int]], num_samples: int, seed: Seed
    ) -> list[list[Sample]]:
        """TRL wants prompts repeated, and equally many from every process."""
        trainer = self.trainer
        if (
            self.sampling.temperature == 0 and num_samples > 1
        ):  # vLLM refuses several greedy samples: all alike
            return [group * num_samples for group in self(prompts, 1, seed)]
        if trainer.state.global_step != trainer._last_loaded_step:
            trainer.vllm_generation.sync_weights()
            trainer._last_loaded_step = trainer.state.global_step
        filler = list(prompts[0]) if prompts else [next(iter(self.eos_token_ids))]
        missing = _most(len(prompts)) - len(prompts)
        asked = [list(ids) for ids in [*prompts, *[filler] * missing] for _ in range(num_samples)]
        with sampling_set(trainer.vllm_generation, self.sampling) as engine:
            _, tokens, logprobs, _ = engine.generate(
                prompts=asked, images=None, num_generations=num_samples
            )
        drawn = [
            Sample(list(ids), [each[0] for each in of], self._stop(ids))
            for ids, of in zip(tokens, logprobs, strict=True)
        ]
        return [drawn[i * num_samples : (i + 1) * num_samples] for i in range(len(prompts))]

    def batch_size(self, longest_prompt: int) -> int:
        """All in one call, so that every process calls equally often."""
        return 2**31

    def _stop(self, tokens: Sequence[int]) -> Any:
        return "eos" if tokens and tokens[-1] in self.eos_token_ids else "length"


def close_engine(trainer: "GRPOTrainer") -> None:
    """Frees what the next stage needs for an engine of its own.

    That is the memory of a colocated engine, or the port over which a server gets new weights.
    """
    generation: Any = trainer.vllm_generation
    vars(generation).pop("llm", None)
    client = getattr(generation, "vllm_client", None)  # one process has it, if there is a server
    if client is not None:
        client.close_communicator()
    free_memory()


def free_memory() -> None:
    """Frees engines that nothing uses. vLLM freezes Python's heap at its start, itself included."""
    import torch

    gc.unfreeze()
    gc.collect()
    torch.cuda.empty_cache()


@contextmanager
def sampling_set(engine: Any, sampling: Sampling) -> Iterator[Any]:
    """TRL's engine with these settings in place of training's, for as long as it is needed."""
    wanted = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_completion_length": sampling.max_tokens,
    }
    before = {name: getattr(engine, name) for name in wanted}
    vars(engine).update(wanted)
    try:
        yield engine
    finally:
        vars(engine).update(before)


def _most(count: int) -> int:
    """The largest count of all processes."""
    from accelerate.utils import gather_object

    return max(gather_object([count]))


def _sample(output: Any) -> Sample:
    tokens = list(output.token_ids)
    logprobs = [of[token].logprob for token, of in zip(tokens, output.logprobs, strict=True)]
    return Sample(tokens, logprobs, "length" if output.finish_reason == "length" else "eos")
