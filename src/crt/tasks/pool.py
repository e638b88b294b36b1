"""Worker processes that can be killed: a hang or a crash costs one item, never the run.

Each is a plain child process that speaks JSON lines over pipes: no fork of a process with threads,
no pickle, no need of `if __name__ == "__main__"`, and calls from any thread are fine.
"""

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from crt.errors import GradingError

START_SECONDS = 120.0  # importing sympy on a busy machine


class WorkerFailed(Exception):
    """A worker hung or died; says which, in words for the verdict's reason."""


class WorkerDied(WorkerFailed):
    """It ended by itself, or something ended it."""


class Worker:
    """One child process, started when it is first needed."""

    def __init__(self, deadline_seconds: float, memory_mb: int) -> None:
        self.deadline_seconds = deadline_seconds
        self.memory_mb = memory_mb
        self.process: subprocess.Popen[bytes] | None = None
        self.unread = b""
        self.ready = False

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply, or WorkerFailed after the deadline or a crash; either way usable again."""
        try:
            if self.process is None or self.process.poll() is not None:
                self.launch()
            if not self.ready:
                self._receive(START_SECONDS)
                self.ready = True
            self._send(request)
            reply = self._receive(self.deadline_seconds)
        except WorkerFailed:
            self.replace()
            raise
        except BaseException:
            self.stop()  # Ctrl-C: a late reply must not answer the next request
            raise
        if "ungraded" in reply:
            self.replace()  # memory or recursion ran out: what is left may be damaged
        return reply

    def launch(self) -> None:
        """Starts the process; it says when it has loaded sympy."""
        command = [sys.executable, "-P", "-m", "crt.tasks.symbolic"]
        self.stop()
        self.unread = b""
        try:
            self.process = subprocess.Popen(
                [*command, str(self.deadline_seconds), str(self.memory_mb)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is the parent's business
            )
        except OSError as error:
            raise WorkerFailed(f"the grading worker cannot start: {error.strerror}") from error

    def replace(self) -> None:
        """Kills the process; the new one loads while other work goes on."""
        started = self.ready
        self.stop()
        if started:  # one that never became ready would only fail again
            with contextlib.suppress(WorkerFailed):
                self.launch()

    def _send(self, request: dict[str, Any]) -> None:
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise WorkerDied("the grading worker died") from error

    def _receive(self, seconds: float) -> dict[str, Any]:
        """One line of JSON, if it comes in time."""
        assert self.process is not None and self.process.stdout is not None
        source = self.process.stdout.fileno()
        end = time.monotonic() + seconds
        while b"\n" not in self.unread:
            if not _readable(source, end - time.monotonic()):
                raise WorkerFailed(f"no verdict within {seconds:g} seconds")
            piece = os.read(source, 65536)
            if not piece:
                raise WorkerDied("the grading worker died")
            self.unread += piece
        line, _, self.unread = self.unread.partition(b"\n")
        return json.loads(line)

    def stop(self) -> None:
        """Kills the process and takes its remains away."""
        process, self.process, self.ready = self.process, None, False
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError, AttributeError):
                pipe.close()  # type: ignore[union-attr]
        process.wait()


def _readable(source: int, seconds: float) -> bool:
    """Waits for input with poll, which has no limit on file numbers as select has."""
    waiting = select.poll()
    waiting.register(source, select.POLLIN)
    return bool(waiting.poll(max(0.0, seconds) * 1000))


def _environment() -> dict[str, str]:
    """The child finds this very package, wherever the parent found it, and no GPU."""
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
    return os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


class Pool:
    """Some workers; a request waits for a free one."""

    def __init__(self, workers: int, deadline_seconds: float, memory_mb: int) -> None:
        self.settings = (workers, deadline_seconds, memory_mb)
        self.lock = threading.Lock()
        self.closed = False
        self._fill()

    def _fill(self) -> None:
        workers, deadline_seconds, memory_mb = self.settings
        self.owner = os.getpid()
        self.all = [Worker(deadline_seconds, memory_mb) for _ in range(workers)]
        self.free: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in self.all:
            self.free.put(worker)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """A worker's reply; a worker that fails makes the reply `ungraded`."""
        self._after_fork()
        worker = self.free.get()
        try:
            if self.closed:
                raise GradingError("The grader is closed. Make a new Grader.")
            try:
                return worker.ask(request)
            except WorkerDied:  # the system may have killed it for another's memory: once more
                return worker.ask(request)
        except WorkerFailed as failure:
            return {"ungraded": str(failure)}
        finally:
            if self.closed:  # closed while this was at work
                worker.stop()
            self.free.put(worker)

    def _after_fork(self) -> None:
        """A forked child shares the parent's pipes: it gets workers of its own."""
        if self.owner != os.getpid():
            self.lock = threading.Lock()
            with self.lock:
                self._fill()

    def close(self) -> None:
        """Stops all workers; a forked child leaves its parent's alone."""
        self.closed = True
        if self.owner == os.getpid():
            for worker in self.all:
                worker.stop()
