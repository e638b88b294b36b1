"""One JSON request at a time over HTTP: a deadline, a size limit, and what may be tried again."""

import contextlib
import http.client
import json
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from crt.errors import ConfigError

MOST_BYTES = 64 * 2**20
AGAIN = {408, 409, 425, 429}  # and every 5xx: the same request may succeed later


class Refused(Exception):
    """The server does not want this request, and would not want it later."""


class TryAgain(Exception):
    """This time it did not work; `after` is how long the server asks to wait, in seconds."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


@dataclass(frozen=True)
class Address:
    """Where an OpenAI-compatible server listens: scheme, host, port and the path of its API."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """As it was given, without anything secret."""
        return f"{'https' if self.secure else 'http'}://{self.host}:{self.port}{self.path}"


def address(url: str) -> Address:
    """The parts of `http://host:port/v1`; a path is added where there is none."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise ConfigError(f"{url!r} is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is not an address: write it as http://host:port/v1")
    if parts.username or parts.password or parts.query:
        raise ConfigError("an endpoint's address has no key in it: name a variable, --key-from")
    path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
    return Address(parts.scheme == "https", parts.hostname, port, path)


@dataclass(frozen=True)
class Client:
    """Sends JSON, receives JSON; `stop` ends what is under way in other threads."""

    address: Address
    key: str | None
    timeout: float
    _stopped: threading.Event = field(default_factory=threading.Event)
    _open: set[http.client.HTTPConnection] = field(default_factory=set)

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON; Refused or TryAgain where there is none."""
        connection = self._connection()
        self._open.add(connection)
        try:
            if self._stopped.is_set():
                raise TryAgain("stopped")
            return self._exchange(connection, method, f"{self.address.path}{path}", body)
        except (OSError, http.client.HTTPException) as error:
            raise TryAgain(f"{type(error).__name__}: {error}".rstrip(": ")) from None
        finally:
            self._open.discard(connection)
            connection.close()

    def wait(self, seconds: float) -> bool:
        """Sleeps, unless stopped; whether to go on."""
        return not self._stopped.wait(seconds)

    def stop(self) -> None:
        """Nothing new is sent, and what waits for an answer stops waiting."""
        self._stopped.set()
        for connection in list(self._open):
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self.address.secure else http.client.HTTPConnection
        return kind(self.address.host, self.address.port, timeout=self.timeout)

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any
    ) -> Any:
        end = time.monotonic() + self.timeout
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        content = _content(response, end)
        if response.status == 200:
            return _json(content)
        reason = f"HTTP {response.status}: {_told(content)}"
        if response.status in AGAIN or response.status >= 500:
            raise TryAgain(reason, _seconds(response.getheader("Retry-After")))
        raise Refused(reason)


def _content(response: http.client.HTTPResponse, end: float) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(1 << 16):
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise TryAgain(f"the answer is larger than {MOST_BYTES} bytes")
        if time.monotonic() > end:  # a server that sends a byte now and then
            raise TryAgain("time-out in the middle of the answer")
    return b"".join(pieces)


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise TryAgain(f"the answer is not JSON, or only half of it: {_told(content)}") from None


def _told(content: bytes) -> str:
    """The beginning of what a server says, on one line and printable."""
    text = content[:200].decode("utf-8", errors="replace")
    return "".join(c if c.isprintable() else " " for c in text).strip() or "nothing"


def _seconds(header: str | None) -> float:
    try:
        return max(0.0, float(header or 0))
    except ValueError:  # a date: the usual waiting time does
        return 0.0
