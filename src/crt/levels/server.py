"""`crt serve`: from a family.json to a running server, who may reach it, and how it ends."""

import os
import shlex
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from crt.errors import ConfigError
from crt.levels.family import Family, Level, family_file, read_family
from crt.levels.proxy import LOOPBACK, Engine, Service, make_app
from crt.levels.vllm import choose_engine
from crt.processes import at_signal

if TYPE_CHECKING:
    from fastapi import FastAPI

    from crt.levels.vllm import ServerProcesses
    from crt.sampling.models import Dtype

KEY_VARIABLE = "CRT_API_KEY"
SHORTEST_KEY = 16
MOST_CONNECTIONS = 1024
UPSTREAM_REQUESTS = 256  # under way at once behind the proxy, besides the queue


@dataclass(frozen=True)
class Address:
    """Where the server listens, who is let in, and how long it waits for streams at its end."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    drain_seconds: int = 30

    def __post_init__(self) -> None:
        if not 0 <= self.port < 2**16:
            raise ConfigError(f"--port {self.port}: from 0 (any free one) to 65535")
        if not self.loopback and self.api_key is None:
            raise ConfigError(
                f"--host {self.host} can be reached by others: give a key in {KEY_VARIABLE} or "
                "--api-key, which clients send as their API key."
            )
        if self.api_key is not None and len(self.api_key) < SHORTEST_KEY:
            raise ConfigError(f"the API key is shorter than {SHORTEST_KEY} characters")

    @property
    def loopback(self) -> bool:
        """Only this machine can reach it."""
        return self.host in LOOPBACK


@dataclass(frozen=True)
class ServeOptions:
    """What `crt serve` was asked for."""

    address: Address
    default: str | None = None
    measured_prompt: bool = True
    time_limit: float = 300.0
    body_kb: int = 1024
    engine: str = "auto"  # auto, local or vllm
    dtype: "Dtype" = "auto"
    slots: int = 64
    queue: int = 128
    context: int | None = None
    vllm_args: str = ""
    upstream: Sequence[str] = ()
    upstream_model: Sequence[str] = ()
    upstream_key_from: str | None = None

    def __post_init__(self) -> None:
        if self.time_limit <= 0 or self.body_kb < 1:
            raise ConfigError(
                f"--time-limit {self.time_limit:g} and --body-kb {self.body_kb} cannot work: "
                "above 0 and at least 1."
            )


def serve(
    place: Path,
    options: ServeOptions,
    ready: Callable[[str, Family, Level], None],
    note: Callable[[str], None],
) -> int:
    """Loads, listens, and serves until it is told to stop; 0, or 143 if that is while it loads."""
    file = family_file(place).absolute()
    family = read_family(file)
    default = family.default
    if options.default is not None:
        default = family.require_level(options.default, "--default")
    bind(options.address).close()  # a taken port is said before minutes of loading
    with at_signal(_end_while_loading, signal.SIGTERM):
        engine, servers = start_engine(family, file, options, note)
        service = Service(
            family,
            engine,
            default,
            servers=servers,
            measured_prompt=options.measured_prompt,
            api_key=options.address.api_key,
            loopback_only=options.address.loopback,
            body_bytes=options.body_kb * 1024,
            time_limit=options.time_limit,
        )
        return run_server(
            make_app(service), options.address, lambda url: ready(url, family, default)
        )


def start_engine(
    family: Family, file: Path, options: ServeOptions, note: Callable[[str], None]
) -> "tuple[Engine, ServerProcesses | None]":
    """Servers that are there, vLLM, or the models in this process."""
    from crt.levels.upstream import UpstreamSettings, find_upstream

    places = options.queue + UPSTREAM_REQUESTS
    settings = UpstreamSettings(places, options.upstream_key_from)
    if options.upstream:
        return find_upstream(family, options.upstream, options.upstream_model, settings), None
    if choose_engine(options.engine) == "vllm":
        from crt.levels.vllm import start_vllm

        return start_vllm(family, file, _split_arguments(options.vllm_args), settings, note)
    from crt.levels.local import LocalSettings, load_local_engine

    local = LocalSettings(options.slots, options.queue, options.context, options.dtype)
    return load_local_engine(family, file, local, note), None


def api_key(given: str | None) -> str | None:
    """The key given, or that of the environment."""
    return given or os.environ.get(KEY_VARIABLE) or None


def bind(address: Address) -> socket.socket:
    """The bound socket, so that a taken port is one sentence and port 0 becomes a number."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((address.host, address.port))
        bound.listen()  # who comes before the server is up waits and is not turned away
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"{address.host}:{address.port} cannot be used: {error.strerror}. Give another --port."
        ) from None
    return bound


def make_server(app: "FastAPI", address: Address) -> uvicorn.Server:
    """Stops at SIGTERM or Ctrl-C: takes nobody in, finishes what is under way, then ends."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            timeout_graceful_shutdown=address.drain_seconds,
            timeout_keep_alive=15,
            limit_concurrency=MOST_CONNECTIONS,
            server_header=False,
            access_log=False,
            log_level="warning",
        )
    )


def run_server(app: "FastAPI", address: Address, ready: Callable[[str], None]) -> int:
    """Serves until it is told to stop: 0 when all was finished, 130 when Ctrl-C came again."""
    server = make_server(app, address)

    def end(*_: Any) -> None:
        server.should_exit = True

    with bind(address) as bound, at_signal(end, signal.SIGTERM, signal.SIGINT):
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{port}")
        server.run(sockets=[bound])  # it raises its signal again, which is `end`, not our death
    return 130 if server.force_exit else 0


def _split_arguments(text: str) -> list[str]:
    """Options as a shell would split them."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--vllm-args {text!r} cannot be read: {error}") from None


def _end_while_loading(*_: Any) -> None:
    """SIGTERM before anything is served: what was started ends, then this process."""
    raise SystemExit(128 + signal.SIGTERM)
