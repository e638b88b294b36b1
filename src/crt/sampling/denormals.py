"""Numbers below 1e-38, such as the smallest attention weights, make a CPU crawl."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Numbers too small for full precision are 0 in this thread, and after it as they were."""
    before = sys.float_info.min / 2 == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
