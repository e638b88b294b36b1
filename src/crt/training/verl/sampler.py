# pyright: reportMissingImports=false
"""Models that stay as they are, on the cluster: verl's rollout servers as a sampler."""

import asyncio
import atexit
import contextlib
import io
import json
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from crt.errors import EngineError
from crt.sampling.base import Sampling, Seed, prompt_seeds
from crt.sampling.hf import Sample
from crt.sampling.models import Dtype, LoadedModel, base_of, load_model, model_files, model_folder
from crt.training.verl.overrides import Overrides, compose_config
from crt.training.verl.recorder import MODEL_FILES, TOKENIZER_FILES, copy_files

REQUESTS = 4096  # in one call; what is finished is kept, so a kill loses no more than these
LARGEST_SEED = 2**31


@dataclass(frozen=True)
class ClusterSampler:
    """Servers that start when first used; every sample has a seed of its own."""

    overrides: Overrides
    eos_token_ids: tuple[int, ...]
    sampling: Sampling

    def __call__(
        self, prompts: Sequence[Sequence[int]], num_samples: int, seed: Seed
    ) -> list[list[Sample]]:
        """The k-th sample of a prompt has the prompt's seed plus k, as in vLLM itself."""
        requests = [
            (list(ids), (own + copy) % LARGEST_SEED)
            for ids, own in zip(prompts, prompt_seeds(prompts, seed), strict=True)
            for copy in range(num_samples)
        ]
        try:
            samples = asyncio.run(self._generate_all(requests))
        except Exception as error:  # Ray, verl and vLLM have no class in common
            last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            raise EngineError(
                f"the cluster's rollout engine failed: {last[:300]}. The output of its processes "
                "is in Ray's logs: session_latest/logs below /tmp/ray, or below RAY_TMPDIR."
            ) from error
        return [samples[i * num_samples : (i + 1) * num_samples] for i in range(len(prompts))]

    async def _generate_all(self, requests: Sequence[tuple[list[int], int]]) -> list[Sample]:
        _, client = start_servers(json.dumps(self.overrides))
        return await asyncio.gather(*(self._generate(client, *request) for request in requests))

    async def _generate(self, client: Any, prompt: list[int], seed: int) -> Sample:
        output = await client.generate(
            request_id=uuid4().hex,
            prompt_ids=prompt,
            sampling_params={
                "max_tokens": self.sampling.max_tokens,
                "temperature": self.sampling.temperature,
                "top_p": self.sampling.top_p,
                "stop_token_ids": list(self.eos_token_ids),
                "seed": seed,
                "logprobs": True,
            },
        )
        tokens = list(output.token_ids)
        stop = "eos" if tokens and tokens[-1] in self.eos_token_ids else "length"
        return Sample(tokens, list(output.log_probs or []), stop)

    def batch_size(self, longest_prompt: int) -> int:
        """Whatever their length: the servers schedule them."""
        return REQUESTS

    def close(self) -> None:
        """Nothing yet: the next sampler may want the same model, and a start takes minutes."""


@lru_cache(maxsize=1)
def start_servers(overrides: str) -> tuple[Any, Any]:
    """Servers of one model and their client, kept until those of another are wanted.

    `overrides` are verl's, as JSON.
    """
    import ray
    from omegaconf import OmegaConf
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
    from verl.workers.rollout.llm_server import LLMServerManager

    start_servers.cache_clear()  # others end here, and may not be found again
    ray.shutdown()
    config = compose_config(json.loads(overrides))
    OmegaConf.resolve(config)
    options: Any = OmegaConf.to_container(config.ray_kwargs.ray_init)
    variables = OmegaConf.merge(get_ppo_ray_runtime_env(config), options.pop("runtime_env", {}))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options |= {"log_to_driver": False, "logging_level": logging.ERROR}
    ray.init(**options, runtime_env=OmegaConf.to_container(variables))
    with contextlib.redirect_stdout(io.StringIO()):  # verl prints its servers' addresses
        manager = LLMServerManager.create(config=config)
    return manager, manager.get_client()


def end_servers() -> None:
    """Leaves the devices to the trainer."""
    if start_servers.cache_info().currsize:
        import ray

        start_servers.cache_clear()
        ray.shutdown()


def load_without_weights(
    name: str,
    *,
    revision: str | None = None,
    dtype: Dtype = "auto",
    trust_remote_code: bool = False,
) -> LoadedModel:
    """The model's shape, tokenizer and hash; the cluster alone holds its weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    files = model_files(name, revision=revision, trust_remote_code=trust_remote_code)
    body = model_folder(base_of(files.folder)) if files.adapter else files.folder
    config = AutoConfig.from_pretrained(
        str(body), local_files_only=True, trust_remote_code=trust_remote_code
    )
    chosen = config.dtype or torch.float32 if dtype == "auto" else getattr(torch, dtype)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, dtype=chosen, trust_remote_code=trust_remote_code
        )
    return LoadedModel(files, model.eval(), str(model.dtype).removeprefix("torch."))


def merge_adapter(model: LoadedModel, folder: Path, base: Path, options: dict[str, Any]) -> Path:
    """The adapter merged into its base, as `crt eval` loads it, for servers of whole models.

    One such model is kept in `folder` while the process lives; servers hold one at a time.
    """
    target = folder / model.hash[:16]
    if not (target / "whole").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        target.mkdir(parents=True)
        copy_files(base, target, TOKENIZER_FILES + MODEL_FILES)
        merged = load_model(str(model.files.folder), device="cpu", **options)
        merged.model.save_pretrained(target)
        (target / "whole").touch()
    return target
