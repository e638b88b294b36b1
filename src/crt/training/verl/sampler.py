"""verl's rollout engine as a sampler: its servers on the cluster, with a model that stays."""

import asyncio
import contextlib
import io
import logging
import os
from collections.abc import Collection, Sequence
from typing import Any
from uuid import uuid4

from crt.errors import EngineError
from crt.sampling.base import Sampling, prompt_seeds
from crt.sampling.hf import Sample
from crt.training.verl.words import Overrides, words

ROWS = 4096  # requests in one call; what is finished is kept, so a kill loses no more than these
LARGEST_SEED = 2**31


class ClusterSampler:
    """Servers that start when first asked; every sample has a seed of its own."""

    def __init__(
        self, overrides: Overrides, eos_token_ids: Collection[int], sampling: Sampling
    ) -> None:
        self.overrides, self.sampling = overrides, sampling
        self.eos_token_ids = frozenset(eos_token_ids)

    def __call__(
        self, prompts: Sequence[Sequence[int]], num_samples: int, seed: int
    ) -> list[list[Sample]]:
        """The k-th sample of a prompt has the prompt's seed plus k, as in vLLM itself."""
        asked = [
            (list(ids), (own + copy) % LARGEST_SEED)
            for ids, own in zip(prompts, prompt_seeds(prompts, seed), strict=True)
            for copy in range(num_samples)
        ]
        try:
            drawn = asyncio.run(self._all(SERVERS.client(self.overrides), asked))
        except Exception as error:  # Ray, verl and vLLM have no class in common
            last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            raise EngineError(
                f"the cluster's rollout engine failed: {last[:300]}. What its processes said is "
                "in Ray's logs: session_latest/logs below /tmp/ray, or below RAY_TMPDIR."
            ) from error
        return [drawn[i * num_samples : (i + 1) * num_samples] for i in range(len(prompts))]

    async def _all(self, client: Any, asked: Sequence[tuple[list[int], int]]) -> list[Sample]:
        return await asyncio.gather(*(self._one(client, ids, seed) for ids, seed in asked))

    async def _one(self, client: Any, prompt: list[int], seed: int) -> Sample:
        output = await client.generate(
            request_id=uuid4().hex,
            prompt_ids=prompt,
            sampling_params={
                "max_tokens": self.sampling.max_tokens,
                "temperature": self.sampling.temperature,
                "top_p": self.sampling.top_p,
                "stop_token_ids": sorted(self.eos_token_ids),
                "seed": seed,
                "logprobs": True,
            },
        )
        tokens = list(output.token_ids)
        stop = "eos" if tokens and tokens[-1] in self.eos_token_ids else "length"
        return Sample(tokens, list(output.log_probs or []), stop)

    def batch_size(self, longest_prompt: int) -> int:
        """Whatever their length: the servers schedule them."""
        return ROWS

    def close(self) -> None:
        """Nothing yet: the next to ask may want the same model, and a start takes minutes."""


class Servers:
    """The rollout servers of this process: of one model at a time, kept until another is asked."""

    def __init__(self) -> None:
        self.overrides: Overrides = {}
        self._client: Any = None

    def client(self, overrides: Overrides) -> Any:
        """Who asks them; they start, or start anew with another model."""
        if self._client is None or self.overrides != overrides:
            self.end()
            self._start(overrides)
            self.overrides = overrides
        return self._client

    def end(self) -> None:
        """Leaves the devices to the trainer."""
        if self._client is not None:
            import ray  # pyright: ignore[reportMissingImports]

            self._client = self._manager = None
            ray.shutdown()

    def _start(self, overrides: Overrides) -> None:
        import ray  # pyright: ignore[reportMissingImports]
        from omegaconf import OmegaConf  # pyright: ignore[reportMissingImports]
        from verl.trainer.constants_ppo import (  # pyright: ignore[reportMissingImports]
            get_ppo_ray_runtime_env,
        )
        from verl.workers.rollout.llm_server import (  # pyright: ignore[reportMissingImports]
            LLMServerManager,
        )

        config = composed(overrides)
        OmegaConf.resolve(config)
        asked: Any = OmegaConf.to_container(config.ray_kwargs.ray_init)
        variables = OmegaConf.merge(get_ppo_ray_runtime_env(config), asked.pop("runtime_env", {}))
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(**asked, **quiet, runtime_env=OmegaConf.to_container(variables))
        with contextlib.redirect_stdout(io.StringIO()):  # verl prints its servers' addresses
            self._manager = LLMServerManager.create(config=config)
        self._client = self._manager.get_client()


SERVERS = Servers()


def composed(overrides: Overrides) -> Any:
    """verl's whole configuration with these overrides, as its own command makes it."""
    from hydra import compose, initialize_config_module  # pyright: ignore[reportMissingImports]

    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=words(overrides))
