"""Several processes on a CPU are one run: the same rollouts, and weights equal to rounding."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from crt.cli import main
from tests.support.several import ENOUGH, begun, finish, ranks_of, same_to_rounding
from tests.support.trained import rows, train


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory) -> Path:
    """A run of one process."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert train(tiny, run).returncode == 0
    return run


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
