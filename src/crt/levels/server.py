"""`crt serve`: from a family.json to a running server, and how it ends."""

import shlex
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from crt.errors import ConfigError
from crt.levels.family import Family, Level, family_file, read_family
from crt.levels.options import ServeOptions
from crt.levels.proxy import Engine, Service, make_app
from crt.processes import at_signal

MOST_CONNECTIONS = 1024


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
    bind(options).close()  # a taken port is said before minutes of loading
    with at_signal(lambda *_: sys.exit(128 + signal.SIGTERM), signal.SIGTERM):  # while it loads
        service = Service(family, start_engine(family, file, options, note), options, default)
        return run_server(make_app(service), options, lambda url: ready(url, family, default))


def start_engine(
    family: Family, file: Path, options: ServeOptions, note: Callable[[str], None]
) -> Engine:
    """Servers that are there, vLLM, or the models in this process."""
    if options.upstream:
        from crt.levels.upstream import find_upstream

        return find_upstream(family, options)
    from crt.levels.vllm import choose_engine, start_vllm

    if choose_engine(options.engine) == "vllm":
        try:
            extra = shlex.split(options.vllm_args)
        except ValueError as error:
            text = options.vllm_args
            raise ConfigError(f"--vllm-args {text!r} cannot be read: {error}") from None
        return start_vllm(family, file, extra, options.upstream_requests, note)
    from crt.levels.local import load_local_engine

    return load_local_engine(family, file, options, note)


def bind(options: ServeOptions) -> socket.socket:
    """The bound socket, so that a taken port is one sentence and port 0 becomes a number."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((options.host, options.port))
        bound.listen()  # who comes before the server is up waits and is not turned away
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"{options.host}:{options.port} cannot be used: {error.strerror}. Give another --port."
        ) from None
    return bound


def make_server(app: FastAPI, options: ServeOptions) -> uvicorn.Server:
    """Stops at SIGTERM or Ctrl-C: takes nobody in, finishes what is under way, then ends."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            timeout_graceful_shutdown=options.drain,
            timeout_keep_alive=15,
            limit_concurrency=MOST_CONNECTIONS,
            server_header=False,
            access_log=False,
            log_level="warning",
        )
    )


def run_server(app: FastAPI, options: ServeOptions, ready: Callable[[str], None]) -> int:
    """Serves until it is told to stop: 0 when all was finished, 130 when Ctrl-C came again."""
    server = make_server(app, options)

    def end(*_: Any) -> None:
        server.should_exit = True

    with bind(options) as bound, at_signal(end, signal.SIGTERM, signal.SIGINT):
        host, port = bound.getsockname()[:2]
        ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        server.run(sockets=[bound])  # it raises its signal again, which is `end`, not our death
    return 130 if server.force_exit else 0
