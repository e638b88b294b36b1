"""Response, problem → correct, wrong, no answer or ungraded, with the extracted answer and why.

Symbolic work is done in worker processes that can be killed: a hang or a crash costs one item,
never the run. A worker is a plain child process that exchanges JSON with its parent: no fork of a
process with threads, no pickle, no need of `if __name__ == "__main__"`, and calls from any thread.
"""

import asyncio
import atexit
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from crt.errors import GradingError
from crt.grading.verifiers import MAX_ANSWER, Grade, Item, Pair, extract_pair, verify_math
from crt.types import Problem, Verdict

GRADER_VERSION = "1.0+math-verify-0.9.0"  # goes into manifests: another version, other verdicts
START_SECONDS = 120.0  # importing sympy on a busy machine

_SELF_TEST = (
    (r"so \boxed{\frac{1}{2}}", "0.5", Verdict.CORRECT),
    (r"so \boxed{0.51}", "0.5", Verdict.WRONG),
    (r"<think> \boxed{0.5}", "0.5", Verdict.NO_ANSWER),
    (r"\boxed{\sin^2 x + \cos^2 x}", "1", Verdict.CORRECT),  # a worker has to settle these two
    (r"\boxed{\sum_{k=1}^{4} k}", "10", Verdict.CORRECT),
)


class Grader:
    """Grades responses; usable from any thread, from asyncio, and inside a trainer.

    `workers` processes do symbolic work, at most `deadline_seconds` per item and in `memory_mb`
    of address space each. They start when first needed.
    """

    def __init__(
        self,
        workers: int = 2,
        deadline_seconds: float = 5.0,
        memory_mb: int = 2048,
        cache_size: int = 200_000,
    ) -> None:
        if workers < 1 or not deadline_seconds > 0 or memory_mb < 512 or cache_size < 1:
            raise GradingError(
                f"Grader(workers={workers}, deadline_seconds={deadline_seconds}, "
                f"memory_mb={memory_mb}, cache_size={cache_size}) cannot work: it needs at least "
                "1 worker, a deadline above 0, 512 MB and a cache of 1."
            )
        self.workers = workers
        self.cache_size = cache_size
        self._pool = WorkerPool(workers, deadline_seconds, memory_mb)
        self._cache: OrderedDict[Pair, Grade] = OrderedDict()
        self._lock = threading.Lock()

    def grade(
        self,
        text: str,
        answer: str,
        *,
        options: Sequence[str] = (),
        tolerance: float | None = None,
        question: str = "",
        thinking_opened: bool = False,
    ) -> Grade:
        """The grade of one response."""
        problem = Problem("", question, answer, options=tuple(options), tolerance=tolerance)
        return self.grade_problem(text, problem, thinking_opened)

    def grade_problem(self, text: str, problem: Problem, thinking_opened: bool = False) -> Grade:
        """The grade of one response to a problem, with the problem's options and tolerance."""
        pair = extract_pair(Item(text, problem, thinking_opened))
        return pair if isinstance(pair, Grade) else self.grade_fast(pair) or self._settle(pair)

    async def grade_async(self, text: str, answer: str, **settings: Any) -> Grade:
        """As `grade`, without holding up the event loop."""
        return await asyncio.to_thread(self.grade, text, answer, **settings)

    def grade_many(
        self, items: Iterable[Item], progress: Callable[[int], None] | None = None
    ) -> list[Grade]:
        """Grades in the order of the items; `progress` gets the number of items just done.

        The fast paths run here, one after another; only what is left goes to the workers, all at
        once and each distinct pair once.
        """
        report = progress or (lambda _: None)
        grades: list[Grade | Pair] = []
        undecided: Counter[Pair] = Counter()
        for item in items:
            pair = extract_pair(item)
            grade = pair if isinstance(pair, Grade) else self.grade_fast(pair) or pair
            grades.append(grade)
            if isinstance(grade, Pair):
                undecided[grade] += 1
            else:
                report(1)
        settled: dict[Pair, Grade] = {}
        with ThreadPoolExecutor(self.workers) as threads:
            for pair, grade in zip(undecided, threads.map(self._settle, undecided), strict=True):
                settled[pair] = grade
                report(undecided[pair])
        return [grade if isinstance(grade, Grade) else settled[grade] for grade in grades]

    def self_test(self) -> None:
        """Raises GradingError unless every kind of verdict comes out as it must."""
        for text, answer, verdict in _SELF_TEST:
            grade = self.grade(text, answer)
            if grade.verdict is not verdict:
                raise GradingError(
                    f"The grader is not alive: {text!r} against {answer!r} gave "
                    f"{grade.verdict} ({grade.reason}), not {verdict}. Check that math-verify "
                    "0.9.0 is installed and that child processes can start."
                )

    def close(self) -> None:
        """Stops the workers."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def grade_fast(self, pair: Pair) -> Grade | None:
        """The grade, if it is in the cache or takes no worker."""
        with self._lock:
            cached = self._cache.get(pair)
            if cached is not None:
                self._cache.move_to_end(pair)
                return cached
        try:
            equal, reason = verify_math(*pair)
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
            return None  # a fault of ours in a worker is one ungraded item, here it is a lost run
        return None if equal is None else self._keep(pair, equal, reason)

    def _settle(self, pair: Pair) -> Grade:
        """A worker's grade; `ungraded` where it hung, died or could not tell."""
        reply = self._pool.run(pair._asdict())
        return self._keep(pair, reply.get("equal"), reply["reason"])

    def _keep(self, pair: Pair, equal: bool | None, reason: str) -> Grade:
        verdict = Verdict.CORRECT if equal else Verdict.WRONG
        verdict = Verdict.UNGRADED if equal is None else verdict
        grade = Grade(verdict, pair.prediction[:MAX_ANSWER], reason)
        if len(pair.prediction) <= MAX_ANSWER:  # a megabyte is refused faster than looked up
            with self._lock:
                self._cache[pair] = grade
                while len(self._cache) > self.cache_size:
                    self._cache.popitem(last=False)
        return grade


def grade(text: str, answer: str, **settings: Any) -> Grade:
    """The grade of one response, with a grader that is shared by the whole process."""
    return _shared_grader().grade(text, answer, **settings)


def grade_response(text: str, problem: Problem, thinking_opened: bool = False) -> Verdict:
    """The shared grader's verdict on one response to a problem."""
    return _shared_grader().grade_problem(text, problem, thinking_opened).verdict


@cache
def _shared_grader() -> Grader:
    grader = Grader()
    atexit.register(grader.close)
    return grader


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
        """A worker's reply; a worker that fails twice replies without `equal`."""
        if self.owner != os.getpid():
            self._fill()  # a forked child shares the parent's pipes: it gets workers of its own
        worker = self.free.get()
        try:
            if self.closed:
                raise GradingError("The grader is closed. Make a new Grader.")
            reply = worker.run(request)
            # the system may have killed it for another's memory: once more
            return worker.run(request) if reply == _DIED else reply
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


_DIED = {"reason": "the grading worker died"}


class Worker:
    """One child process, started when it is first needed."""

    def __init__(self, deadline_seconds: float, memory_mb: int) -> None:
        self.deadline_seconds, self.memory_mb = deadline_seconds, memory_mb
        self.process: subprocess.Popen[bytes] | None = None
        self.connection: Connection
        self.ready = False

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply; without `equal` after the deadline or a crash. Either way usable again."""
        try:
            if self.process is None or self.process.poll() is not None:
                self.launch()
            if not self.ready:
                self._receive(START_SECONDS)
                self.ready = True
            self.connection.send_bytes(json.dumps(request).encode())
            reply = self._receive(self.deadline_seconds)
        except TimeoutError as error:
            reply = {"reason": str(error)}
        except (EOFError, ConnectionError):
            reply = _DIED
        except OSError as error:
            reply = {"reason": f"the grading worker cannot start: {error.strerror or error}"}
        except BaseException:
            self.stop()  # Ctrl-C: a late reply must not answer the next request
            raise
        if "equal" not in reply:
            self.replace()  # memory or recursion ran out: what is left may be damaged
        return reply

    def launch(self) -> None:
        """Starts the process; it says when it has loaded sympy."""
        self.stop()
        self.connection, child = Pipe()
        package = str(Path(__file__).resolve().parents[2])  # the child finds this very package
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
        settings = map(str, (child.fileno(), self.deadline_seconds, self.memory_mb))
        with child:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "crt.grading.sympy_worker", *settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ
                | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
                pass_fds=(child.fileno(),),
                start_new_session=True,  # Ctrl-C is the parent's business
            )

    def replace(self) -> None:
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
        if process is not None:
            process.kill()
            process.wait()
            self.connection.close()
