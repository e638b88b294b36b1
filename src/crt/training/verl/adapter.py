"""The LoRA adapter of verl's checkpoint as a folder of peft's, and merged into its base."""

import atexit
import re
import shutil
from pathlib import Path
from typing import Any

from crt.config import LoraConfig
from crt.errors import EngineError
from crt.sampling.models import LoadedModel, load_model

RANK = re.compile(r"_rank_(\d+)\.pt$")


def write_adapter(saved: Path, target: Path, base: Path, lora: LoraConfig) -> None:
    """peft's files of the adapter that verl saved in `saved`, in float32 as it was trained."""
    from peft import LoraConfig as PeftConfig
    from safetensors.torch import save_file

    tensors = adapter_tensors(saved)
    found = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in tensors})
    given = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / "adapter_model.safetensors", {"format": "pt"})
    PeftConfig(
        r=lora.rank,
        lora_alpha=int(lora.alpha),
        target_modules=found if given == "all-linear" else given,
        base_model_name_or_path=str(base),
        task_type="CAUSAL_LM",
        inference_mode=True,
    ).save_pretrained(str(target))


def adapter_tensors(saved: Path) -> dict[str, Any]:
    """The adapter's whole tensors by peft's names, from the shards of all ranks."""
    import torch
    from torch.distributed.tensor import DTensor

    files = {int(match[1]): path for path in saved.glob("*.pt") if (match := _model_shard(path))}
    shards = {
        rank: torch.load(path, map_location="cpu", weights_only=True)
        for rank, path in sorted(files.items())
    }
    tensors: dict[str, Any] = {}
    for name, tensor in shards[0].items() if shards else ():
        if ".lora_" not in name:
            continue
        if isinstance(tensor, DTensor):
            # the last dimension of the mesh shards, those before it hold num_samples
            ranks = tensor.device_mesh.mesh.flatten(0, -1).tolist()
            ranks = ranks[: tensor.device_mesh.mesh.shape[-1]]
            place: Any = tensor.placements[-1]
            parts = [shards[rank][name].to_local() for rank in ranks]
            tensor = torch.cat(parts, dim=place.dim) if place.is_shard() else parts[0]
        tensors[name.replace(".default", "")] = tensor.detach().float().contiguous()
    if not tensors:
        raise EngineError(f"verl's checkpoint in {saved} holds no adapter.")
    return tensors


def _model_shard(path: Path) -> "re.Match[str] | None":
    return RANK.search(path.name) if path.name.startswith("model_world_size_") else None


def merged_folder(model: LoadedModel, folder: Path, base: Path, options: dict[str, Any]) -> Path:
    """The adapter merged into its base, as `crt eval` loads it, for servers of whole models.

    One such model is kept in `folder` while the process lives; servers hold one at a time.
    """
    target = folder / model.hash[:16]
    if not (target / "whole").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        target.mkdir(parents=True)
        for file in base.iterdir():  # tokenizer and settings, as the base has them
            if file.is_file() and file.suffix != ".safetensors":
                shutil.copyfile(file, target / file.name)
        loaded = load_model(str(model.files.folder), device="cpu", **options)
        loaded.model.save_pretrained(target)
        (target / "whole").touch()
    return target
