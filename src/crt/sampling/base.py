"""Who draws responses: this process with the fast sampler, or vLLM; one call for both."""

import hashlib
import importlib.util
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from crt.errors import ConfigError
from crt.sampling.models import ModelFiles, cache_bytes

if TYPE_CHECKING:
    from crt.sampling.hf import Sample

CACHE_BYTES = 4 * 2**30  # for keys and values; fixed, so that draws are the same everywhere
MOST_ROWS = 256  # more rows are no faster on a CPU

Engine = Literal["auto", "fast", "vllm"]


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0


class Sampler(Protocol):
    """A policy that continues prompts; what it says to one depends on the seed, not on the rest."""

    def __call__(
        self, prompts: Sequence[Sequence[int]], num_samples: int, seed: int
    ) -> "list[list[Sample]]":
        """`num_samples` samples of every prompt, given as token ids."""
        ...

    def batch_size(self, longest_prompt: int) -> int:
        """Samples it draws well at once after prompts of at most so many tokens."""
        ...


class InProcess:
    """The fast sampler on a model in this process, which may be in training."""

    def __init__(self, model: Any, eos_token_ids: Collection[int], sampling: Sampling) -> None:
        self.model, self.eos_token_ids, self.sampling = model, eos_token_ids, sampling

    def __call__(
        self, prompts: Sequence[Sequence[int]], num_samples: int, seed: int
    ) -> "list[list[Sample]]":
        """One batch; every prompt has its own stream of random numbers."""
        import torch

        from crt.sampling.hf import sample

        was_training = self.model.training
        self.model.eval()
        try:
            return sample(
                self.model,
                prompts,
                num_samples,
                self.sampling.max_tokens,
                self.eos_token_ids,
                generator=[torch.Generator().manual_seed(own) for own in own_seeds(prompts, seed)],
                temperature=self.sampling.temperature,
                top_p=self.sampling.top_p,
            )
        finally:
            self.model.train(was_training)

    def batch_size(self, longest_prompt: int) -> int:
        """As many as there is room for."""
        positions = longest_prompt + self.sampling.max_tokens
        return max(1, min(MOST_ROWS, CACHE_BYTES // (cache_bytes(self.model) * positions)))


def own_seeds(prompts: Sequence[Sequence[int]], seed: int) -> list[int]:
    """A seed of 63 bits for every prompt, from its own tokens; equal prompts are told apart."""
    before: Counter[tuple[int, ...]] = Counter()
    seeds: list[int] = []
    for prompt in map(tuple, prompts):
        named = f"{seed} {before[prompt]} {' '.join(map(str, prompt))}".encode()
        seeds.append(int.from_bytes(hashlib.sha256(named).digest()[:8]) >> 1)
        before[prompt] += 1
    return seeds


def choose_engine(engine: Engine, files: ModelFiles) -> Literal["fast", "vllm"]:
    """vLLM when it is installed and a GPU is there, unless one is asked for."""
    installed = importlib.util.find_spec("vllm") is not None
    if engine == "vllm" and not installed:
        raise ConfigError("vLLM is not installed: install crt-train[vllm], or use --engine fast")
    if engine == "vllm" and files.adapter:
        raise ConfigError(f"{files.folder} is an adapter: merge it first, or use --engine fast")
    if engine != "auto":
        return engine
    import torch

    return "vllm" if installed and torch.cuda.is_available() and not files.adapter else "fast"
