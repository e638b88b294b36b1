"""`crt` in processes whose disk fails, which are killed, or which stop when they are told to.

They are forked from one process that has loaded the libraries, with faulty.c between it and the
system: a life costs what the work costs, and not what importing torch costs.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
LIBRARY = "faulty.so"
FAULTS = {"nothing": 0, "kill": 1, "full": 2, "read-only": 3}
COUNTS: Counter[str] = Counter()  # what went wrong on purpose
PATIENCE = 600.0  # seconds after which a life counts as hung; nothing here takes that long


@dataclass(frozen=True)
class Fault:
    """What goes wrong below a folder, and at which of the calls that change a file there."""

    kind: str
    at: int
    folder: Path


@dataclass(frozen=True)
class Ended:
    """How a life ended, what it said, and how many events it came to."""

    code: int
    out: str
    err: str
    events: int | None

    @property
    def told(self) -> str:
        return f"exit {self.code}\n{self.out}\n{self.err}"


def compiled(folder: Path) -> Path | None:
    """The library that makes disks fail; None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / LIBRARY
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(HERE / "faulty.c")]
    subprocess.run([*command, "-ldl"], check=True)
    return library


class Nursery:
    """The process the others are forked from."""

    def __init__(self, folder: Path, library: Path | None) -> None:
        self.folder, self.library = folder, library
        settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "0"}
        if library is not None:
            settings["LD_PRELOAD"] = str(library)
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "nursery.py"), str(library or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | settings,
        )

    @property
    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin is not None and self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    @contextlib.contextmanager
    def living(
        self, words: Sequence[object], fault: Fault | None = None, clock: int = 0
    ) -> Iterator["Life"]:
        """A life that is under way; one at a time. Its end is waited for when the block ends."""
        to, back = self._pipes
        order = {"words": [str(word) for word in words], "said": str(self.folder), "clock": clock}
        if fault is not None:
            order |= {"kind": FAULTS[fault.kind], "at": fault.at, "folder": str(fault.folder)}
        for name in ("out", "err", "events"):  # of the life before
            (self.folder / name).unlink(missing_ok=True)
        to.write(json.dumps(order) + "\n")
        to.flush()
        life = Life(int(back.readline()), self.folder)
        try:
            yield life
        except BaseException:  # the test fails: nobody is to wait for a server
            life.signal(signal.SIGKILL)
            raise
        finally:
            life.code = int(back.readline())

    def live(self, words: Sequence[object], fault: Fault | None = None, clock: int = 0) -> Ended:
        """A life from beginning to end."""
        with self.living(words, fault, clock) as life:
            pass
        ended = life.ended()
        if fault is not None and ended.code != 0:
            COUNTS[f"{words[0]}: {fault.kind}"] += 1
        return ended

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self.process.wait(timeout=60)


class Life:
    """One process."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid, self.folder, self.code = pid, folder, 0

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill_after(self, seconds: float) -> None:
        time.sleep(seconds)
        self.signal(signal.SIGKILL)

    def ended(self) -> Ended:
        events = self.folder / "events"
        counted = int(events.read_text()) if events.is_file() else None
        return Ended(self.code, self._said("out"), self._said("err"), counted)

    def _said(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""


def until(true, seconds: float = PATIENCE) -> None:
    """Waits for something that must happen; the limit is only there so that a test can fail."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
