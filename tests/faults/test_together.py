"""Signals at any moment, two processes on one folder, a clock that goes back, a killed grader."""

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
from lives import one_sentence, readable, training
from processes import COUNTS, Nursery, compiled, until

from crt.grading.grader import Grader
from crt.run import Run
from crt.types import Verdict
from tests.support.trained import rows, same

LONG = pytest.mark.faults


@LONG
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("chain", range(3))
def test_signals_at_any_time(number, chain, nursery, whole, tiny, tmp_path, choice):
    """However often it is told to end, in the end it is the same run."""
    run, work = tmp_path / "run", training(tiny, tmp_path / "run")
    for _ in range(8):
        with nursery.living(work.words()) as life:
            time.sleep(choice.uniform(0, 4))
            life.signal(number)
        ended = life.ended()
        one_sentence(ended)
        assert ended.code in (0, -number, 128 + number, 143), ended.told  # 143: saved
        readable(run)
        if ended.code == 0:
            break
        COUNTS[f"train: {signal.Signals(number).name}"] += 1
    assert nursery.live(work.words()).code == 0
    same(whole, run)


@LONG
def test_a_killed_run_leaves_no_process_behind(nursery, tiny, tmp_path):
    """Its grader's workers notice that nobody asks any more."""
    with nursery.living(["train", tiny / "recipe.toml", "--out", tmp_path / "run"]) as life:
        workers: list[psutil.Process] = []

        def started() -> bool:
            workers[:] = psutil.Process(life.pid).children(recursive=True)
            return bool(workers)

        until(started)
        life.signal(signal.SIGKILL)
    until(lambda: not any(worker.is_running() for worker in workers))


@LONG
def test_two_processes_on_one_run(nursery, tiny, tmp_path):
    """The second says so and touches nothing; the first goes on."""
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other = Nursery(other_folder, compiled(other_folder))
    run = tmp_path / "run"
    try:
        with nursery.living(["train", tiny / "recipe.toml", "--out", run]) as first:
            until(lambda: (run / "steps.jsonl").exists())
            before = {path: path.read_bytes() for path in run.glob("*.json")}
            first.signal(signal.SIGSTOP)
            resumed = other.live(["train", "--resume", run])
            begun = other.live(["train", tiny / "recipe.toml", "--out", run])
            assert before == {path: path.read_bytes() for path in run.glob("*.json")}
            first.signal(signal.SIGCONT)
        assert first.ended().code == 0
        assert resumed.code == 2 and "being written by another process" in resumed.err
        assert begun.code == 2 and "is there already" in begun.err
    finally:
        other.close()


@LONG
def test_two_processes_on_one_cache(nursery, whole, tiny, tmp_path):
    """Two runs with the same reference, at the same time: both are as if each were alone."""
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other = Nursery(other_folder, compiled(other_folder))
    try:
        words = [["train", tiny / "recipe.toml", "--out", tmp_path / name] for name in "ab"]
        thread = threading.Thread(target=other.live, args=(words[0],))
        thread.start()
        assert nursery.live(words[1]).code == 0
        thread.join()
    finally:
        other.close()
    for name in "ab":
        same(whole, tmp_path / name)


@LONG
def test_a_clock_that_goes_back(faulty, whole, tiny, tmp_path):
    """An hour back at every look, and files from the future: nothing is chosen by time."""
    run = tmp_path / "run"
    with faulty.living(["train", tiny / "recipe.toml", "--out", run], clock=3600) as life:
        until(lambda: run.exists() and len(Run.open(run).steps) >= 4)
        life.signal(signal.SIGKILL)
    tomorrow = time.time() + 86400
    for path in tmp_path.rglob("*"):
        os.utime(path, (tomorrow, tomorrow))
    ended = faulty.live(["train", "--resume", run], clock=3600)
    assert ended.code == 0, ended.told
    same(whole, run)
    COUNTS["clock put back"] += 1


def test_a_grader_whose_worker_is_killed_still_grades():
    asked = [(rf"\boxed{{\sum_{{k=1}}^{{{n}}} k}}", str(n * (n + 1) // 2)) for n in range(3, 11)]
    with Grader(workers=1) as grader:
        for text, answer in asked[:5]:
            assert grader.grade(text, answer).verdict is Verdict.CORRECT
        for text, answer in asked[5:]:
            for worker in grader._pool.all:
                if worker.process is not None:
                    os.kill(worker.process.pid, signal.SIGKILL)
            assert grader.grade(text, answer).verdict is Verdict.CORRECT
            COUNTS["grader: worker killed"] += 1


@LONG
def test_a_run_whose_grader_is_killed_again_and_again(nursery, whole, tiny, tmp_path):
    """Once a step, at rest or at work: the next one is asked instead."""
    run = tmp_path / "run"
    with nursery.living(["train", tiny / "recipe.toml", "--out", run]) as life:
        for step in range(1, 6):
            until(lambda step=step: run.exists() and len(Run.open(run).steps) >= step)
            for child in psutil.Process(life.pid).children(recursive=True):
                child.kill()
                COUNTS["grader: worker killed"] += 1
    assert life.ended().code == 0, life.ended().told
    assert rows(whole) == rows(run)


@pytest.mark.parametrize("workers", [2, pytest.param(5, marks=LONG)])
def test_the_number_of_graders_changes_nothing(workers, nursery, whole, tiny, tmp_path):
    run = tmp_path / "run"
    words = ["train", tiny / "recipe.toml", "--out", run, "--set", f"grading.workers={workers}"]
    assert nursery.live(words).code == 0
    same(whole, run)


@LONG
def test_a_folder_of_half_a_run_is_no_obstacle(nursery, tiny, tmp_path):
    """A kill before the run was there leaves a name that nobody takes for a run."""
    run = tmp_path / "run"
    (tmp_path / f".unfinished-1-{run.name}" / "state").mkdir(parents=True)
    assert nursery.live(["train", tiny / "recipe.toml", "--out", run]).code == 0
    assert Run.open(run).progress["finished"]


SERVED = {"messages": [{"role": "user", "content": "red hmm 1"}], "temperature": 0, "seed": 7}


def address(said: Path) -> str | None:
    """Where the server says that it listens."""
    text = (said / "out").read_text() if (said / "out").exists() else ""
    found = [word for word in text.split() if word.endswith("/v1")]
    return found[0] if found else None


@pytest.fixture(scope="module")
def family(nursery, whole, tiny, tmp_path_factory) -> Path:
    """A run with levels, made by the commands."""
    run = tmp_path_factory.mktemp("family") / "run"
    shutil.copytree(whole, run)
    words = ["family", run, "--data", tiny / "data.jsonl", "--all", "--tolerance", 1]
    ended = nursery.live(words)
    assert ended.code == 0, ended.told
    return run


@LONG
def test_a_server_that_is_killed_answers_as_before(nursery, family, choice):
    """At start, at rest and while it answers; it leaves no process and no lock behind."""
    import httpx

    said: list[str] = []
    for _ in range(12):
        with nursery.living(["serve", family, "--port", 0]) as life:
            if choice.random() < 0.3:
                life.kill_after(choice.uniform(0, 1))
            else:
                until(lambda: address(nursery.folder))
                url = f"{address(nursery.folder)}/chat/completions"
                name = json.loads((family / "family.json").read_text())["name"]
                body = {**SERVED, "model": name, "max_tokens": 10}
                told = httpx.post(url, json=body, trust_env=False, timeout=60).json()
                said.append(json.dumps(told["choices"]))
                with httpx.stream("POST", url, json={**body, "stream": True}, trust_env=False):
                    life.kill_after(choice.uniform(0, 0.05))
        assert life.ended().code == -signal.SIGKILL
        COUNTS["serve: kill"] += 1
    assert len(said) > 1 and len(set(said)) == 1
