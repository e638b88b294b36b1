"""vLLM behind the proxy: adapters on one base, or a server per level; started, watched, ended."""

import asyncio
import atexit
import importlib.util
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from crt.errors import ConfigError, CrtError, EngineError
from crt.levels.family import Family, Level, level_files, model_of
from crt.levels.reasoning_splitter import vocabulary_of
from crt.levels.upstream import UpstreamEngine, UpstreamModel
from crt.processes import ends_with_parent
from crt.sampling.models import is_world, model_folder

log = logging.getLogger("crt.levels")
Process = subprocess.Popen[bytes]
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # values of vLLM's --max-lora-rank
GPU_MEMORY = 0.9  # share that the servers divide among them
PARSERS = ("--reasoning-parser", "--tool-call-parser")  # with these vLLM splits answers itself
START_SECONDS = 900.0  # loading and compiling a large model takes minutes
STOP_SECONDS = 30.0
MOST_RESTARTS = 3  # of one server; one that keeps dying stays down, and /health says so
WATCH_SECONDS = 1.0


def choose_engine(wanted: str) -> str:
    """vLLM when it is installed and a GPU is there, unless one is asked for."""
    installed = importlib.util.find_spec("vllm") is not None
    if wanted == "vllm" and not installed:
        raise ConfigError("vLLM is not installed: install crt-train[vllm], or use --engine local")
    if wanted != "auto":
        return wanted
    import torch

    return "vllm" if installed and torch.cuda.is_available() else "local"


def start_vllm(
    family: Family,
    file: Path,
    extra: Sequence[str],
    max_requests: int,
    note: Callable[[str], None],
) -> UpstreamEngine:
    """Starts what is needed and waits until it answers."""
    program = vllm_program()
    vocabularies = {level.name: vocabulary_of(level_files(level, file)) for level in family.levels}
    if any(option.partition("=")[0] in PARSERS for option in extra):
        vocabularies = {}
    launches = plan_launches(family, file, free_ports(len(family.levels)), extra, program)
    models = {
        level: UpstreamModel(launch.url, name, vocabularies.get(level))
        for launch in launches
        for level, name in launch.models.items()
    }
    servers = ServerProcesses(launches)
    servers.start(note)
    return UpstreamEngine(models, max_requests, servers=servers)


def vllm_program() -> str:
    """The `vllm` of this very environment, which need not be activated; else the first there is."""
    beside = Path(sys.executable).with_name("vllm")
    program = str(beside) if beside.is_file() else shutil.which("vllm")
    if program is None:
        raise ConfigError("there is no command `vllm`: install crt-train[vllm]")
    return program


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]


# ---- the command lines


@dataclass(frozen=True)
class Launch:
    """A server to start, and the levels it serves."""

    command: tuple[str, ...]
    url: str
    models: dict[str, str]  # level → name there


def plan_launches(
    family: Family,
    file: Path,
    ports: Sequence[int],
    extra: Sequence[str] = (),
    program: str = "vllm",
) -> list[Launch]:
    """One server if every level but the base is an adapter on it; else one per level."""
    *levels, base = family.levels
    names = {level.name: f"{family.name}:{level.name}" for level in family.levels}
    if all(level.adapter for level in levels):
        options = [*extra, *_lora_options(levels, names, file)]
        return [_launch(program, base, file, ports[0], names, options)]
    adapter = next((level.name for level in levels if level.adapter), None)
    if adapter is not None:
        raise ConfigError(
            f"{adapter} is an adapter and another level is not: export it merged, "
            "crt export, or serve with --engine local"
        )
    memory = ["--gpu-memory-utilization", f"{GPU_MEMORY / len(names):.2f}"]
    return [
        _launch(program, level, file, port, {level.name: names[level.name]}, [*memory, *extra])
        for level, port in zip(family.levels, ports, strict=True)
    ]


def _lora_options(levels: Sequence[Level], names: Mapping[str, str], file: Path) -> list[str]:
    """The base once in memory, the levels beside it."""
    if not levels:
        return []
    folders = {level.name: model_of(level, file) for level in levels}
    rank = max(_lora_rank(Path(folder)) for folder in folders.values())
    # One place more than adapters: on a CPU vLLM 0.28 gives a request for the base that shares a
    # batch with others the adapter in the last place, which must be an empty one.
    places = str(len(levels) + 1)
    modules = [f"{names[level]}={folder}" for level, folder in folders.items()]
    options = ["--enable-lora", "--max-loras", places, "--max-lora-rank", str(rank)]
    return [*options, "--lora-modules", *modules]


def _launch(
    program: str,
    level: Level,
    file: Path,
    port: int,
    models: dict[str, str],
    options: Sequence[str],
) -> Launch:
    model = model_of(level, file)
    if is_world(model):
        model = str(model_folder(model))
    revision = ("--revision", level.revision) if level.revision else ()
    name = ("--served-model-name", models[level.name])
    address = ("--host", "127.0.0.1", "--port", str(port))
    command = (program, "serve", model, *revision, *name, *address, *options)
    return Launch(command, f"http://127.0.0.1:{port}/v1", models)


def _lora_rank(folder: Path) -> int:
    """The smallest rank vLLM knows that holds the adapter's."""
    file = folder / "adapter_config.json"
    try:
        rank = json.loads(file.read_bytes())["r"]
        return next(possible for possible in RANKS if possible >= rank)
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        raise EngineError(f"{file} has no rank that vLLM knows.") from None


# ---- the processes


@dataclass
class ServerProcesses:
    """Servers that the proxy started: one that dies starts again, and all end with the proxy."""

    launches: Sequence[Launch]
    processes: list[Process] = field(default_factory=list[Process])

    def start(self, note: Callable[[str], None]) -> None:
        """One after the other, so that each sees what memory the others took."""
        atexit.register(self.stop)  # however this process ends, if it can run this
        try:
            for launch in self.launches:
                note(" ".join(launch.command))
                self.processes.append(start_server(launch))
        except BaseException:
            self.stop()
            raise

    async def watch(self) -> None:
        """Starts a server that has died again, a few times at most."""
        restarts = [0] * len(self.launches)
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for i, process in enumerate(self.processes):
                if process.poll() is None or restarts[i] == MOST_RESTARTS:
                    continue
                restarts[i] += 1
                log.error("a server ended with exit code %s: restart", process.returncode)
                try:
                    self.processes[i] = await asyncio.to_thread(start_server, self.launches[i])
                except CrtError as error:
                    log.error("the restart failed: %s", error)

    def stop(self) -> None:
        stop_servers(self.processes)


def start_server(launch: Launch) -> Process:
    """A running server that answers.

    It has a process group of its own: Ctrl-C is for the proxy, which lets streams finish first.
    Even if the proxy is killed, its servers end, and do not keep the GPU's memory.
    """
    process = subprocess.Popen(
        launch.command,
        stdout=sys.stderr,
        start_new_session=True,
        preexec_fn=ends_with_parent(signal.SIGTERM),
    )
    try:
        wait_until_ready(launch.url, process, START_SECONDS)
    except BaseException:
        stop_servers([process])
        raise
    return process


def wait_until_ready(url: str, process: Process, seconds: float) -> None:
    """Returns when the server lists its models; an error if it ends or takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise EngineError(f"the server ended with exit code {process.returncode}: see above.")
        with suppress(httpx.HTTPError):
            if httpx.get(f"{url}/models", timeout=5.0, trust_env=False).status_code == 200:
                return
        time.sleep(0.2)
    raise EngineError(f"the server at {url} was not ready within {seconds:g} seconds.")


def stop_servers(processes: Sequence[Process]) -> None:
    """Asks them to end, then makes them, with what they started."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
