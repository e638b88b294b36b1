"""Response, problem → correct, wrong, no answer or ungraded, with the extracted answer and why."""

import asyncio
import atexit
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Protocol, Self

from crt.errors import ConfigError, GradingError
from crt.grading import code
from crt.grading.judge import Judge, JudgeSettings
from crt.grading.mathematics import MAX_ANSWER
from crt.grading.verifiers import (
    BUILT_IN,
    Grade,
    Item,
    Task,
    check_place,
    check_verifier,
    identity,
    prepare,
    verify,
)
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


class GradingSettings(Protocol):
    """A recipe's `[grading]`; `crt.config.GradingConfig` is one."""

    verifier: str
    answer: str | None
    allow: tuple[str, ...]
    workers: int
    deadline_seconds: float
    memory_mb: int
    judge: JudgeSettings | None


def make_grader(settings: GradingSettings, workers: int | None = None) -> "Grader":
    """The grader of a recipe: training, evaluation and every command make theirs here."""
    return Grader(
        workers or settings.workers,
        settings.deadline_seconds,
        settings.memory_mb,
        verifier=settings.verifier,
        place=settings.answer,
        allow=settings.allow,
        judge_settings=settings.judge,
    )


def grader_identity(settings: GradingSettings) -> str:
    """What decides verdicts, for manifests and the keys of caches."""
    parts = [GRADER_VERSION]
    for name in sorted({settings.verifier, *settings.allow}):
        check_verifier(name)
        parts += [f"verifier={identity(name)}"] if name != "math" else []
    parts += [f"answer={settings.answer}"] if settings.answer is not None else []
    parts += [f"judge={settings.judge.identity}"] if settings.judge else []
    return "; ".join(parts)


class Grader:
    """Grades responses; usable from any thread, from asyncio, and inside a trainer.

    `workers` processes do symbolic work and run verifiers that are functions, at most
    `deadline_seconds` per item and in `memory_mb` of address space each. They start when first
    needed. `place` is where the answer stands, if not where the verifier looks by itself.
    """

    def __init__(
        self,
        workers: int = 2,
        deadline_seconds: float = 5.0,
        memory_mb: int = 2048,
        cache_size: int = 200_000,
        *,
        verifier: str = "math",
        place: str | None = None,
        allow: Sequence[str] = (),
        judge_settings: JudgeSettings | None = None,
    ) -> None:
        if workers < 1 or not deadline_seconds > 0 or memory_mb < 512 or cache_size < 1:
            raise GradingError(
                f"Grader(workers={workers}, deadline_seconds={deadline_seconds}, "
                f"memory_mb={memory_mb}, cache_size={cache_size}) cannot work: it needs at least "
                "1 worker, a deadline above 0, 512 MB and a cache of 1."
            )
        check_place(place)
        for name in (verifier, *allow):
            check_verifier(name)
        self.verifier, self.place, self.allowed = verifier, place, {verifier, *allow}
        self.workers = workers
        self.cache_size = cache_size
        self._limits = code.Limits(deadline_seconds, memory_mb)
        self._judge = Judge(judge_settings) if judge_settings else None
        if "judge" in self.allowed and self._judge is None:
            raise ConfigError(
                "the verifier judge needs an endpoint: set grading.judge.url and "
                "grading.judge.model"
            )
        self._pool = WorkerPool(workers, deadline_seconds, memory_mb)
        self._cache: OrderedDict[Task, Grade] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, problems: Iterable[Problem] = ()) -> None:
        """Raises ConfigError for a problem whose verifier is not allowed, or that cannot start."""
        first = {problem.verifier: problem for problem in problems if problem.verifier}
        for name, problem in first.items():
            check_verifier(name, self.allowed, f"problem {problem.id!r}")
        for name in {*first, self.verifier} - {"math"}:
            if name == "code":
                code.check(self._limits)
            elif name not in BUILT_IN:
                reply = self._pool.run({"verifier": name})
                if reply.get("error") != "":
                    raise ConfigError(reply["reason"])

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

        The fast paths run here, one after another. Only what is left goes to the workers, all at
        once, and each distinct task once.
        """
        grades: list[Grade | Task] = []
        undecided: Counter[Task] = Counter()
        for item in items:
            task = self.prepare(item)
            grade = task if isinstance(task, Grade) else self.grade_fast(task) or task
            grades.append(grade)
            if isinstance(grade, Task):
                undecided[grade] += 1
            else:
                progress(1)
        if not undecided:
            return [grade for grade in grades if isinstance(grade, Grade)]
        settled: dict[Task, Grade] = {}
        with ThreadPoolExecutor(self.workers) as threads:
            for task, grade in zip(undecided, threads.map(self._settle, undecided), strict=True):
                settled[task] = grade
                progress(undecided[task])
        return [grade if isinstance(grade, Grade) else settled[grade] for grade in grades]

    def prepare(self, item: Item) -> Grade | Task:
        """What has to be judged, or the grade where nothing has."""
        name = item.problem.verifier
        if name and name not in self.allowed:
            check_verifier(name, self.allowed, f"problem {item.problem.id!r}")
        return prepare(item, self.verifier, self.place)

    def self_test(self) -> None:
        """Raises GradingError unless every kind of verdict comes out as it must."""
        for text, answer, verdict in _SELF_TEST:
            task = prepare(Item(text, Problem("", "", answer)))
            grade = task if isinstance(task, Grade) else self.grade_fast(task) or self._settle(task)
            if grade.verdict is not verdict:
                raise GradingError(
                    f"The grader is not alive: {text!r} against {answer!r} gave "
                    f"{grade.verdict} ({grade.reason}), not {verdict}. Check that math-verify "
                    "0.9.0 is installed and that child processes can start."
                )
        self.check()

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def grade_fast(self, task: Task) -> Grade | None:
        """The grade, if it is in the cache or takes no worker."""
        with self._lock:
            cached = self._cache.get(task)
            if cached is not None:
                self._cache.move_to_end(task)
                return cached
        try:
            equal, reason = verify(task)
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
            return None  # a fault of ours in a worker is one ungraded item, here it is a lost run
        if equal is None:
            return None
        return self._keep(task, Verdict.CORRECT if equal else Verdict.WRONG, task.text, reason)

    def _settle(self, task: Task) -> Grade:
        """What takes a process or a server; `ungraded` where it hung, died or could not tell."""
        if task.verifier == "code":
            return self._keep(task, *code.run_tests(task.text, task.problem.answer, self._limits))
        if task.verifier == "judge" and self._judge:
            return self._keep(task, *self._judge.ask(task.text, task.problem))
        reply = self._pool.run(task._asdict() | {"problem": task.problem.fields()})
        verdict = Verdict(reply.get("verdict", Verdict.UNGRADED))
        return self._keep(task, verdict, reply.get("extracted", task.text), reply["reason"])

    def _keep(self, task: Task, verdict: Verdict, extracted: str | None, reason: str) -> Grade:
        grade = Grade(verdict, extracted and extracted[:MAX_ANSWER], reason)
        if len(task.text) <= 20 * MAX_ANSWER:  # a megabyte is refused faster than looked up
            with self._lock:
                self._cache[task] = grade
                while len(self._cache) > self.cache_size:
                    self._cache.popitem(last=False)
        return grade


def grade(text: str, answer: str, **settings: Any) -> Grade:
    return _shared_grader().grade(text, answer, **settings)


def grade_response(text: str, problem: Problem, thinking_opened: bool = False) -> Verdict:
    """The shared grader's verdict on one response to a problem."""
    return _shared_grader().grade_problem(text, problem, thinking_opened).verdict


@cache
def _shared_grader() -> Grader:
    grader = Grader()
    atexit.register(grader.close)
    return grader
