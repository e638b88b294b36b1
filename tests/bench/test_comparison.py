"""A comparison of a few steps from end to end, killed in the middle and begun again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crt.bench.children import environment, train_words
from crt.cli import main
from crt.run import Run


def words(recipes, out: Path) -> list[str]:
    chosen = [str(recipes["two"]), str(recipes["short"])]
    return ["bench-methods", *chosen, "--seeds", "1", "--out", str(out)]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_for(path: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 200
    while not path.exists():
        assert process.poll() is None, "the comparison ended before it could be killed"
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def killed(recipes, tmp_path_factory) -> Path:
    """Killed with -9 when its second run has just begun."""
    out = tmp_path_factory.mktemp("compared") / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "crt", *words(recipes, out)], stdout=subprocess.DEVNULL
    )
    wait_for(out / "runs" / "short-seed1" / "config.json", process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return out


def test_a_killed_comparison_goes_on(killed, recipes, capfd):
    first, second = Run.open(killed / "runs" / "two-seed1"), killed / "runs" / "short-seed1"
    assert first.progress["finished"]
    assert not Run.open(second).progress.get("finished")
    kept = (first.path / "steps.jsonl").stat().st_mtime_ns
    seen = json.loads((killed / "evaluations" / "base-seed1" / "manifest.json").read_text())

    assert main(words(recipes, killed)) == 0, capfd.readouterr()

    assert Run.open(second).progress["finished"]
    assert (first.path / "steps.jsonl").stat().st_mtime_ns == kept
    again = json.loads((killed / "evaluations" / "base-seed1" / "manifest.json").read_text())
    assert again == seen  # not evaluated twice
    done = [(row["kind"], row["name"]) for row in lines(killed / "times.jsonl")]
    assert len(done) == len(set(done)) == 5  # 1 base, 2 runs trained and evaluated
    rows = json.loads((killed / "methods.json").read_text())
    assert [(r["method"], r["seed"], r["checkpoint"]) for r in rows] == [
        ("two", 1, "recommended"), ("two", 1, "last"),
        ("short", 1, "recommended"), ("short", 1, "last"),
    ]  # fmt: skip
    for row in rows:
        run = Run.open(killed / "runs" / f"{row['method']}-seed1")
        assert row["tokens"] == sum(step["generated"] for step in run.steps) >= 400
        assert row["step"] in run.checkpoints
        assert (row["problems"], row["rollouts"]) == (12, 24)
    # one cache of the reference for both
    assert (killed / "runs" / "references").is_dir()
    assert "Recommended checkpoints" in capfd.readouterr().out

    # everything is there: the same words run nothing
    assert main(words(recipes, killed)) == 0
    assert len(lines(killed / "times.jsonl")) == 5


def test_one_process_at_a_time(killed, recipes, capsys):
    from crt.bench.plan import opened

    with opened(killed).locked():
        assert main(words(recipes, killed)) == 2
    assert "is being carried out by another process" in capsys.readouterr().err


def test_a_run_that_cannot_start_does_not_end_the_others(recipes, tmp_path, capsys):
    out = tmp_path / "out"
    more = ["--set", "preflight.max_truncated=0.0"]
    one = ["bench-methods", "tune", str(recipes["short"]), "--out", str(out), *more]
    assert main(one) == 1
    told = capsys.readouterr()
    assert "short failed" in told.err.replace("-seed0", "")
    assert "sampling.max_tokens" in told.err


def test_words_and_environment_of_a_process(tmp_path, monkeypatch):
    new = train_words(tmp_path / "plan.json", tmp_path / "run")
    assert new == ("crt", "train", str(tmp_path / "plan.json"), "--out", str(tmp_path / "run"))
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)  # killed while it was made
    assert train_words(tmp_path / "plan.json", tmp_path / "run") == new
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").touch()
    assert train_words(tmp_path / "plan.json", tmp_path / "run")[2] == "--resume"
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert environment("1")["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment(None)["OMP_NUM_THREADS"] == "1"
