"""This process and its children: signals, an end that is shared, libraries that keep quiet."""

import ctypes
import logging
import os
import signal
import sys
import threading
import warnings
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


def silence_libraries() -> None:
    """Turns off the libraries' own bars and notes, before TRL and transformers are loaded."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.getLogger("trl").setLevel(logging.ERROR)
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
