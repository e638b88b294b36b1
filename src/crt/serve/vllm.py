"""vLLM behind the dial: levels as adapters on one base, or a server for each level."""

import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx

from crt.errors import ConfigError, EngineError
from crt.serve.family import Family, model_of
from crt.serve.metrics import Metrics
from crt.serve.upstream import Served, UpstreamEngine, UpstreamSettings

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM can be told as the largest rank
MEMORY = 0.9  # of the GPU, shared by the servers
START_SECONDS = 900.0  # loading and compiling a large model takes minutes


@dataclass(frozen=True)
class Launch:
    """A server to start, and the levels it serves."""

    command: tuple[str, ...]
    url: str
    models: dict[str, str]  # level → name there


def chosen_engine(asked: Literal["auto", "local", "vllm"]) -> Literal["local", "vllm"]:
    """vLLM when it is installed and a GPU is there, unless one is asked for."""
    installed = importlib.util.find_spec("vllm") is not None
    if asked == "vllm" and not installed:
        raise ConfigError("vLLM is not installed: install crt-train[vllm], or use --engine local")
    if asked != "auto":
        return asked
    import torch

    return "vllm" if installed and torch.cuda.is_available() else "local"


def launches(
    family: Family, file: Path, ports: Sequence[int], extra: Sequence[str] = ()
) -> list[Launch]:
    """One server if every level but the base is an adapter on it; else one for each level."""
    if all(level.adapter for level in family.levels[:-1]):
        return [_with_adapters(family, file, ports[0], extra)]
    share = ["--gpu-memory-utilization", f"{MEMORY / len(family.levels):.2f}"]
    found: list[Launch] = []
    for level, port in zip(family.levels, ports, strict=False):
        if level.adapter:
            raise ConfigError(
                f"{level.name} is an adapter and another level is not: export it merged, "
                "crt export, or serve with --engine local"
            )
        name = f"{family.name}:{level.name}"
        command = _command(model_of(level, file), level.revision, name, port, [*share, *extra])
        found.append(Launch(command, _url(port), {level.name: name}))
    return found


def _with_adapters(family: Family, file: Path, port: int, extra: Sequence[str]) -> Launch:
    """The base once in memory, the levels beside it."""
    *levels, base = family.levels
    names = {level.name: f"{family.name}:{level.name}" for level in family.levels}
    folders = {level.name: model_of(level, file) for level in levels}
    options: list[str] = []
    if levels:
        modules = [f"{names[level]}={folder}" for level, folder in folders.items()]
        rank = max(_rank(Path(folder)) for folder in folders.values())
        options = ["--enable-lora", "--max-loras", str(len(levels)), "--max-lora-rank", str(rank)]
        options += ["--lora-modules", *modules]
    name = names[base.name]
    command = _command(model_of(base, file), base.revision, name, port, [*extra, *options])
    return Launch(command, _url(port), names)


def _command(
    model: str, revision: str | None, name: str, port: int, options: Sequence[str]
) -> tuple[str, ...]:
    if model == "pocket":
        from crt.pocket import path

        model = str(path())
    at = ("--revision", revision) if revision else ()
    where = ("--host", "127.0.0.1", "--port", str(port))
    return ("vllm", "serve", model, *at, "--served-model-name", name, *where, *options)


def _rank(folder: Path) -> int:
    """The smallest rank vLLM knows that holds the adapter's."""
    try:
        rank = json.loads((folder / "adapter_config.json").read_bytes())["r"]
        return next(known for known in RANKS if known >= rank)
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        raise EngineError(
            f"{folder / 'adapter_config.json'} has no rank that vLLM knows."
        ) from None


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


class VllmEngine(UpstreamEngine):
    """The dial in front of servers that were started for it and end with it."""

    processes: list[subprocess.Popen[bytes]]

    @property
    def healthy(self) -> bool:
        """Every server still runs."""
        return all(process.poll() is None for process in self.processes)

    async def close(self) -> None:
        """Ends the servers, too."""
        await super().close()
        stop(self.processes)


def vllm_engine(
    family: Family,
    file: Path,
    extra: Sequence[str],
    settings: UpstreamSettings,
    metrics: Metrics,
    note: Callable[[str], None],
) -> VllmEngine:
    """Starts what is needed and waits until it answers."""
    if shutil.which("vllm") is None:
        raise ConfigError("there is no command `vllm`: install crt-train[vllm]")
    planned = launches(family, file, free_ports(len(family.levels)), extra)
    processes = start(planned, note)
    served = {
        level: Served(each.url, name) for each in planned for level, name in each.models.items()
    }
    engine = VllmEngine(family, served, settings, metrics)
    engine.processes = processes
    return engine


def start(planned: Sequence[Launch], note: Callable[[str], None]) -> list[subprocess.Popen[bytes]]:
    """One after the other, so that each sees what memory the others took."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for each in planned:
            note(" ".join(each.command))
            processes.append(subprocess.Popen(each.command, stdout=sys.stderr))
            wait_for(each.url, processes[-1], START_SECONDS)
    except BaseException:
        stop(processes)
        raise
    return processes


def wait_for(url: str, process: "subprocess.Popen[Any]", seconds: float) -> None:
    """Returns when the server lists its models; says so if it ends or takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise EngineError(f"the server ended with exit code {process.returncode}: see above.")
        try:
            if httpx.get(f"{url}/models", timeout=5.0, trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise EngineError(f"the server at {url} was not ready within {seconds:g} seconds.")


def stop(processes: Sequence["subprocess.Popen[Any]"]) -> None:
    """Asks them to end, then makes them."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    bound = [socket.socket() for _ in range(count)]
    try:
        for each in bound:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in bound]
    finally:
        for each in bound:
            each.close()
