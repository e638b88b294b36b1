"""Processes that end as they should: signals for a while, children that do not outlive us."""

import ctypes
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DEATH_SIGNAL = 1  # Linux: PR_SET_PDEATHSIG of prctl(2)


@contextmanager
def at_signal(act: Callable[..., None], *numbers: signal.Signals) -> Iterator[None]:
    """Within it these signals do this and nothing else; outside the main thread, nothing new."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, act) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ends_with_parent(number: signal.Signals) -> Callable[[], object] | None:
    """For `preexec_fn`: the child gets this signal when its parent is gone, killed or not."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: after the fork nothing may be loaded
    return lambda: prctl(DEATH_SIGNAL, number)
