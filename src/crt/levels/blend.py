"""Weights on the line from the base through a checkpoint, and beyond it: levels in between.

A share of 0 is the base, 1 the checkpoint. A blend is a model folder as a checkpoint is one.
"""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crt.errors import ConfigError, DataError
from crt.io import UNFINISHED, read_json, sha256, write_json, write_sealed
from crt.run import CHECKPOINTS, FILES, RECORD, Run
from crt.sampling.models import model_files, saved_dtype, with_weights

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

BLENDS = "blends"  # in a run's folder
MOST_SHARE = 4.0


def blend_folder(run: Run, step: int, share: float) -> Path:
    """Where the blend of the base and this step's checkpoint is, or will be."""
    return run.path / BLENDS / f"{run.checkpoint(step).name}-x{share:.2f}"


def share_of(name: str) -> float | None:
    """The share in a blend's name; None for the base and for a checkpoint."""
    match = re.fullmatch(r"step-\d+-x(\d+\.\d\d)", name)
    return float(match[1]) if match else None


def candidate_folder(run: Run, name: str) -> Path:
    return run.path / (CHECKPOINTS if share_of(name) is None else BLENDS) / name


def check_shares(shares: Sequence[float]) -> None:
    for share in shares:
        if not 0 < share <= MOST_SHARE or share == 1 or round(share, 2) != share:
            raise ConfigError(
                f"--shares {share:g}: above 0 and at most {MOST_SHARE:g}, with two digits after "
                "the point; 0 is the base and 1 the checkpoint itself"
            )


def write_blend(run: Run, step: int, share: float) -> Path:
    """The folder with base + share · (checkpoint − base), made whole if it is not there."""
    folder, checkpoint = blend_folder(run, step, share), run.checkpoint(step)
    if (folder / RECORD).is_file():
        return folder
    if not checkpoint.is_dir():
        raise DataError(f"{checkpoint} is not there: no weights lie between the base and it.")
    aside = folder.with_name(f"{UNFINISHED}{os.getpid()}-{folder.name}")
    try:
        folder.parent.mkdir(exist_ok=True)
        kept = shutil.ignore_patterns("*.safetensors*", RECORD)
        shutil.copytree(checkpoint, aside, ignore=kept)
        if (checkpoint / "adapter_config.json").is_file():
            _scale_adapter(checkpoint, share, aside)
        else:
            _write_between(run, checkpoint, share, aside)
        sums = {path.name: sha256(path) for path in sorted(aside.iterdir()) if path.is_file()}
        write_sealed(aside / RECORD, {"step": step, "share": share, FILES: sums})
        aside.rename(folder)
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _write_between(run: Run, checkpoint: Path, share: float, to: Path) -> None:
    """In float32; who loads it uses the number format that the checkpoint names."""
    settings = run.config.model
    files = model_files(settings.name, revision=settings.revision)
    base = with_weights(files, "float32", device="cpu")
    ours = with_weights(model_files(str(checkpoint)), "float32", device="cpu")
    blend_weights(base.model, ours.model, share)
    _save_weights(ours.model, to)
    config = read_json(to / "config.json")
    write_json(to / "config.json", config | {"dtype": saved_dtype(checkpoint)})


def _save_weights(model: "PreTrainedModel", to: Path) -> None:
    """Beside the generation's settings that are there; the library refuses to write some it read.

    Such are a temperature without `do_sample`, which older models have.
    """
    from transformers import GenerationConfig

    settings = to / "generation_config.json"
    content = settings.read_bytes() if settings.is_file() else None
    model.generation_config = GenerationConfig()
    model.save_pretrained(to, safe_serialization=True)
    settings.unlink(missing_ok=True)
    if content is not None:
        settings.write_bytes(content)


def blend_weights(base: "nn.Module", checkpoint: "nn.Module", share: float) -> None:
    """base + share · (checkpoint − base), in place of the checkpoint's weights."""
    import torch

    of_base, ours = (dict(model.named_parameters()) for model in (base, checkpoint))
    if other := sorted(of_base.keys() - ours.keys()):
        raise DataError(f"the checkpoint has no weights {other[0]}, which the base has.")
    with torch.no_grad():
        for name, weight in ours.items():
            if name not in of_base or of_base[name].shape != weight.shape:
                raise DataError(f"the base has no weights {name} of the checkpoint's shape.")
            weight.copy_(torch.lerp(of_base[name], weight, share))


def _scale_adapter(checkpoint: Path, share: float, to: Path) -> None:
    """B·A is what a LoRA adapter adds to the base, so B is scaled."""
    from safetensors.torch import load_file, save_file

    files = sorted(checkpoint.glob("*.safetensors"))
    if not files:
        raise DataError(f"{checkpoint} has no .safetensors weights that could be scaled.")
    for file in files:
        weights = load_file(file)
        other = next((n for n in weights if ".lora_A." not in n and ".lora_B." not in n), None)
        if other is not None:
            raise DataError(f"{file} cannot be scaled: it has more than LoRA's A and B ({other}).")
        scaled = {n: w * share if ".lora_B." in n else w for n, w in weights.items()}
        save_file(scaled, to / file.name, metadata={"format": "pt"})
