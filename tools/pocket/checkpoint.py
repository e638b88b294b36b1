"""Where a build stands, on disk, so that it can be cut off at any moment and go on."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

STATE = "state.safetensors"


def save(
    folder: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer], at: dict[str, Any]
) -> None:
    """Writes weights, optimiser state and position as one file, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"model.{k}": v.clone() for k, v in model.state_dict().items()}
    for number, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{number}.{index}.{name}"] = value.clone()
    waiting = folder / f"{STATE}.part"
    save_file(tensors, waiting, metadata={"at": json.dumps(at)})
    os.replace(waiting, folder / STATE)


def position(folder: Path) -> dict[str, Any]:
    """Where the saved build stands; empty where there is none."""
    from safetensors import safe_open

    if not (folder / STATE).exists():
        return {}
    with safe_open(folder / STATE, "pt") as file:
        return json.loads((file.metadata() or {})["at"])


def load(folder: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """Puts saved weights and optimiser state back."""
    tensors = load_file(folder / STATE)
    model.load_state_dict(
        {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    )
    for number, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key, value in tensors.items():
            if key.startswith(f"optimizer.{number}."):
                _, _, index, name = key.split(".", 3)
                state.setdefault(int(index), {})[name] = value
        optimizer.load_state_dict(
            {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
        )
