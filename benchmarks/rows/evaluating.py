"""An evaluation end to end: `crt eval` beside a plain loop of HF `generate` and math-verify.

Both are commands on all cores, from the start of Python to the result.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.results import Row, compared
from harness.timing import Contender, interleaved

from . import Setting

PROBLEMS, ROLLOUTS, CAP = 64, 16, 256
SCRIPT = Path(__file__).parents[1] / "evaluation_loop.py"


def rows(setting: Setting) -> Iterator[Row]:
    """What a repeat leaves behind is not used again."""
    count = 2 if setting.small else PROBLEMS
    total = count * ROLLOUTS

    def crt(repeat: int) -> float:
        out = setting.folder / f"evaluation{repeat}"
        return run(
            ["-m", "crt", "eval", "pocket", "--data", f"pocket/test:{count}", "--out", str(out),
             "--rollouts", str(ROLLOUTS), "--max-tokens", str(CAP), "--seed", str(repeat + 1)],
            total,
        )  # fmt: skip

    def loop(processes: int) -> Contender:
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
        start = launcher if processes > 1 else []
        arguments = [str(SCRIPT), str(count), str(ROLLOUTS), str(CAP)]
        threads = setting.cores // processes
        return lambda repeat: run([*start, *arguments, str(repeat + 1)], total, threads)

    timings = interleaved({"crt": crt, "loop": loop(setting.cores)}, setting.repeats, warm_up=0)
    yield compared(
        "evaluation", f"`crt eval`, pocket model, {count} problems × {ROLLOUTS}",
        "a loop of HF generate and math-verify", timings["crt"], timings["loop"], goal=4,
        unit="ms per rollout", scale=1000,
        note=f"whole commands, {setting.cores} processes with one thread each for both",
    )  # fmt: skip


def run(arguments: Sequence[str], work: int, threads: int = 1) -> float:
    """A command that does so much work."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr}")
    return work
