import sqlite3
import subprocess
import sys

import pytest

from crt.errors import DataError
from crt.training.reference import Reference, Store, key_of
from crt.types import Problem, Rollout, Verdict

ABOUT = {"model": "m", "prompt": "p", "cap": 64}
PROBLEMS = [Problem(f"p{i}", f"What is {i} + 1?", str(i + 1)) for i in range(5)]


class Sampler:
    """Answers every problem twice, and remembers what it was asked."""

    def __init__(self, text: str = "x") -> None:
        self.asked: list[str] = []
        self.text = text

    def __call__(self, problems):
        self.asked += [problem.id for problem in problems]
        return [
            Rollout(
                problem.id, f"{self.text} {problem.answer} \n\u2028", 7 + i, "eos", verdict, "2"
            )
            for problem in problems
            for i, verdict in enumerate((Verdict.CORRECT, Verdict.WRONG))
        ]


def test_every_problem_is_sampled_once(tmp_path):
    sampler = Sampler()
    reference = Reference(PROBLEMS, sampler, Store(tmp_path, ABOUT))
    reference(["p1", "p2"])
    batch = reference(["p2", "p3"])
    assert sampler.asked == ["p1", "p2", "p3"]
    assert batch is not None and batch.problem_ids == ("p2", "p3")
    assert batch.correct.tolist() == [[True, False]] * 2
    assert batch.length.tolist() == [[7, 8]] * 2
    assert reference.sampled == 6


def test_another_run_with_the_same_key_finds_them(tmp_path):
    first = Reference(PROBLEMS, Sampler(), Store(tmp_path, ABOUT)).rollouts(["p1"])
    other = Sampler("never used")
    assert Reference(PROBLEMS, other, Store(tmp_path, ABOUT)).rollouts(["p1"]) == first
    assert other.asked == []


@pytest.mark.parametrize("changed", [{"model": "n"}, {"prompt": "q"}, {"cap": 65}, {"grader": 2}])
def test_another_model_prompt_cap_or_grader_is_another_cache(tmp_path, changed):
    assert key_of(ABOUT) != key_of(ABOUT | changed)
    Reference(PROBLEMS, Sampler(), Store(tmp_path, ABOUT)).rollouts(["p1"])
    sampler = Sampler()
    Reference(PROBLEMS, sampler, Store(tmp_path, ABOUT | changed)).rollouts(["p1"])
    assert sampler.asked == ["p1"]


def test_a_changed_question_under_the_same_id_is_another_problem(tmp_path):
    Reference(PROBLEMS, Sampler(), Store(tmp_path, ABOUT)).rollouts(["p1"])
    edited = [Problem("p1", "What is 1 + 2?", "3")]
    sampler = Sampler()
    Reference(edited, sampler, Store(tmp_path, ABOUT)).rollouts(["p1"])
    assert sampler.asked == ["p1"]


def test_fresh_samples_every_time():
    sampler = Sampler()
    reference = Reference(PROBLEMS, sampler, None)
    reference(["p1"])
    reference(["p1"])
    assert sampler.asked == ["p1", "p1"]


def test_what_is_stored_first_stays(tmp_path):
    store = Store(tmp_path, ABOUT)
    early, late = Sampler("early"), Sampler("late")
    store.put(PROBLEMS[:1], {"p0": early(PROBLEMS[:1])})
    store.put(PROBLEMS[:1], {"p0": late(PROBLEMS[:1])})
    assert store.get(PROBLEMS[:1])["p0"][0].text.startswith("early")


def test_a_problem_the_reference_could_not_be_graded_on_is_left_out(tmp_path):
    def sampler(problems):
        bad = Verdict.UNGRADED
        return [
            Rollout(p.id, "", 3, "eos", bad if p.id == "p1" else Verdict.WRONG) for p in problems
        ]

    batch = Reference(PROBLEMS, sampler, Store(tmp_path, ABOUT))(["p0", "p1"])
    assert batch is not None and batch.problem_ids == ("p0",)


def test_a_damaged_entry_is_sampled_again(tmp_path):
    store = Store(tmp_path, ABOUT)
    sampler = Sampler()
    reference = Reference(PROBLEMS, sampler, store)
    reference(["p1", "p2"])
    with sqlite3.connect(store.path) as database:
        database.execute("update rollouts set packed = zeroblob(9) where rowid = 1")
    reference(["p1", "p2"])
    assert len(sampler.asked) == 3
    assert store.damaged == 1
    assert len(store) == 2


def test_a_file_that_is_no_cache_is_named(tmp_path):
    (tmp_path / f"{key_of(ABOUT)}.sqlite").write_bytes(b"not a database at all, " * 50)
    with pytest.raises(DataError, match=r"reference cache .*\.sqlite cannot be used"):
        Store(tmp_path, ABOUT)


CHILD = """
import sys
from pathlib import Path
from crt.training.reference import Reference, Store
from crt.types import Problem, Rollout, Verdict
name, kill_after = sys.argv[2], int(sys.argv[3])
problems = [Problem(f"p{i}", f"What is {i} + 1?", str(i + 1)) for i in range(60)]
def sampler(asked):
    return [Rollout(p.id, f"{name} {p.id}", 5, "eos", Verdict.CORRECT) for p in asked]
reference = Reference(problems, sampler, Store(Path(sys.argv[1]), {"model": "m"}))
for i in range(0, 60, 3):
    if i == kill_after:
        import os; os.kill(os.getpid(), 9)
    reference([f"p{i}", f"p{i + 1}", f"p{i + 2}"])
"""


def child(folder, name: str, kill_after: int = -1) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", CHILD, str(folder), name, str(kill_after)])


def test_two_processes_share_a_cache(tmp_path):
    both = [child(tmp_path, "one"), child(tmp_path, "two")]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert len(Store(tmp_path, {"model": "m"})) == 60


def test_a_killed_process_loses_nothing_finished(tmp_path):
    assert child(tmp_path, "one", kill_after=30).wait(timeout=120) == -9
    store = Store(tmp_path, {"model": "m"})
    assert len(store) == 30
    assert child(tmp_path, "two").wait(timeout=120) == 0
    problems = [Problem(f"p{i}", f"What is {i} + 1?", str(i + 1)) for i in range(60)]
    writers = [store.get([p])[p.id][0].text.split()[0] for p in problems]
    assert writers == ["one"] * 30 + ["two"] * 30
