"""`crt` whose processes shard a model over gloo, by FSDP or DeepSpeed.

accelerate uses FSDP on accelerators alone. torch itself can do it on a CPU, so accelerate is told
that every process has a GPU. DeepSpeed needs nothing of the kind. With KILLED_AT in the
environment every process ends itself with -9 in that step, before its row is written.
"""

import os
import sys

import accelerate.state
from accelerate.utils import DistributedType

_init = accelerate.state.PartialState.__init__


def init(self, *args, **kwargs):
    """The state of a process over gloo, called MULTI_GPU."""
    _init(self, *args, **kwargs)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.MULTI_GPU


accelerate.state.PartialState.__init__ = init

from crt.cli import main  # noqa: E402
from crt.training.trl.trainer import CRTTrainer  # noqa: E402

_train = CRTTrainer.train


def train(self, *args, **kwargs):
    """One process says at the end how the model is held, for the test to read."""
    try:
        return _train(self, *args, **kwargs)
    finally:
        weights = list(self.model.parameters())
        how = f"FSDP{self._dist.fsdp_version}, {type(weights[0]).__name__}"
        if self.is_deepspeed_enabled:
            held = "whole" if all(weight.numel() for weight in weights) else "shards"
            how = f"ZeRO-{self.deepspeed.zero_optimization_stage()}, {held}"
        if self.accelerator.is_main_process:
            print(f"held as {how}, {weights[0].dtype}")


CRTTrainer.train = train

if __name__ == "__main__":
    if "KILLED_AT" in os.environ:
        from tests.support.trained import MOMENTS

        MOMENTS["before the row"](int(os.environ["KILLED_AT"]))
    sys.exit(main(sys.argv[1:]))
