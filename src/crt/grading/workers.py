"""Worker processes that can be killed: a hang or a crash costs one item, never the run.

A worker is a plain child process that exchanges JSON with its parent: no fork of a process with
threads, no pickle, no need of `if __name__ == "__main__"`, and requests from any thread.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from crt.errors import GradingError

START_SECONDS = 120.0  # importing sympy on a busy machine
PACKAGE = str(Path(__file__).resolve().parents[2])  # a worker finds this very package
DIED = {"reason": "the grading worker died"}


class WorkerPool:
    """Some workers; a request waits for a free one."""

    def __init__(self, workers: int, deadline_seconds: float, memory_mb: int) -> None:
        self.settings = (workers, deadline_seconds, memory_mb)
        self.closed = False
        self._fill()

    def _fill(self) -> None:
        workers, deadline_seconds, memory_mb = self.settings
        self.owner = os.getpid()
        self.all = [Worker(deadline_seconds, memory_mb) for _ in range(workers)]
        self.free: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in self.all:
            self.free.put(worker)

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """A worker's reply; a worker that fails twice replies without a verdict."""
        if self.owner != os.getpid():
            self._fill()  # a forked child shares the parent's pipes: it gets workers of its own
        worker = self.free.get()
        try:
            if self.closed:
                raise GradingError("The grader is closed. Make a new Grader.")
            reply = worker.run(request)
            # the system may have killed it for another's memory: once more
            return worker.run(request) if reply == DIED else reply
        finally:
            if self.closed:  # closed while this was at work
                worker.stop()
            self.free.put(worker)

    def close(self) -> None:
        """Stops all workers; a forked child leaves its parent's alone."""
        self.closed = True
        if self.owner == os.getpid():
            for worker in self.all:
                worker.stop()


class Worker:
    """One child process, started when it is first needed."""

    def __init__(self, deadline_seconds: float, memory_mb: int) -> None:
        self.deadline_seconds, self.memory_mb = deadline_seconds, memory_mb
        self.process: subprocess.Popen[bytes] | None = None
        self.connection: Connection
        self.ready = False
        self.loaded: set[str] = set()

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply; without a verdict after the deadline or a crash. Either way usable again.

        A request that names a verifier alone has it imported: `error` is then "" or says why not.
        """
        try:
            if self.process is None or self.process.poll() is not None:
                self.launch()
            if not self.ready:
                self._receive(START_SECONDS)
                self.ready = True
            reply = self._load(request["verifier"])
            if not reply["error"] and "text" in request:
                self.connection.send_bytes(json.dumps(request).encode())
                reply = self._receive(self.deadline_seconds)
        except TimeoutError as error:
            reply = {"reason": str(error)}
        except (EOFError, ConnectionError):
            reply = DIED
        except OSError as error:
            reply = {"reason": f"the grading worker cannot start: {error.strerror or error}"}
        except BaseException:
            self.stop()  # Ctrl-C: a late reply must not answer the next request
            raise
        # memory or recursion ran out: what is left may be damaged
        if "verdict" not in reply and reply.get("error") != "":
            self._replace()
        return reply

    def _load(self, verifier: str) -> dict[str, Any]:
        """What a verifier needs is imported before its first deadline begins."""
        if verifier in self.loaded:
            return {"error": ""}
        self.connection.send_bytes(json.dumps({"load": verifier}).encode())
        reply = self._receive(START_SECONDS)
        if not reply["error"]:
            self.loaded.add(verifier)
        return reply | {"reason": f"the verifier {verifier} cannot be loaded: {reply['error']}"}

    def launch(self) -> None:
        """Starts the process; it says when it is ready."""
        self.stop()
        self.connection, child = Pipe()
        path = os.pathsep.join(filter(None, (PACKAGE, os.environ.get("PYTHONPATH", ""))))
        settings = map(str, (child.fileno(), self.deadline_seconds, self.memory_mb))
        with child:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "crt.grading.worker", *settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ
                | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
                pass_fds=(child.fileno(),),
                start_new_session=True,  # Ctrl-C is the parent's business
            )

    def _replace(self) -> None:
        """Kills the process; the new one loads while other work goes on."""
        started = self.ready
        self.stop()
        if started:  # one that never became ready would only fail again
            with contextlib.suppress(OSError):
                self.launch()

    def _receive(self, seconds: float) -> dict[str, Any]:
        if not self.connection.poll(seconds):
            raise TimeoutError(f"no verdict within {seconds:g} seconds")
        return json.loads(self.connection.recv_bytes())

    def stop(self) -> None:
        """Kills the process and takes its remains away."""
        process, self.process, self.ready = self.process, None, False
        self.loaded.clear()
        if process is not None:
            process.kill()
            process.wait()
            self.connection.close()
