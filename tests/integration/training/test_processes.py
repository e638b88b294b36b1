"""Several processes on a CPU are one run: the same rollouts, and weights equal to rounding."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from crt.cli import main
from crt.run import Run
from tests.support.trained import rows, train, weights

ENOUGH = 300.0  # seconds, for a machine that does other things too


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory) -> Path:
    """A run of one process."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert train(tiny, run).returncode == 0
    return run


def command(tiny: Path, run: Path, processes: int) -> list[str]:
    """`crt train` as a user types it, for a new run or one that is there."""
    words = ["--resume", run] if run.exists() else [tiny / "recipe.toml", "--out", run]
    return [sys.executable, "-m", "crt", "train", *map(str, words), f"--processes={processes}"]


def finish(tiny: Path, run: Path, processes: int) -> str:
    """What was printed."""
    words = command(tiny, run, processes)
    done = subprocess.run(words, capture_output=True, text=True, timeout=ENOUGH)
    assert done.returncode == 0, done.stderr
    return done.stdout


def same_to_rounding(one: Path, other: Path) -> None:
    """What was sampled and decided is equal; the sums of the update come in another order."""
    ours, theirs = Run.open(one), Run.open(other)
    assert len(rows(one)) == len(rows(other))
    for row, counterpart in zip(rows(one), rows(other), strict=True):
        step = row["step"]
        said = [[r["text"] for r in run.rollouts(step)] for run in (ours, theirs)]
        assert said[0] == said[1]
        for key in ("goal", "accuracy", "reference_accuracy", "tokens", "margin"):
            assert row[key] == pytest.approx(counterpart[key], abs=1e-6), key
        assert row.get("kl") == pytest.approx(counterpart.get("kl"), abs=1e-6)
        assert row["loss"] == pytest.approx(counterpart["loss"], abs=1e-4)
    assert ours.progress == theirs.progress and ours.progress["finished"]
    assert ours.checkpoints.keys() == theirs.checkpoints.keys()
    for step in ours.checkpoints:
        one_step, other_step = weights(one, step), weights(other, step)
        for name in one_step:
            torch.testing.assert_close(one_step[name], other_step[name], atol=1e-4, rtol=1e-3)


def test_two_processes_are_one_run(whole, tiny, tmp_path):
    printed = finish(tiny, tmp_path / "two", 2)
    assert printed.splitlines()[0] == "Training in 2 processes."
    assert printed.count("Finished.") == 1
    same_to_rounding(whole, tmp_path / "two")


def test_another_number_of_processes_goes_on(whole, tiny, tmp_path):
    run = tmp_path / "ended"
    assert train(tiny, run, "terminate", 5).returncode == 143
    assert len(rows(run)) == 5
    finish(tiny, run, 4)
    same_to_rounding(whole, run)


def begun(tiny: Path, run: Path, steps: int) -> "subprocess.Popen[str]":
    """Two processes that have done so many steps, and what started them."""
    parent = subprocess.Popen(
        command(tiny, run, 2), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + ENOUGH
    while time.monotonic() < end and parent.poll() is None:
        with contextlib.suppress(Exception):  # the run is not there yet
            if len(rows(run)) >= steps:
                return parent
        time.sleep(0.01)
    parent.kill()
    raise AssertionError(parent.communicate()[1])


def ranks_of(parent: "subprocess.Popen[str]") -> list[int]:
    return [
        int(pid)
        for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_killed_with_all_its_processes_and_resumed_with_one(whole, tiny, tmp_path):
    run = tmp_path / "killed"
    parent = begun(tiny, run, 3)
    ranks = ranks_of(parent)
    parent.kill()
    parent.communicate()
    assert len(ranks) == 2
    end = time.monotonic() + ENOUGH
    while any(Path(f"/proc/{pid}").exists() for pid in ranks) and time.monotonic() < end:
        time.sleep(0.01)  # until the run's lock is free
    assert train(tiny, run).returncode == 0
    same_to_rounding(whole, run)


@pytest.mark.skipif(sys.platform != "linux", reason="children are found in /proc")
def test_one_that_dies_ends_the_others(whole, tiny, tmp_path):
    run = tmp_path / "alone"
    parent = begun(tiny, run, 2)
    os.kill(ranks_of(parent)[1], signal.SIGKILL)
    _, said = parent.communicate(timeout=ENOUGH)
    assert parent.returncode == 128 + signal.SIGKILL
    assert "process 2 of 2 was ended by signal 9" in said and "Traceback" not in said
    finish(tiny, run, 2)
    same_to_rounding(whole, run)


def test_a_number_that_cannot_share_a_step_is_refused(tiny, tmp_path, capsys):
    words = ["train", str(tiny / "recipe.toml"), "--out", str(tmp_path / "run")]
    assert main([*words, "--processes", "3"]) == 2
    assert "--processes 3: a step has 16 rollouts" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
