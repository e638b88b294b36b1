"""vLLM behind the dial: levels as adapters on one base, or a server for each level."""

import asyncio
import atexit
import importlib.util
import json
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Literal

from crt.errors import ConfigError, EngineError
from crt.sampling.models import model_files
from crt.serve.apart import Words
from crt.serve.children import Launch, start, stop
from crt.serve.family import Family, Level, check_weights, model_of
from crt.serve.metrics import Metrics
from crt.serve.upstream import Served, UpstreamEngine, UpstreamSettings

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM can be told as the largest rank
MEMORY = 0.9  # of the GPU, shared by the servers
OWN_WORDS = ("--reasoning-parser", "--tool-call-parser")  # then vLLM itself takes answers apart


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
    family: Family,
    file: Path,
    ports: Sequence[int],
    extra: Sequence[str] = (),
    program: str = "vllm",
) -> list[Launch]:
    """One server if every level but the base is an adapter on it; else one for each level."""
    if all(level.adapter for level in family.levels[:-1]):
        return [_with_adapters(family, file, ports[0], extra, program)]
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
        found.append(Launch((program, *command), _url(port), {level.name: name}))
    return found


def _with_adapters(
    family: Family, file: Path, port: int, extra: Sequence[str], program: str
) -> Launch:
    """The base once in memory, the levels beside it."""
    *levels, base = family.levels
    names = {level.name: f"{family.name}:{level.name}" for level in family.levels}
    folders = {level.name: model_of(level, file) for level in levels}
    options: list[str] = []
    if levels:
        modules = [f"{names[level]}={folder}" for level, folder in folders.items()]
        rank = max(_rank(Path(folder)) for folder in folders.values())
        # One place more than adapters: on a CPU vLLM 0.28 gives a request for the base that shares
        # a batch with others the adapter in the last place, which must be an empty one.
        places = str(len(levels) + 1)
        options = ["--enable-lora", "--max-loras", places, "--max-lora-rank", str(rank)]
        options += ["--lora-modules", *modules]
    name = names[base.name]
    command = _command(model_of(base, file), base.revision, name, port, [*extra, *options])
    return Launch((program, *command), _url(port), names)


def _command(
    model: str, revision: str | None, name: str, port: int, options: Sequence[str]
) -> tuple[str, ...]:
    if model == "pocket":
        from crt.pocket import path

        model = str(path())
    at = ("--revision", revision) if revision else ()
    where = ("--host", "127.0.0.1", "--port", str(port))
    return ("serve", model, *at, "--served-model-name", name, *where, *options)


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

    processes: "list[Popen[bytes]]"

    async def close(self) -> None:
        """Ends the servers, too."""
        await super().close()
        await asyncio.to_thread(stop, self.processes)


def vllm_engine(
    family: Family,
    file: Path,
    extra: Sequence[str],
    settings: UpstreamSettings,
    metrics: Metrics,
    note: Callable[[str], None],
) -> VllmEngine:
    """Starts what is needed and waits until it answers."""
    program = vllm_program()
    words = {level.name: level_words(level, file) for level in family.levels}
    if any(option.partition("=")[0] in OWN_WORDS for option in extra):
        words = {}
    planned = launches(family, file, free_ports(len(family.levels)), extra, program)
    processes = start(planned, note)
    atexit.register(stop, processes)  # however this process ends, if it can say so
    served = {
        level: Served(each.url, name, words.get(level))
        for each in planned
        for level, name in each.models.items()
    }
    engine = VllmEngine(family, served, settings, metrics)
    engine.processes = processes
    return engine


def vllm_program() -> str:
    """The `vllm` of this very environment, which need not be activated; else the first there is."""
    beside = Path(sys.executable).with_name("vllm")
    found = str(beside) if beside.is_file() else shutil.which("vllm")
    if found is None:
        raise ConfigError("there is no command `vllm`: install crt-train[vllm]")
    return found


def level_words(level: Level, file: Path) -> Words:
    """How a level's tokens are read; other weights than those that were measured are refused."""
    where = model_of(level, file)
    found = model_files(where, revision=level.revision)
    check_weights(level, found.hash, where, file)
    tokenizer = found.tokenizer._tokenizer  # pyright: ignore[reportAttributeAccessIssue]
    return Words(tokenizer, frozenset(found.ends))


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
