"""`crt` in processes of its own, as a user starts it."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import crt

FOLDERS = (Path(__file__).parent, Path(__file__).parents[3], Path(crt.__file__).parents[1])
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(map(str, FOLDERS)),
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
}
DEEPSPEED = Path(sys.prefix) / "deepspeed"  # beside the environment's own packages
VLLM = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",
}
SERVE = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"]
OPTIONS = [
    "--weight-transfer-config", '{"backend": "tcp"}', "--logprobs-mode", "processed_logprobs",
    "--max-logprobs", "-1", "--dtype", "float32", "--max-model-len", "512", "--enforce-eager",
]  # fmt: skip


def run(
    module: str, *words: str, processes: int = 1, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """`crt WORDS` by a module of the support folder, or by `crt` itself."""
    started = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    return subprocess.run(
        [sys.executable, *(started if processes > 1 else []), "-m", module, *words],
        env=os.environ | ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )


def deepspeed_environment(folder: Path) -> dict[str, str]:
    """For processes with DeepSpeed, which compiles what its CPU processes talk over."""
    path = os.pathsep.join([str(DEEPSPEED), ENVIRONMENT["PYTHONPATH"]])
    return {"PYTHONPATH": path, "DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(folder)}


def vllm_environment(folder: Path) -> dict[str, str]:
    """For processes with vLLM, which keep their files in this folder."""
    from vllm_cpu import install

    install(folder / "vllm-cpu")
    caches = {
        name: str(folder / name.lower())
        for name in ("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "XDG_CACHE_HOME", "TRITON_CACHE_DIR")
    }
    path = os.pathsep.join([str(folder / "vllm-cpu"), ENVIRONMENT["PYTHONPATH"]])
    return VLLM | caches | {"PYTHONPATH": path}


@contextmanager
def serving(model: Path, environment: dict[str, str], log: Path) -> Iterator[str]:
    """The address of `vllm serve` with this model."""
    port = free_port()
    with log.open("w") as file:
        server = subprocess.Popen(
            [*SERVE, str(model), *OPTIONS, "--host", "127.0.0.1", "--port", str(port)],
            env=os.environ | ENVIRONMENT | environment | {"VLLM_SERVER_DEV_MODE": "1"},
            stdout=file,
            stderr=file,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        while not is_up(address):
            assert server.poll() is None, log.read_text()
            time.sleep(0.5)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=60)


def is_up(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
