"""Who draws responses: this process with the fast sampler, or vLLM; one call for both."""

import hashlib
import importlib.util
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
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
        """One batch; every rollout has its own stream of random numbers."""
        repeated = [prompt for prompt in prompts for _ in range(num_samples)]
        samples = sample_in_process(self.model, repeated, self.eos_token_ids, self.sampling, seed)
        return [samples[i : i + num_samples] for i in range(0, len(samples), num_samples)]

    def batch_size(self, longest_prompt: int) -> int:
        """As many as there is memory for."""
        return rows_that_fit(cache_bytes(self.model), longest_prompt + self.sampling.max_tokens)


def rows_that_fit(bytes_per_token: int, positions: int) -> int:
    """Responses of so many positions that are sampled together."""
    return max(1, min(MOST_ROWS, CACHE_BYTES // (bytes_per_token * positions)))


def sample_in_process(
    model: Any,
    prompts: Sequence[Sequence[int]],
    eos_token_ids: Collection[int],
    sampling: Sampling,
    seed: int,
    first_index: int = 0,
) -> "list[Sample]":
    """A sample of every prompt; equal prompts that stand together are read once.

    What is drawn depends on the seed, the prompt and the sample's number among those of the same
    prompt, not on the rest of the batch. `first_index` is the number of the very first: the
    samples before it are drawn by another process.
    """
    import torch

    from crt.sampling.hf import sample

    groups = [(prompt, len(list(equal))) for prompt, equal in groupby(prompts)]
    sizes = {size for _, size in groups}
    num_samples = sizes.pop() if len(sizes) == 1 else 1  # a group may be split over processes
    seeds = prompt_seeds([prompt for prompt, _ in groups], seed)
    uniform: list[Any] = []
    for own, (_, size) in zip(seeds, groups, strict=True):
        skipped = 0 if uniform else first_index
        stream = torch.Generator().manual_seed(own)
        uniform.append(torch.rand(skipped + size, sampling.max_tokens, generator=stream)[skipped:])
    was_training = model.training
    model.eval()
    try:
        samples = sample(
            model,
            prompts[::num_samples],
            num_samples,
            sampling.max_tokens,
            eos_token_ids,
            uniform=torch.cat(uniform),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
        )
    finally:
        model.train(was_training)
    return [one for group in samples for one in group]


def prompt_seeds(prompts: Sequence[Sequence[int]], seed: int) -> list[int]:
    """A seed of 63 bits for every prompt, from its own tokens; equal prompts get different ones."""
    before: Counter[tuple[int, ...]] = Counter()
    seeds: list[int] = []
    for prompt in map(tuple, prompts):
        name = f"{seed} {before[prompt]} {' '.join(map(str, prompt))}".encode()
        seeds.append(int.from_bytes(hashlib.sha256(name).digest()[:8]) >> 1)
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
