"""Processes that do the work: one thread each, a log each, and none outlives its parent."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crt.errors import DataError
from crt.processes import ends_with_parent
from crt.run import CONFIG


@dataclass(frozen=True)
class Work:
    """Something to be done by a process of its own."""

    name: str
    kind: str  # train or evaluate
    words: tuple[str, ...]  # after `python -m`
    log: Path


class Child:
    """A process that does some work."""

    def __init__(self, work: Work, device: str | None) -> None:
        self.work, self.device = work, device
        self.started = time.monotonic()
        try:
            log = work.log.open("ab")
        except OSError as error:
            raise DataError(f"{work.log} cannot be written: {error.strerror}.") from None
        with log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *work.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(device),
                start_new_session=True,  # Ctrl-C is the parent's to pass on
                # A killed comparison leaves nothing running that would hold its runs' locks.
                preexec_fn=ends_with_parent(signal.SIGKILL),
            )

    def ended(self) -> int | None:
        """Its exit code, once it has ended."""
        return self.process.poll()

    def ask_to_end(self) -> None:
        """Training saves what it has; evaluation has saved all but its last unit."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Until it has ended."""
        return self.process.wait()

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self.started


def environment(device: str | None) -> dict[str, str]:
    """One thread unless the user says otherwise, and the device that is its own."""
    found = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", **os.environ}
    found["PYTHONUNBUFFERED"] = "1"
    if device is not None:
        found["CUDA_VISIBLE_DEVICES"] = device
    return found


def cpu_seconds() -> float:
    """Of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def last_line(log: Path) -> str:
    """What a process said last, to tell why it failed."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:500] if lines else ""


def train_words(recipe: Path, run: Path) -> Sequence[str]:
    """`crt train`, for a new run or one that was begun."""
    if (run / CONFIG).is_file():
        return ("crt", "train", "--resume", str(run))
    shutil.rmtree(run, ignore_errors=True)  # killed before it was a run
    return ("crt", "train", str(recipe), "--out", str(run))
