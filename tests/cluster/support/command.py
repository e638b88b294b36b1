"""`crt` as a user calls it, with all that a cluster of one machine without a GPU needs."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crt.io import read_rows

HERE = Path(__file__).parent
SUPPORT = {
    "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_worker_niceness": "0",  # as its parent; by itself Ray steps back behind everything
    # a busy machine is no broken one
    "RAY_raylet_start_wait_time_s": "600",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_worker_register_timeout_seconds": "900",
}


def environment(folder: Path, ray: Path) -> dict[str, str]:
    """Everything that Ray and vLLM write goes into `folder`, and Ray's sockets into `ray`."""
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    caches = {
        name: str(folder / name.lower())
        for name in ("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "XDG_CACHE_HOME", "TRITON_CACHE_DIR")
    }
    own = {"RAY_TMPDIR": str(ray), "RAY_AUTH_TOKEN_PATH": str(token), **caches}
    own["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, **SUPPORT, **own}


def crt(place: Any, *words: str) -> "subprocess.Popen[str]":
    """`crt`, as a user calls it."""
    return subprocess.Popen(
        [sys.executable, "-m", "crt", *words],
        env=place["environment"],
        cwd=place["folder"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def told(process: "subprocess.Popen[str]", code: int = 0) -> str:
    output, _ = process.communicate()
    assert process.returncode == code, output
    return output


def steps(run: Path) -> int:
    return len(read_rows(run / "steps.jsonl"))


def wait_for(process: "subprocess.Popen[str]", is_so: Callable[[], bool]) -> None:
    while not is_so():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.5)
