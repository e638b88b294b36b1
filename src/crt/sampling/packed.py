"""Frozen weights in the layout that the processor multiplies fastest: bfloat16 on a CPU.

A linear layer lays its weight out anew at every call. For a few dozen rows, as in sampling, that
costs as much as the product. Here it is done once for all tokens of a call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

WORTH_IT = 32  # tokens; laying out costs about as much as two of them


@contextmanager
def packed_weights(model: nn.Module, tokens: int) -> Iterator[None]:
    """Within it the model's bfloat16 layers on a CPU multiply by weights laid out beforehand.

    Nobody may change the weights meanwhile. They are there twice as long as it lasts.
    """
    linear = [layer for layer in model.modules() if type(layer) is nn.Linear]
    layers = [layer for layer in linear if tokens >= WORTH_IT and _is_packable(layer)]
    try:
        for layer in layers:
            packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), 1)
            layer.forward = partial(_multiply, packed, layer.bias)
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def _is_packable(layer: nn.Linear) -> bool:
    return (
        layer.weight.device.type == "cpu"
        and layer.weight.dtype == torch.bfloat16
        and "forward" not in vars(layer)  # as hooks of accelerate put it there
        and torch.backends.mkldnn.is_available()  # without it the next has no such name
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def _multiply(packed: Any, bias: Tensor | None, input: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(input, packed, bias, "none", [], "")
