"""Muon: momentum, orthogonalised, for weight matrices."""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor


def orthogonalised(matrices: Tensor, steps: int = 5) -> Tensor:
    """The nearest (semi-)orthogonal matrices, by Newton-Schulz, of (count, rows, columns)."""
    wide = matrices.shape[-2] <= matrices.shape[-1]
    x = matrices if wide else matrices.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x if wide else x.mT


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised in one batch for all matrices of a shape.

    `torch.optim.Muon` takes them one by one and in bfloat16, which is slow on a CPU.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            by_shape: defaultdict[torch.Size, list[Tensor]] = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape[matrix.shape].append(matrix)
            for same in by_shape.values():
                self._update(same, group["lr"], group["momentum"])

    def _update(self, same: list[Tensor], lr: float, momentum: float) -> None:
        directions = []
        for matrix in same:
            state = self.state[matrix]
            if "velocity" not in state:
                state["velocity"] = torch.zeros_like(matrix)
            assert matrix.grad is not None
            state["velocity"].lerp_(matrix.grad, 1 - momentum)
            directions.append(matrix.grad.lerp(state["velocity"], momentum))
        rows, columns = same[0].shape
        scale = max(1.0, rows / columns) ** 0.5
        for matrix, update in zip(same, orthogonalised(torch.stack(directions)), strict=True):
            matrix.add_(update, alpha=-lr * scale)
