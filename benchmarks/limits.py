"""The machine's limits, and the least time in which it could do what rollouts need."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from models import Shape

SQUARE = 2048
READ_BYTES = 512 * 2**20  # more than any cache


class Machine(NamedTuple):
    """What all cores together can do, per second."""

    operations: float  # of one large product, in the dtype of use
    bytes: float  # read from memory


def measure(dtype: str = "float32") -> Machine:
    """Measured on all threads of this process; the fastest of many tries is a limit."""
    kind = getattr(torch, dtype)
    left, right = (torch.randn(SQUARE, SQUARE).to(kind) for _ in range(2))
    product = _fastest(lambda: torch.mm(left, right), seconds=1.0)
    memory = torch.zeros(READ_BYTES // 4)
    read = _fastest(memory.sum, seconds=0.5)
    return Machine(2.0 * SQUARE**3 / product, READ_BYTES / read)


def least_seconds(
    machine: Machine,
    shape: Shape,
    prompts: Sequence[int],
    lengths: Sequence[Sequence[int]],
    weight_bytes: float,
) -> float:
    """Below this nobody comes who computes every token of these rollouts, each prompt once.

    Arithmetic and memory may go on at the same time, so it is the longer of the two. The weights
    are read once per token of the longest rollout, if they do not fit into the caches.
    """
    steps = max(max(group) for group in lengths)
    reading = steps * weight_bytes / machine.bytes if weight_bytes > 64 * 2**20 else 0.0
    return max(operations(shape, prompts, lengths) / machine.operations, reading)


def operations(
    shape: Shape, prompts: Sequence[int], lengths: Sequence[Sequence[int]], passes: float = 1.0
) -> float:
    """Floating-point operations of linear layers and attention, each prompt read once.

    `prompts` are the prompts' tokens, `lengths` those of each one's rollouts. A training update
    counts as three passes: one forwards, two backwards.
    """
    total = 0.0
    for prompt, group in zip(prompts, lengths, strict=True):
        total += prompt * shape.layer_weights * 2.0 + _attention(shape, 0, prompt)
        for length in group:
            total += length * 2.0 * (shape.layer_weights + shape.head_weights)
            total += _attention(shape, prompt, length)
    return total * passes


def _attention(shape: Shape, before: int, tokens: int) -> float:
    """For tokens in a row after `before`: scores and weighted values, 2·n·h each."""
    seen = tokens * before + tokens * (tokens + 1) / 2
    return 4.0 * shape.layers * shape.hidden * seen


def _fastest(work: object, seconds: float) -> float:
    """The fastest twentieth of the tries within these seconds."""
    call = work
    assert callable(call)
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 20]
