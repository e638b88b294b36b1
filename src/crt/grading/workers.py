"""Worker processes that can be killed: a hang or a crash costs one item, never the run.

A worker is a plain child process that exchanges JSON with its parent: no fork of a process with
threads, no pickle, no need of `if __name__ == "__main__"`, and requests from any thread. The parent
starts `python -m crt.grading.workers FD SECONDS MB` and sends one JSON request per message over the
connection FD: a task, answered by a verdict, what was extracted, and a reason.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import queue
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from crt.errors import CrtError, GradingError
from crt.grading.mathematics import GoldUnread
from crt.grading.verifiers import QUICK, Task, function_of, source_of, verify
from crt.types import Problem, Verdict

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
                [sys.executable, "-P", "-m", "crt.grading.workers", *settings],
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


# ---- In the worker: whatever may hang, crash or eat memory runs here and not in the run

Reply = dict[str, Any]


def serve(connection: Connection, deadline_seconds: float, memory_mb: int) -> None:
    """Answers requests until the parent is gone; the process ends itself if it is left alone."""
    with contextlib.suppress(ValueError, OSError):  # not every system can limit
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb * 2**20, memory_mb * 2**20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send_bytes(b'{"ready": true}')
    with contextlib.suppress(EOFError):
        while True:
            request = json.loads(connection.recv_bytes())
            if "load" in request:  # takes seconds, and no item's deadline
                connection.send_bytes(json.dumps(load(request["load"])).encode())
                continue
            signal.alarm(int(deadline_seconds) + 5)
            connection.send_bytes(json.dumps(reply_to(request)).encode())
            signal.alarm(0)


def load(verifier: str) -> Reply:
    """Imports what a verifier needs; `error` says why that failed."""
    try:
        if function_of(verifier):
            load_function(verifier)
        elif verifier in ("math", "choice", "math_verify"):
            from crt.grading.symbolic import parse_latex

            parse_latex("1")  # its grammar
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": ""}


def reply_to(request: dict[str, Any]) -> Reply:
    """The reply to one task: without a verdict where memory or the stack ran out."""
    fields = request["problem"]
    lists = {key: tuple(fields.get(key, ())) for key in ("options", "accepted")}
    task = Task(**{**request, "problem": Problem(**{**fields, **lists})})
    try:
        if task.pattern:
            matches = re.findall(f"(?:{task.pattern})", task.text)
            if not matches:
                reason = "no match of the pattern of grading.answer"
                return {"verdict": Verdict.NO_ANSWER, "extracted": None, "reason": reason}
            last = matches[-1]  # a text, or one per group
            text = last if isinstance(last, str) else next(filter(None, last), "")
            task = task._replace(text=text.strip(), pattern="")
        equal, reason = judge(task)
    except GoldUnread as error:
        equal, reason = None, f"the gold cannot be read: {error}"
    except MemoryError:
        return {"reason": "out of memory"}
    except RecursionError:
        return {"reason": "nested too deeply"}
    except Exception as error:  # sympy raises nearly anything on odd input: unknown, not wrong
        where = "symbolic work" if task.verifier in QUICK else f"the verifier {task.verifier}"
        equal, reason = None, f"{type(error).__name__} in {where}"
        if task.verifier not in QUICK:
            reason += f": {error}"[:300]
    verdict = {None: Verdict.UNGRADED, True: Verdict.CORRECT, False: Verdict.WRONG}[equal]
    return {"verdict": verdict, "extracted": task.text, "reason": reason}


def judge(task: Task) -> tuple[bool | None, str]:
    if task.verifier in QUICK:
        from crt.grading.symbolic import same_value

        comparison = verify(task, same_value)
        return bool(comparison.equal), f"{comparison.reason} (symbolic)"
    if task.verifier == "regex":
        patterns = (task.problem.answer, *task.problem.accepted)
        return any(re.search(pattern, task.text) for pattern in patterns), "regular expression"
    if task.verifier == "math_verify":
        return math_verify(task)
    return own_verdict(load_function(task.verifier)(task.text, task.problem))


def math_verify(task: Task) -> tuple[bool | None, str]:
    """The library as it is, with its extraction from prose and its rounding."""
    from math_verify import (
        ExprExtractionConfig,
        LatexExtractionConfig,
        StringExtractionConfig,
        parse,
        verify,
    )

    kinds: list[Any] = [LatexExtractionConfig(), ExprExtractionConfig()]
    if task.problem.options:
        letters = tuple(chr(65 + i) for i in range(len(task.problem.options)))
        kinds = [StringExtractionConfig(strings=letters)]
    untimed: Any = None  # the process has the deadline
    given = parse(task.text, kinds, parsing_timeout=untimed)
    for answer in (task.problem.answer, *task.problem.accepted):
        gold = parse(f"${answer}$", kinds, parsing_timeout=untimed)
        gold = gold or parse(answer, kinds, parsing_timeout=untimed)
        if not gold:
            raise GoldUnread(answer)
        if verify(gold, given, timeout_seconds=untimed):
            return True, "math-verify"
    return False, "math-verify" if given else "math-verify finds no answer"


@cache
def load_function(verifier: str) -> Callable[[str, Problem], Any]:
    """The function of a name; its module runs here."""
    path, (module, _, name) = source_of(verifier), function_of(verifier).rpartition(":")
    if module.endswith(".py"):
        own = f"own_{Path(module).stem}"  # somebody's statistics.py is not Python's
        spec = importlib.util.spec_from_file_location(own, path)
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded
        sys.path.append(str(path.resolve().parent))  # last: it hides no library
        spec.loader.exec_module(loaded)
    else:
        loaded = importlib.import_module(module)
    function = getattr(loaded, name)
    if not callable(function):
        raise TypeError(f"{name} is not a function")
    return function


def own_verdict(value: Any) -> tuple[bool | None, str]:
    """What a function returned: True, False or None, or one of them with a note."""
    verdict, note = value if isinstance(value, tuple) and len(value) == 2 else (value, "")
    if type(verdict).__name__ == "bool_":  # numpy's
        verdict = bool(verdict)
    if verdict is not None and not isinstance(verdict, bool):
        return None, f"the verifier returned {value!r:.60}, not True, False or None"
    return verdict, str(note)[:300] or "own verifier"


if __name__ == "__main__":
    try:
        serve(Connection(int(sys.argv[1])), float(sys.argv[2]), int(sys.argv[3]))
    except CrtError as error:
        sys.exit(str(error))
