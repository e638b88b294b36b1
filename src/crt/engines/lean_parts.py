"""What a small Llama consists of, each part with its way back.

`back` makes the gradient of what a part has read from that of what it said, and adds the gradients
of its weights to those that are found.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Gradients(dict[Tensor, Tensor]):
    """Of weights, added up."""

    def __init__(self) -> None:
        super().__init__()
        self.together: dict[Tensor, Tensor] = {}

    def of(self, *weights: Tensor) -> Tensor:
        """Those of weights that stand one below the other, as one."""
        first = weights[0]
        if first not in self.together:
            rows = [len(weight) for weight in weights]
            self.together[first] = first.new_zeros(sum(rows), *first.shape[1:])
            self.update(zip(weights, self.together[first].split(rows), strict=True))
        return self.together[first]


class Turn(NamedTuple):
    """By which queries and keys (nodes, heads, size) tell where they are."""

    cos: Tensor  # (nodes, 1, size)
    sin: Tensor  # of what is half a turn away

    def __call__(self, values: Tensor) -> Tensor:
        """Turns them."""
        return torch.addcmul(values * self.cos, values.roll(values.shape[-1] // 2, -1), self.sin)

    def back(self, gradient: Tensor) -> Tensor:
        """Turns their gradient back."""
        away = (gradient * self.sin).roll(gradient.shape[-1] // 2, -1)
        return away.addcmul_(gradient, self.cos)

    def of(self, some: slice) -> "Turn":
        """For some of the nodes."""
        return Turn(self.cos[some], self.sin[some])


class Norm:
    """A norm of the model, of root mean square."""

    def __init__(self, norm: Any) -> None:
        self.weight, self.epsilon = norm.weight, norm.variance_epsilon

    def __call__(self, values: Tensor) -> Tensor:
        """(..., size), of length 1 on average, times the weight."""
        normed, _ = self.shrunk(values)
        return normed.mul_(self.weight)  # as the model does, also where numbers overflow

    def shrunk(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Before the weight, and by how much, (..., 1)."""
        by = values.square().mean(-1, True).add_(self.epsilon).rsqrt_()
        return values * by, by

    def back(self, gradient: Tensor, normed: Tensor, by: Tensor, found: Gradients) -> Tensor:
        """The gradient of the values, from that of what it says of them."""
        product = gradient * normed
        found.of(self.weight).add_(product.flatten(0, -2).sum(0))
        along = (product @ self.weight).div_(normed.shape[-1])[..., None]
        return (gradient * self.weight).addcmul_(normed, along, value=-1).mul_(by)


class Together:
    """Linear layers that read the same, behind a norm, as one."""

    def __init__(self, norm: Any, *layers: Any) -> None:
        self.norm, self.layers = Norm(norm), layers
        self.weight = torch.cat([layer.weight for layer in layers]).t().contiguous()
        told = layers[0].bias is not None
        self.bias = torch.cat([layer.bias for layer in layers]) if told else None

    def __call__(self, values: Tensor, room: Tensor | None = None) -> Tensor:
        """What they say, one behind the other."""
        read = self.norm(values)
        if self.bias is None:
            return torch.mm(read, self.weight, out=room)
        return torch.addmm(self.bias, read, self.weight, out=room)

    def back(self, gradient: Tensor, values: Tensor, found: Gradients) -> Tensor:
        """The gradient of the values, from that of what they say."""
        normed, by = self.norm.shrunk(values)
        read = normed * self.norm.weight
        found.of(*(layer.weight for layer in self.layers)).addmm_(gradient.t(), read)
        if self.bias is not None:
            found.of(*(layer.bias for layer in self.layers)).add_(gradient.sum(0))
        return self.norm.back(gradient @ self.weight.t(), normed, by, found)


def plus_linear(so_far: Tensor, layer: Any, read: Tensor, room: Tensor | None) -> Tensor:
    """What a linear layer says, added to what there is."""
    said = torch.addmm(so_far, read, layer.weight.t(), out=room)
    return said if layer.bias is None else said.add_(layer.bias)


def linear_back(layer: Any, read: Tensor, gradient: Tensor, found: Gradients) -> Tensor:
    """The gradient of what a linear layer has read, from that of what it said."""
    found.of(layer.weight).addmm_(gradient.t(), read)
    if layer.bias is not None:
        found.of(layer.bias).add_(gradient.sum(0))
    return gradient @ layer.weight
