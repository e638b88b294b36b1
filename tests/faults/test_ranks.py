"""One of several processes is killed with -9 at any moment; another number of them goes on."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import COUNTS

from crt.run import Run
from tests.support.several import ENOUGH, command, finish, ranks_of, same_to_rounding
from tests.support.trained import rows

KILLS = 7  # in a chain; a run that is finished before is followed by another

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="children are found in /proc"),
]


def steps(run: Path) -> int:
    """How many are done; 0 also while the run is being made."""
    with contextlib.suppress(Exception):
        return len(rows(run))
    return 0


def one_killed(tiny: Path, run: Path, processes: int, choice: random.Random) -> bool:
    """Whether one process was killed before the run was done; the others must end by themselves.

    The moment is counted in steps, and a little at random, so that a busy machine has it too.
    """
    until = steps(run) + choice.randrange(0, 3)
    parent = subprocess.Popen(
        command(tiny, run, processes), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + ENOUGH
    while steps(run) < until and parent.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    while parent.poll() is None and len(ranks_of(parent)) < processes:
        time.sleep(0.01)
    time.sleep(choice.uniform(0.0, 2.0))
    ranks = ranks_of(parent) if parent.poll() is None else []
    if ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(choice.choice(ranks), signal.SIGKILL)
    _, said = parent.communicate(timeout=ENOUGH)
    assert "Traceback" not in said, said
    assert parent.returncode in (0, 128 + signal.SIGKILL), said
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)
    return parent.returncode != 0


@pytest.mark.parametrize("chain", range(8))
def test_one_of_several_is_killed(chain, tiny, whole, tmp_path, choice):
    killed, runs = 0, 0
    while killed < KILLS:
        runs += 1
        run = tmp_path / str(runs) / "run"
        run.parent.mkdir()
        while killed < KILLS and one_killed(tiny, run, choice.choice([2, 2, 4]), choice):
            killed += 1
            COUNTS["train: kill one of several processes"] += 1
        if not (run.exists() and Run.open(run).progress["finished"]):
            finish(tiny, run, choice.choice([1, 2, 4]))
        same_to_rounding(whole, run)
        assert not list(run.parent.rglob(".unfinished*"))
