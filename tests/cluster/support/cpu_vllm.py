"""vLLM's worker on a CPU with weights that can be changed, for tests.

vLLM's CPU backend packs every linear layer when it loads and drops the plain weight: the trainer's
new weights would not arrive, or would arrive and not be used.
"""

import torch
import vllm.model_executor.layers.utils as layers
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


def plain(layer, remove_weight):
    """Reads the weight when it is called, so that a new one counts."""
    layer.cpu_linear = torch.nn.functional.linear


layers.dispatch_cpu_unquantized_gemm = plain


class CpuWorker(vLLMColocateWorkerExtension):
    """verl's extension, once the layers above are plain."""
