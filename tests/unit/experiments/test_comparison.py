"""A comparison of a few steps from end to end, killed in the middle and begun again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crt.cli import main
from crt.errors import DataError
from crt.experiments.schedule import environment, train_argv
from crt.run import Run


def words(recipes, out: Path) -> list[str]:
    return ["bench-methods", str(recipes["two"]), "--seeds", "1", "--out", str(out)]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_for(path: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 900
    while not path.exists():
        assert process.poll() is None, "the comparison ended before it could be killed"
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)


def wait_until_free(run: Run) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with run.locked():
                return
        except DataError:
            assert time.monotonic() < deadline, "a process of the killed comparison goes on"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def killed(recipes, tmp_path_factory) -> Path:
    """Killed with -9 when the base is evaluated and a run has just begun."""
    out = tmp_path_factory.mktemp("compared") / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "crt", *words(recipes, out)], stdout=subprocess.DEVNULL
    )
    wait_for(out / "runs" / "two-seed1" / "config.json", process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return out


def test_a_killed_comparison_goes_on(killed, recipes, capfd):
    run, base = killed / "runs" / "two-seed1", killed / "evaluations" / "base-seed1"
    assert not Run.open(run).progress.get("finished")
    wait_until_free(Run.open(run))  # whoever trained it goes with the comparison
    seen = (base / "manifest.json").read_bytes()

    assert main(words(recipes, killed)) == 0, capfd.readouterr()

    assert Run.open(run).progress["finished"]
    assert (base / "manifest.json").read_bytes() == seen  # not evaluated twice
    done = [(row["kind"], row["name"]) for row in lines(killed / "times.jsonl")]
    assert done == [("evaluate", "base-seed1"), ("train", "two-seed1"), ("evaluate", "two-seed1")]
    rows = json.loads((killed / "methods.json").read_text())
    assert [(r["method"], r["seed"], r["checkpoint"]) for r in rows] == [
        ("two", 1, "recommended"),
        ("two", 1, "last"),
    ]
    for row in rows:
        assert row["tokens"] == sum(step["generated_tokens"] for step in Run.open(run).steps) >= 400
        assert row["step"] in Run.open(run).checkpoints
        assert (row["problems"], row["rollouts"]) == (12, 24)
    assert (killed / "runs" / "references").is_dir()  # one cache for all runs
    assert "Recommended checkpoints" in capfd.readouterr().out

    # everything is there: the same words run nothing
    kept = (run / "steps.jsonl").stat().st_mtime_ns
    assert main(words(recipes, killed)) == 0
    assert len(lines(killed / "times.jsonl")) == 3
    assert (run / "steps.jsonl").stat().st_mtime_ns == kept


def test_one_process_at_a_time(killed, recipes, capsys):
    from crt.experiments.plan import open_comparison

    with open_comparison(killed).locked():
        assert main(words(recipes, killed)) == 2
    assert "is being carried out by another process" in capsys.readouterr().err


def test_a_run_that_cannot_start_is_told_with_its_reason(recipes, tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "short-seed0").touch()  # something else lies where the run should be
    assert main(["bench-methods", "tune", str(recipes["short"]), "--out", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert "short-seed0 failed: crt train:" in told.err
    assert "is there already and is not written over" in told.err
    assert "not all runs are over" in told.out


def test_words_and_environment_of_a_process(tmp_path, monkeypatch):
    new = train_argv(tmp_path / "plan.json", tmp_path / "run")
    assert new == ("crt", "train", str(tmp_path / "plan.json"), "--out", str(tmp_path / "run"))
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)  # killed while it was made
    assert train_argv(tmp_path / "plan.json", tmp_path / "run") == new
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").touch()
    assert train_argv(tmp_path / "plan.json", tmp_path / "run")[2] == "--resume"
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert environment("1")["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment(None)["OMP_NUM_THREADS"] == "1"
