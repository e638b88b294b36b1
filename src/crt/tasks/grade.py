"""text, answer → correct, wrong, no answer, ungraded: with what was extracted, and why."""

import asyncio
import atexit
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Self

from crt.errors import GradingError
from crt.tasks.compare import MAX_ANSWER, asks_percent, decide
from crt.tasks.extract import extract
from crt.tasks.pool import Pool
from crt.types import Problem, Verdict

GRADER_VERSION = "1.0+math-verify-0.9.0"  # goes into manifests: another version, other verdicts

_SELF_TEST = (
    (r"so \boxed{\frac{1}{2}}", "0.5", Verdict.CORRECT),
    (r"so \boxed{0.51}", "0.5", Verdict.WRONG),
    (r"<think> \boxed{0.5}", "0.5", Verdict.NO_ANSWER),
    (r"\boxed{\sin^2 x + \cos^2 x}", "1", Verdict.CORRECT),  # a worker has to settle these two
    (r"\boxed{\sum_{k=1}^{4} k}", "10", Verdict.CORRECT),
)


@dataclass(frozen=True, slots=True)
class Grade:
    """A verdict with the extracted answer and the reason."""

    verdict: Verdict
    extracted: str | None
    reason: str


class Item(NamedTuple):
    """One response and what it is graded against.

    `thinking_opened` says that the prompt ended inside `<think>`; `question` is used for one
    thing: whether it asks for a percentage.
    """

    text: str
    answer: str
    options: tuple[str, ...] = ()
    tolerance: float | None = None
    question: str = ""
    thinking_opened: bool = False


class _Pair(NamedTuple):
    """What a verdict depends on, and what it is cached by."""

    prediction: str
    gold: str
    options: tuple[str, ...]
    tolerance: float | None
    percent: bool


class _Outcome(NamedTuple):
    verdict: Verdict
    reason: str


class Grader:
    """Grades responses; usable from any thread, from asyncio, and inside a trainer.

    `workers` processes do symbolic work, at most `deadline_seconds` an item and in `memory_mb`
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
        self._pool = Pool(workers, deadline_seconds, memory_mb)
        self._cache: OrderedDict[_Pair, _Outcome] = OrderedDict()
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
        item = Item(text, answer, tuple(options), tolerance, question, thinking_opened)
        asked = _asked(item)
        return asked if isinstance(asked, Grade) else _graded(asked, self._outcome(asked))

    def grade_problem(self, text: str, problem: Problem, thinking_opened: bool = False) -> Grade:
        """The grade of one response to a problem, with the problem's options and tolerance."""
        item = item_of(text, problem, thinking_opened)
        return self.grade(item.text, item.answer, **_settings(item))

    async def grade_async(self, text: str, answer: str, **settings: Any) -> Grade:
        """As `grade`, without holding up the event loop."""
        return await asyncio.to_thread(self.grade, text, answer, **settings)

    def grade_many(
        self, items: Iterable[Item], progress: Callable[[int], None] | None = None
    ) -> list[Grade]:
        """Grades in the order of the items; `progress` is told how many more are done.

        The fast paths run here, one after another; only what is left goes to the workers, all at
        once and each distinct pair once.
        """
        report = progress or (lambda _: None)
        asked = [_asked(item) for item in items]
        outcomes: dict[_Pair, _Outcome] = {}
        left: dict[_Pair, int] = {}
        for pair in asked:
            quick = pair if isinstance(pair, Grade) else self._fast(pair)
            if isinstance(quick, _Outcome) and isinstance(pair, _Pair):
                outcomes[pair] = quick
            elif isinstance(pair, _Pair):
                left[pair] = left.get(pair, 0) + 1
                continue
            report(1)
        with ThreadPoolExecutor(self.workers) as threads:
            for pair, outcome in zip(left, threads.map(self._settled, left), strict=True):
                outcomes[pair] = outcome
                report(left[pair])
        return [a if isinstance(a, Grade) else _graded(a, outcomes[a]) for a in asked]

    def self_test(self) -> None:
        """Raises GradingError unless every kind of verdict comes out as it must."""
        for text, answer, verdict in _SELF_TEST:
            found = self.grade(text, answer)
            if found.verdict is not verdict:
                raise GradingError(
                    f"The grader is not alive: {text!r} against {answer!r} gave "
                    f"{found.verdict} ({found.reason}), not {verdict}. Check that math-verify "
                    "0.9.0 is installed and that child processes can start."
                )

    def close(self) -> None:
        """Stops the workers."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _outcome(self, pair: _Pair) -> _Outcome:
        return self._fast(pair) or self._settled(pair)

    def _fast(self, pair: _Pair) -> _Outcome | None:
        """The outcome, if it is known or takes no worker."""
        known = self._known(pair)
        if known is not None:
            return known
        try:
            decision = decide(*pair)
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
            return None  # a fault of ours in a worker is one ungraded item, here it is a lost run
        if decision.equal is None:
            return None
        return self._keep(pair, _Outcome(_verdict(decision.equal), decision.reason))

    def _settled(self, pair: _Pair) -> _Outcome:
        """A worker's outcome; `ungraded` where it hung, died or could not tell."""
        reply = self._pool.ask(pair._asdict())
        if "ungraded" in reply:
            return self._keep(pair, _Outcome(Verdict.UNGRADED, reply["ungraded"]))
        return self._keep(pair, _Outcome(_verdict(reply["equal"]), reply["reason"]))

    def _known(self, pair: _Pair) -> _Outcome | None:
        with self._lock:
            known = self._cache.get(pair)
            if known is not None:
                self._cache.move_to_end(pair)
            return known

    def _keep(self, pair: _Pair, outcome: _Outcome) -> _Outcome:
        if len(pair.prediction) <= MAX_ANSWER:  # a megabyte is refused faster than it is found
            with self._lock:
                self._cache[pair] = outcome
                while len(self._cache) > self.cache_size:
                    self._cache.popitem(last=False)
        return outcome


def item_of(text: str, problem: Problem, thinking_opened: bool = False) -> Item:
    """A response and its problem as an item for `grade_many`."""
    return Item(
        text,
        problem.answer,
        problem.options,
        problem.tolerance,
        problem.question,
        thinking_opened,
    )


def grade(text: str, answer: str, **settings: Any) -> Grade:
    """The grade of one response, with a grader that is shared by the whole process."""
    return _shared().grade(text, answer, **settings)


@cache
def _shared() -> Grader:
    grader = Grader()
    atexit.register(grader.close)
    return grader


def _settings(item: Item) -> dict[str, Any]:
    return {name: value for name, value in item._asdict().items() if name not in ("text", "answer")}


def _asked(item: Item) -> "Grade | _Pair":
    """What has to be compared, or the grade where nothing has."""
    if not item.answer.strip():
        return Grade(Verdict.UNGRADED, None, "the gold answer is empty")
    found = extract(item.text, item.thinking_opened)
    if found.answer is None:
        return Grade(Verdict.NO_ANSWER, None, found.reason)
    percent = bool(item.question) and asks_percent(item.question)
    return _Pair(found.answer, item.answer, item.options, item.tolerance, percent)


def _verdict(equal: bool) -> Verdict:
    return Verdict.CORRECT if equal else Verdict.WRONG


def _graded(pair: _Pair, outcome: _Outcome) -> Grade:
    return Grade(outcome.verdict, pair.prediction[:MAX_ANSWER], outcome.reason)
