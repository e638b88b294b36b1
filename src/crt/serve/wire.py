"""The edge to the network: bodies of bounded size, streams that end with their client, headers."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crt.serve.faults import ApiError, broken
from crt.serve.forms import Chunks

log = logging.getLogger("crt.serve")
BODY_SECONDS = 30.0  # for a client to send its body
SEND_SECONDS = 60.0  # for a client to take a piece of its stream
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
Result = TypeVar("Result")


async def read_body(request: Request, limit: int) -> bytes:
    """The JSON body; too large, too slow, or of another kind is refused before it is read."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "Send JSON, with the header Content-Type: application/json.")
    told = request.headers.get("content-length", "0")
    if not told.isdigit() or int(told) > limit:
        raise _too_large(limit)
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                found += piece
                if len(found) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        raise ApiError(408, f"The body did not arrive within {BODY_SECONDS:g} seconds.") from None
    return bytes(found)


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"The body is larger than {limit} bytes.", code="body_too_large")


async def unless_gone(work: Awaitable[Result], receive: Receive) -> Result | None:
    """What the work gives, or None if the client goes away first; then the work is cancelled."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, gone):
            each.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events; when the client goes away their source is closed at once."""

    media_type = "text/event-stream"

    def __init__(self, chunks: Chunks, headers: dict[str, str]) -> None:
        super().__init__(
            headers={**headers, "cache-control": "no-cache", "x-accel-buffering": "no"}
        )
        del self.headers["content-length"]
        self.chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the end, or until nobody listens."""
        await unless_gone(self._send(send), receive)

    async def _send(self, send: Send) -> None:
        start: Message = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        async with aclosing(events(self.chunks)) as told:
            async for event in told:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def events(chunks: Chunks) -> AsyncGenerator[bytes, None]:
    """Chunks as events; what goes wrong on the way is the last of them."""
    try:
        async with aclosing(chunks) as told:
            async for chunk in told:
                yield event(chunk)
        yield b"data: [DONE]\n\n"
    except ApiError as error:
        yield event(error.body())
    except Exception:  # the headers are sent: all that can be done is to say so
        log.exception("a stream failed")
        yield event(broken().body())


def event(value: dict[str, Any]) -> bytes:
    """One event."""
    return f"data: {json.dumps(value, ensure_ascii=False, allow_nan=False)}\n\n".encode()


class Guard:
    """Refuses other sites' pages on a loopback server, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, loopback_only: bool) -> None:
        self.app, self.loopback_only = app, loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A name that resolves to this machine does not make a foreign page its own."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        if self.loopback_only and _host(scope) not in LOOPBACK:
            refused = Response(
                json.dumps(ApiError(421, "This server answers to localhost only.").body()),
                421,
                media_type="application/json",
            )
            await refused(scope, receive, guarded)
            return
        await self.app(scope, receive, guarded)


def _host(scope: Scope) -> str:
    told = next((value for name, value in scope["headers"] if name == b"host"), b"")
    host = told.decode("latin-1").strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
