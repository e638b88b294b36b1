"""The grader as it is called: one response, many, from threads, asyncio and bare scripts."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest

from crt.errors import GradingError
from crt.grading.grader import (
    GRADER_VERSION,
    Grade,
    Grader,
    Item,
    Task,
    grade,
    prepare,
)
from crt.types import Problem, Verdict

SYMBOLIC = r"\boxed{\sin^2 x + \cos^2 x}"  # only a worker can tell that this is 1


def item(text: str, answer: str) -> Item:
    return Item(text, Problem("", "", answer))


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=2, deadline_seconds=20) as grader:
        yield grader


def test_the_four_verdicts(grader: Grader) -> None:
    assert grader.grade(r"\boxed{0.5}", r"\frac12").verdict is Verdict.CORRECT
    assert grader.grade(r"\boxed{0.6}", r"\frac12").verdict is Verdict.WRONG
    assert grader.grade("It is one half.", r"\frac12").verdict is Verdict.NO_ANSWER
    assert grader.grade(r"\boxed{0.6}", "").verdict is Verdict.UNGRADED  # no gold, no verdict


def test_a_grade_says_what_was_extracted_and_why(grader: Grader) -> None:
    assert grader.grade(r"<think> \boxed{5}", "5") == Grade(
        Verdict.NO_ANSWER, None, "thinking is not closed"
    )
    assert grader.grade(r"\boxed{50\%}", "50") == Grade(
        Verdict.WRONG, r"50\%", "not the same: a value in % for a number"
    )


@pytest.mark.parametrize(
    ("prediction", "gold", "verdict"),
    [
        (r"\sin^2 x + \cos^2 x", "1", "correct"),
        (r"2^{n+1}", r"2 \cdot 2^n", "correct"),
        (r"\log_2 5", r"\frac{\ln 5}{\ln 2}", "correct"),
        (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2", "correct"),
        (r"\sum_{k=1}^{10} k", "55", "correct"),  # through math-verify's parser
        (r"\int_0^1 x dx", r"\frac12", "correct"),
        (r"\cos(n\pi)", "(-1)^n", "correct"),  # at whole n
        (r"2\ln x", r"\ln x^2", "correct"),  # where both are real
        ("|x|", "x", "wrong"),  # they part at negative x
        (r"\sqrt{x^2}", "x", "wrong"),
        (r"\ln 2", r"\log 2", "wrong"),  # a logarithm without a base may be to base 10
        (r"\frac{1}{2006!}", r"\frac{1}{2004!}", "wrong"),  # math-verify rounds both to 0
        (r"5+\sin(10^{-60})", "5", "wrong"),  # so does any comparison to 50 digits
        (r"\sum_{k=1}^{10} k", "56", "wrong"),
        (r"\frac{1}{0}", r"\sin 1", "wrong"),
        (r"5 + \infty - \infty", "5", "wrong"),
        (r"5 \infty^0", "5", "wrong"),
        ("5", r"1, 2, \ldots, n", "ungraded"),  # the gold has no reading, so there is no verdict
    ],
)
def test_symbolic_work(grader: Grader, prediction: str, gold: str, verdict: str) -> None:
    assert grader.grade(rf"\boxed{{{prediction}}}", gold).verdict == verdict


def test_a_problem_brings_its_options_tolerance_and_question(grader: Grader) -> None:
    choice = Problem("1", "Which?", "B", options=("A) 3", "B) 4"))
    near = Problem("2", "How far?", "10", tolerance=0.5)
    percent = Problem("3", "What percent is it?", "50")
    assert grader.grade_problem(r"\boxed{4}", choice).verdict is Verdict.CORRECT
    assert grader.grade_problem(r"\boxed{3}", choice).verdict is Verdict.WRONG
    assert grader.grade_problem(r"\boxed{10.4}", near).verdict is Verdict.CORRECT
    assert grader.grade_problem(r"\boxed{50\%}", percent).verdict is Verdict.CORRECT
    assert grader.grade_problem(r"a \boxed{4}", choice, thinking_opened=True).verdict == "no_answer"


def test_an_option_that_has_no_reading_is_compared_as_text(grader: Grader) -> None:
    choice = Problem("1", "Which?", "B", options=(r"1, 2, \ldots, n", r"\sin^2 x"))
    assert grader.grade_problem(r"\boxed{1 - \cos^2 x}", choice).verdict is Verdict.CORRECT


def test_many_keep_their_order_and_report_each_once(grader: Grader) -> None:
    items = [item(rf"\boxed{{{k}}}", "3") for k in range(6)] + [item(SYMBOLIC, "1")] * 3
    items.insert(2, item("no box", "3"))
    done: list[int] = []
    grades = grader.grade_many(items, progress=done.append)
    short = "".join(grade.verdict[0] for grade in grades)
    assert short == "wwnwcwwccc"  # 0 1 – 2 3 4 5 and three times the symbolic one
    assert sum(done) == len(items)


def test_equal_pairs_are_settled_once(grader: Grader) -> None:
    done: list[int] = []
    items = [item(rf"so {k}: \boxed{{\tan x \cot x}}", "1") for k in range(5)]
    task = prepare(items[0])
    assert isinstance(task, Task)
    assert grader.grade_fast(task) is None  # it takes a worker
    grader.grade_many(items, done.append)
    assert done == [5]  # one request for all five
    settled = grader.grade_fast(task)  # and none for the next
    assert settled is not None and settled.verdict is Verdict.CORRECT


def test_the_cache_is_bounded_and_keeps_what_was_used_last() -> None:
    with Grader(workers=1, cache_size=2) as small:
        for gold in ("1", "2", "1", "3"):
            small.grade(r"\boxed{1}", gold)
        assert [task.problem.answer for task in small._cache] == ["1", "3"]


def test_from_threads(grader: Grader) -> None:
    # math-verify itself raises outside the main thread
    with ThreadPoolExecutor(8) as threads:
        texts = [rf"\boxed{{\sin^2 x + \cos^2 x + {k}}}" for k in range(8)]
        verdicts = list(threads.map(lambda text: grader.grade(text, "4").verdict, texts))
    assert verdicts == ["wrong"] * 3 + ["correct"] + ["wrong"] * 4


def test_from_asyncio(grader: Grader) -> None:
    async def both() -> list[Grade]:
        return await asyncio.gather(
            grader.grade_async(SYMBOLIC, "1"), grader.grade_async(r"\boxed{7}", "1")
        )

    assert [grade.verdict for grade in asyncio.run(both())] == ["correct", "wrong"]


def test_from_a_script_without_a_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"from crt.grading.grader import grade\nprint(grade(r'{SYMBOLIC}', '1').verdict)\n"
    )
    # a file of the user's that is called like a library must not get into the workers
    (tmp_path / "sympy.py").write_text("raise SystemExit('the wrong sympy')\n")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("correct\n", "")


def test_in_a_forked_child_it_gets_workers_of_its_own(grader: Grader) -> None:
    grader.grade(r"\boxed{\sec x \cos x}", "1")  # the parent's worker is running
    child = os.fork()
    if child == 0:
        verdict = grader.grade(r"\boxed{\csc x \sin x}", "1").verdict
        grader.close()
        os._exit(0 if verdict is Verdict.CORRECT else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert grader.grade(r"\boxed{\sec y \cos y}", "1").verdict is Verdict.CORRECT


def test_one_call() -> None:
    assert grade(r"\boxed{7}", "7").verdict is Verdict.CORRECT


def test_the_self_test_passes_and_tells_when_workers_cannot_start(
    grader: Grader, monkeypatch: pytest.MonkeyPatch
) -> None:
    grader.self_test()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with Grader(workers=1) as broken, pytest.raises(GradingError, match=r"not alive.*cannot start"):
        broken.self_test()


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(GradingError, match="workers=0"):
        Grader(workers=0)
    with pytest.raises(GradingError, match="deadline_seconds=nan"):
        Grader(deadline_seconds=float("nan"))


def test_a_closed_grader_says_so() -> None:
    closed = Grader(workers=1)
    closed.close()
    with pytest.raises(GradingError, match="closed"):
        closed.grade(SYMBOLIC, "1")


def test_the_version_names_the_math_verify_that_is_installed() -> None:
    assert GRADER_VERSION.endswith(f"math-verify-{version('math-verify')}")
