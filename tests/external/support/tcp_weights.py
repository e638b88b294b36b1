"""New weights for a vLLM server over TCP, where TRL and vLLM have only NCCL: both ends.

Only the wire is another. The rendezvous, the server's endpoints, what is announced and how it is
loaded are those of TRL and vLLM.
"""

from collections.abc import Iterator
from typing import Any

import torch
import trl.generation.vllm_client as trls
from vllm.distributed.utils import StatelessProcessGroup
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine


class Wire:
    """In place of NCCL's communicator: tensors go through the store of vLLM's process group."""

    def __init__(self, info: dict[str, Any], rank: int) -> None:
        self.group = StatelessProcessGroup.create(
            info["master_address"], info["master_port"], rank, info["world_size"]
        )
        self.group.broadcast_recv_src_counter[0] = 0


class TcpEngine(NCCLWeightTransferEngine):
    """The server's end: a worker, whose rank follows the trainer's."""

    def init_transfer_engine(self, init_info: Any) -> None:
        self.model_update_group: Any = Wire(vars(init_info), init_info.rank_offset)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Without waiting for a device, because there is none."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: Any) -> None:
        for name, dtype, shape in zip(
            update_info.names, update_info.dtype_names, update_info.shapes, strict=True
        ):
            weight = self.model_update_group.group.broadcast_obj(None, src=0)
            assert weight.dtype == getattr(torch, dtype) and list(weight.shape) == list(shape)
            self.model.load_weights([(name, weight)])


def send(iterator: Iterator[tuple[str, torch.Tensor]], group: Wire, **_: Any) -> None:
    """The trainer's end."""
    for _name, weight in iterator:
        group.group.broadcast_obj(weight.detach().clone(), src=0)


def use_in_trl() -> None:
    """TRL's client sends this way; a device without an index passes its check for a GPU."""
    original = trls.VLLMClient.init_communicator
    trls.VLLMClient.init_communicator = lambda self, device=0: original(self, torch.device("cuda"))
    trls.open_trainer_endpoint = lambda info: Wire(info, 0)
    trls.packed_nccl_broadcast_producer = send
