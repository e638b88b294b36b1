"""`crt train` in several processes on a CPU, and what must be equal whatever their number."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from crt.run import Run
from tests.support.trained import rows, weights

ENOUGH = 300.0  # seconds, for a machine that does other things too


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
