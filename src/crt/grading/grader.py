"""Response, problem → correct, wrong, no answer or ungraded, with the extracted answer and why."""

import asyncio
import atexit
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Self

from crt.errors import GradingError
from crt.grading.verifiers import MAX_ANSWER, Grade, Item, Pair, extract_pair, verify_math
from crt.grading.workers import WorkerPool
from crt.types import Problem, Verdict

GRADER_VERSION = "1.0+math-verify-0.9.0"  # goes into manifests: another version, other verdicts

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
        return self.grade_many([Item(text, problem, thinking_opened)])[0]

    async def grade_async(self, text: str, answer: str, **settings: Any) -> Grade:
        """As `grade`, without holding up the event loop."""
        return await asyncio.to_thread(self.grade, text, answer, **settings)

    def grade_many(
        self, items: Iterable[Item], progress: Callable[[int], None] = lambda done: None
    ) -> list[Grade]:
        """Grades in the order of the items; `progress` gets the number of items just done.

        The fast paths run here, one after another; only what is left goes to the workers, all at
        once and each distinct pair once.
        """
        grades: list[Grade | Pair] = []
        undecided: Counter[Pair] = Counter()
        for item in items:
            pair = extract_pair(item)
            grade = pair if isinstance(pair, Grade) else self.grade_fast(pair) or pair
            grades.append(grade)
            if isinstance(grade, Pair):
                undecided[grade] += 1
            else:
                progress(1)
        settled: dict[Pair, Grade] = {}
        with ThreadPoolExecutor(self.workers) as threads:
            for pair, grade in zip(undecided, threads.map(self._settle, undecided), strict=True):
                settled[pair] = grade
                progress(undecided[pair])
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
