"""Arithmetic that rollouts need at the least, and how fast this machine multiplies matrices."""

import time
from collections.abc import Sequence

import torch
from llamas import VOCABULARY, Shape

SQUARE = 2048


def needed(shape: Shape, prompts: Sequence[int], lengths: Sequence[Sequence[int]]) -> float:
    """Floating-point operations of linear layers and attention, each prompt read once.

    `prompts` are the prompts' tokens, `lengths` those of each one's rollouts. The last token of a
    rollout is said and never read.
    """
    total = 0.0
    for prompt, group in zip(prompts, lengths, strict=True):
        total += prompt * body(shape) + attended(shape, 0, prompt)
        total += head(shape)  # one distribution for the first token of all
        for length in group:
            total += (length - 1) * (body(shape) + head(shape))
            total += attended(shape, prompt, length - 1)
    return total


def body(shape: Shape) -> float:
    """Of the linear layers, a token: a multiplication and an addition for each weight."""
    return 2.0 * shape.layers * sum(a * b for a, b in layer_of(shape))


def head(shape: Shape) -> float:
    """Of the distribution over the vocabulary."""
    return 2.0 * shape.hidden * VOCABULARY


def attended(shape: Shape, before: int, tokens: int) -> float:
    """Of attention for tokens in a row after `before`: scores and weighted values, 2·n·h each."""
    seen = tokens * before + tokens * (tokens + 1) / 2
    return 4.0 * shape.layers * shape.hidden * seen


def layer_of(shape: Shape) -> list[tuple[int, int]]:
    """In and out of a layer's linear maps: query, key, value, output, gate, up, down."""
    h, i = shape.hidden, shape.inner
    return [(h, h)] * 4 + [(h, i), (h, i), (i, h)]


def square_rate() -> float:
    """Operations a second of one large square product: the machine's sgemm limit."""
    return rate([(SQUARE, SQUARE)], SQUARE, seconds=1.0)


def layer_rate(shape: Shape, rows: int) -> float:
    """Operations a second of a layer's own products, with so many rows."""
    return rate(layer_of(shape), rows, seconds=0.5)


def rate(maps: Sequence[tuple[int, int]], rows: int, seconds: float) -> float:
    """In CPU seconds of a thread, which others cannot lengthen; its fastest twentieth: a limit."""
    inputs = {a: torch.randn(rows, a) for a, _ in maps}
    weights = [(a, torch.randn(b, a)) for a, b in maps]
    work = sum(2.0 * rows * a * b for a, b in maps)

    def once() -> float:
        begun = time.process_time()
        for a, weight in weights:
            torch.nn.functional.linear(inputs[a], weight)
        return (time.process_time() - begun) / torch.get_num_threads()

    once()
    times = [once() for _ in range(max(5, int(seconds / max(once(), 1e-6))))]
    return work / sorted(times)[len(times) // 20]
