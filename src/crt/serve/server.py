"""From a family to a running server: who may reach it, and how it starts and ends."""

import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn

from crt.errors import ConfigError
from crt.processes import at_signal

if TYPE_CHECKING:
    from fastapi import FastAPI

LOOPBACK = ("127.0.0.1", "localhost", "::1")
KEY_VARIABLE = "CRT_API_KEY"
SHORTEST_KEY = 16
MOST_CONNECTIONS = 1024


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


def key_from(given: str | None) -> str | None:
    """The key given, or that of the environment."""
    return given or os.environ.get(KEY_VARIABLE) or None


def listening(address: Address) -> socket.socket:
    """The bound socket, so that a taken port is one sentence and port 0 becomes a number."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((address.host, address.port))
        found.listen()  # who comes before the server is up waits and is not turned away
    except OSError as error:
        found.close()
        raise ConfigError(
            f"{address.host}:{address.port} cannot be used: {error.strerror}. Give another --port."
        ) from None
    return found


def server_for(app: "FastAPI", address: Address) -> uvicorn.Server:
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


def run(app: "FastAPI", address: Address, ready: Callable[[str], None]) -> int:
    """Serves until it is told to stop: 0 when all was finished, 130 when Ctrl-C came again."""
    server = server_for(app, address)

    def end(*_: Any) -> None:
        server.should_exit = True

    with listening(address) as bound, at_signal(end, signal.SIGTERM, signal.SIGINT):
        host, port = bound.getsockname()[:2]
        named = f"[{host}]" if ":" in host else host
        ready(f"http://{named}:{port}")
        server.run(sockets=[bound])  # it raises again what ended it: `end`, not the process's death
    return 130 if server.force_exit else 0


def end_while_loading(*_: Any) -> None:
    """SIGTERM before anything is served: what was started ends, then this process."""
    raise SystemExit(128 + signal.SIGTERM)
