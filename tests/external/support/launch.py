"""`crt` in processes of its own, as a user starts it."""

import os
import subprocess
import sys
from pathlib import Path

import crt

HERE = Path(__file__).parent
QUIET = {
    "PYTHONPATH": os.pathsep.join([str(HERE), str(Path(crt.__file__).parents[1])]),
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def run(
    module: str, *words: str, processes: int = 1, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """`crt WORDS` by a module of the support folder, or by `crt` itself."""
    started = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    return subprocess.run(
        [sys.executable, *(started if processes > 1 else []), "-m", module, *words],
        env=os.environ | QUIET | environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
