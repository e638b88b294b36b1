"""Who draws responses: this process with the fast sampler, or vLLM; one call for both."""

import hashlib
import importlib.util
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from crt.errors import ConfigError, install_command
from crt.sampling.models import ModelFiles, cache_bytes

if TYPE_CHECKING:
    from crt.sampling.hf import Sample

CACHE_BYTES = 4 * 2**30  # for keys and values; fixed, so that draws are the same everywhere
MOST_ROWS = 256  # more rows are no faster on a CPU

Engine = Literal["auto", "fast", "vllm"]
Seed = int | Sequence[int]  # for all prompts of a call, or for each


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0


class Sampler(Protocol):
    """A policy that continues prompts; what it says to one depends on the seed, not on the rest."""

    def __call__(
        self, prompts: Sequence[Sequence[int]], num_samples: int, seed: Seed
    ) -> "list[list[Sample]]":
        """`num_samples` samples of every prompt, given as token ids; one seed, or one for each."""
        ...

    def batch_size(self, longest_prompt: int) -> int:
        """Samples it draws well at once after prompts of at most so many tokens."""
        ...


class InProcess:
    """The fast sampler on a model in this process, which may be in training."""

    def __init__(self, model: Any, eos_token_ids: Collection[int], sampling: Sampling) -> None:
        self.model, self.eos_token_ids, self.sampling = model, eos_token_ids, sampling

    def __call__(
        self, prompts: Sequence[Sequence[int]], num_samples: int, seed: Seed
    ) -> "list[list[Sample]]":
        """One batch; every rollout has its own stream of random numbers."""
        seeds = prompt_seeds(prompts, seed)
        groups = [
            Group(prompt, own, num_samples) for prompt, own in zip(prompts, seeds, strict=True)
        ]
        return sample_groups(self.model, groups, self.eos_token_ids, self.sampling)

    def batch_size(self, longest_prompt: int) -> int:
        """As many as there is memory for."""
        return rows_that_fit(cache_bytes(self.model), longest_prompt + self.sampling.max_tokens)


def rows_that_fit(bytes_per_token: int, positions: int) -> int:
    """Responses of so many positions that are sampled together."""
    return max(1, min(MOST_ROWS, CACHE_BYTES // (bytes_per_token * positions)))


@dataclass(frozen=True)
class Group:
    """Some of a prompt's rollouts: `count` of them, after `first` that are drawn elsewhere."""

    prompt: Sequence[int]
    seed: int
    count: int
    first: int = 0


def sample_groups(
    model: Any, groups: Sequence[Group], eos_token_ids: Collection[int], sampling: Sampling
) -> "list[list[Sample]]":
    """The rollouts of each group; what is drawn depends on its seed and prompt alone."""
    import torch

    from crt.sampling.hf import sample

    uniform: list[Any] = []
    for group in groups:
        stream = torch.Generator().manual_seed(group.seed)
        rows = torch.rand(group.first + group.count, sampling.max_tokens, generator=stream)
        uniform.append(rows[group.first :])
    sizes = {group.count for group in groups}
    num_samples = sizes.pop() if len(sizes) == 1 else 1  # else a group is split over processes
    prompts = [group.prompt for group in groups for _ in range(group.count // num_samples)]
    was_training = model.training
    model.eval()
    try:
        drawn = sample(
            model,
            prompts,
            num_samples,
            sampling.max_tokens,
            eos_token_ids,
            uniform=torch.cat(uniform),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
        )
    finally:
        model.train(was_training)
    flat = (one for several in drawn for one in several)
    return [[next(flat) for _ in range(group.count)] for group in groups]


def prompt_seeds(prompts: Sequence[Sequence[int]], seed: Seed) -> list[int]:
    """A seed of 63 bits for every prompt, from its own tokens; equal prompts get different ones.

    Seeds that are given for each prompt are taken as they are.
    """
    if not isinstance(seed, int):
        return list(seed)
    before: Counter[tuple[int, ...]] = Counter()
    seeds: list[int] = []
    for prompt in map(tuple, prompts):
        seeds.append(hash_seed(seed, before[prompt], *prompt))
        before[prompt] += 1
    return seeds


def hash_seed(*parts: int | str) -> int:
    """A seed of 63 bits that is the same on every machine."""
    name = " ".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8]) >> 1


def choose_engine(engine: Engine, files: ModelFiles) -> Literal["fast", "vllm"]:
    """vLLM when it is installed and a GPU is there, unless one is asked for."""
    installed = importlib.util.find_spec("vllm") is not None
    if engine == "vllm" and not installed:
        raise ConfigError(
            f"vLLM is not installed: {install_command('vllm')}, or use --engine fast."
        )
    if engine == "vllm" and files.adapter:
        raise ConfigError(f"{files.folder} is an adapter: merge it first, or use --engine fast")
    if engine != "auto":
        return engine
    import torch

    return "vllm" if installed and torch.cuda.is_available() and not files.adapter else "fast"
