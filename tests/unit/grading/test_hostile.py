"""Model output is untrusted: nothing crashes, hangs, eats memory or is judged correct."""

import importlib.util
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from crt.grading.grader import Grader, Item
from crt.grading.workers import Worker
from crt.types import Problem, Verdict

# Both are too large to compute and to tell apart by their size, so a worker has to try.
HANGS = (r"\boxed{9^{9^{9^9}}}", "9^{9^{9^9}} + 1")
EATS = (r"\boxed{2^{6 \cdot 10^9}}", r"2^{6 \cdot 10^9} + 1")
NEEDS_A_WORKER = (r"\boxed{\sin^2 x + \cos^2 x}", "1")


@pytest.fixture
def grader() -> Iterator[Grader]:
    with Grader(workers=1, deadline_seconds=1.0, memory_mb=600) as grader:
        yield grader


def hostile() -> ModuleType:
    path = Path(__file__).parents[3] / "benchmarks" / "grader_hostile.py"
    spec = importlib.util.spec_from_file_location("grader_hostile", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_worker_that_hangs_is_killed_and_its_item_ungraded(grader: Grader) -> None:
    hung = grader.grade(*HANGS)
    assert (hung.verdict, hung.reason) == (Verdict.UNGRADED, "no verdict within 1 seconds")
    # and the next item has a new worker
    assert grader.grade(*NEEDS_A_WORKER).verdict is Verdict.CORRECT


def test_a_worker_that_runs_out_of_memory_is_replaced(grader: Grader) -> None:
    assert grader.grade(*EATS).verdict is Verdict.UNGRADED
    assert grader.grade(*NEEDS_A_WORKER).verdict is Verdict.CORRECT


@pytest.mark.parametrize(
    ("times", "reason"), [(1, "no verdict within 3 seconds"), (2, "the grading worker died")]
)
def test_a_worker_that_dies_at_work_is_asked_once_more(times: int, reason: str) -> None:
    with Grader(workers=1, deadline_seconds=3) as grader:
        grader.self_test()
        worker, killed = grader._pool.all[0], set[int]()

        def kill() -> None:
            while len(killed) < times:
                process = worker.process
                if process is not None and process.pid not in killed:
                    killed.add(process.pid)
                    process.kill()
                time.sleep(0.01)

        killer = threading.Thread(target=kill)
        threading.Timer(0.3, killer.start).start()
        died = grader.grade(*HANGS)
        assert (died.verdict, died.reason) == (Verdict.UNGRADED, reason)
        assert grader.grade(*NEEDS_A_WORKER).verdict is Verdict.CORRECT


def test_a_worker_that_died_idle_costs_nothing(grader: Grader) -> None:
    grader.self_test()
    process = grader._pool.all[0].process
    assert process is not None
    process.kill()
    process.wait()
    assert grader.grade(r"\boxed{\tan x \cot x}", "1").verdict is Verdict.CORRECT


def test_a_worker_ends_itself_when_its_parent_is_gone() -> None:
    worker = Worker(deadline_seconds=1.0, memory_mb=600)
    problem = {"id": "", "question": "", "answer": "2"}
    worker.run({"verifier": "math", "text": "1", "problem": problem})
    process = worker.process
    assert process is not None
    worker.connection.close()  # what a worker sees when its parent has died
    assert process.wait(timeout=30) == 0
    worker.stop()


def test_the_whole_corpus() -> None:
    entries = list(hostile().corpus())
    items = [Item(response, Problem("", "", gold)) for _, response, gold in entries]
    with Grader(workers=2, deadline_seconds=1.0) as grader:
        grades = grader.grade_many(items)
        grader.self_test()  # still alive
    fooled = [entry for entry, g in zip(entries, grades, strict=True) if g.verdict == "correct"]
    assert fooled == []
    assert len(entries) > 250
    assert sum(grade.verdict is Verdict.UNGRADED for grade in grades) < 40  # most need no worker
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    assert peak < 2048
    assert not Path("crt_was_here").exists()


def test_a_megabyte_is_refused_without_reading_it() -> None:
    with Grader(workers=1) as grader:  # a quadratic scan would take hours
        grade = grader.grade(r"\boxed{" + "9^" * 500_000 + "9}", "9")
    assert grade.verdict is Verdict.WRONG and grade.reason == "too long"
    assert grade.extracted is not None and len(grade.extracted) == 1000
