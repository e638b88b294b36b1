"""The proxy: OpenAI's routes with a dial for the level, health, metrics, limits, the playground."""

import asyncio
import hmac
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from crt.config import GradingConfig
from crt.grading.grader import Grader
from crt.levels.errors import ApiError, internal_error, time_limit
from crt.levels.family import Family, Level
from crt.levels.metrics import Metrics
from crt.levels.requests import (
    Call,
    Choice,
    Chunks,
    Dial,
    Kind,
    apply_measured_prompt,
    choose_level,
    model_ids,
    parse_body,
    validated,
)

if TYPE_CHECKING:
    from crt.levels.vllm import ServerProcesses

log = logging.getLogger("crt.levels")
CLIENT_GONE = 499  # as nginx writes it
BODY_SECONDS = 30.0  # for a client to send its body
SEND_SECONDS = 60.0  # for a client to take a piece of its stream
GRADES_AT_ONCE = 8
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
PLAYGROUND = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/playground/style.css": ("style.css", "text/css; charset=utf-8"),
    "/playground/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/playground/icon.svg": ("icon.svg", "image/svg+xml"),
}


class Engine(Protocol):
    """What answers: a whole answer, or chunks of which the last one has the usage."""

    async def answer(self, call: Call) -> dict[str, Any] | Chunks: ...
    async def health(self) -> dict[str, str]: ...
    def load(self) -> dict[str, tuple[int, int]]: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class Service:
    """A family, the engine that answers for it, and the limits for clients."""

    family: Family
    engine: Engine
    default: Level
    metrics: Metrics = field(default_factory=Metrics)
    servers: "ServerProcesses | None" = None  # behind the engine, to watch and to end
    measured_prompt: bool = True
    api_key: str | None = None
    loopback_only: bool = True
    body_bytes: int = 2**20
    time_limit: float = 300.0
    started: int = field(default_factory=lambda: int(time.time()))


def make_app(service: Service) -> FastAPI:
    """The application; it closes its engine when it ends."""
    settings = GradingConfig()
    grader = Grader(1, settings.deadline_seconds, settings.memory_mb)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for level in service.engine.load():
            service.metrics.watch_load(level, lambda level=level: service.engine.load()[level])
        watching = asyncio.create_task(service.servers.watch()) if service.servers else None
        yield
        if watching:
            watching.cancel()
        await service.engine.close()
        if service.servers:
            await asyncio.to_thread(service.servers.stop)
        grader.close()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, loopback_only=service.loopback_only)
    _add_error_handlers(app)
    allowed = [Depends(_key_check(service.api_key))]
    _add_completions(app, service, allowed)
    _add_models(app, service, allowed)
    _add_monitoring(app, service, allowed)
    _add_playground(app, service, grader, allowed)
    return app


def _add_completions(app: FastAPI, service: Service, allowed: list[Any]) -> None:
    async def answer(kind: Kind, request: Request) -> Response:
        with Outcome(service.metrics, kind) as outcome:
            body = parse_body(await read_body(request, service.body_bytes))
            dial = validated(Dial, body)
            choice = choose_level(service.family, dial, service.default)
            outcome.level = choice.level.name
            call, extra = prepare_call(service, kind, choice, dial, body)
            deadline = asyncio.get_running_loop().time() + service.time_limit
            work = _begin(service, call, deadline)
            answered = await unless_disconnected(work, request.receive)
            headers = {"X-CRT-Level": call.level.name}
            if answered is None:
                outcome.status = CLIENT_GONE
                return Response(status_code=CLIENT_GONE)  # nobody reads it
            if isinstance(answered, dict):
                service.metrics.count_tokens(call.level.name, answered.get("usage") or {})
                return JSONResponse({**answered, **extra}, headers=headers)
            first, rest = answered
            outcome.streaming = True
            chunks = _relay(service, call, extra, deadline, first, rest, outcome)
            return EventStream(chunks, headers)

    @app.post("/v1/chat/completions", dependencies=allowed)
    async def chat_completions(request: Request) -> Response:
        return await answer("chat", request)

    @app.post("/v1/completions", dependencies=allowed)
    async def completions(request: Request) -> Response:
        return await answer("text", request)


def prepare_call(
    service: Service, kind: Kind, choice: Choice, dial: Dial, body: dict[str, Any]
) -> tuple[Call, dict[str, Any]]:
    """The request as the engine gets it, and the fields that the proxy adds to the answer.

    Temperature and top-p are those of the measurement, unless the client gives others.
    """
    family, level = service.family, choice.level
    own = Dial.model_fields.keys()
    engine_body = {name: value for name, value in body.items() if name not in own}
    for name in ("temperature", "top_p"):
        if body.get(name) is None:
            engine_body[name] = getattr(family.measured, name)
    measured_prompt = False
    if kind == "chat":
        wanted = service.measured_prompt if dial.measured_prompt is None else dial.measured_prompt
        settings, explicit = family.prompt_for(level), bool(dial.measured_prompt)
        wrapped = apply_measured_prompt(engine_body, settings, explicit) if wanted else None
        measured_prompt, engine_body = wrapped is not None, wrapped or engine_body
        if settings.enable_thinking is not None:
            thinking = {"enable_thinking": settings.enable_thinking}
            engine_body.setdefault("chat_template_kwargs", thinking)
    model = f"{family.name}:{level.name}"
    about = {"level": level.name, "chosen_by": choice.chosen_by}
    extra = {"model": model, "crt": {**about, "measured_prompt": measured_prompt}}
    return Call(kind, level, model, {"model": model, **engine_body}), extra


async def _begin(
    service: Service, call: Call, deadline: float
) -> "dict[str, Any] | tuple[dict[str, Any], Chunks]":
    """The whole answer, or the first chunk and the others: an error must precede the headers."""
    try:
        async with asyncio.timeout_at(deadline):
            answer = await service.engine.answer(call)
            if isinstance(answer, dict):
                return answer
            return await anext(answer, {}), answer
    except TimeoutError:
        raise time_limit(service.time_limit) from None


async def _relay(
    service: Service,
    call: Call,
    extra: dict[str, Any],
    deadline: float,
    first: dict[str, Any],
    rest: Chunks,
    outcome: "Outcome",
) -> Chunks:
    """The engine's chunks under the family's name, counted, within the time limit."""
    options = call.body.get("stream_options")
    wants_usage = isinstance(options, dict) and bool(options.get("include_usage"))
    own, metrics, level = {"model": extra["model"]}, service.metrics, call.level.name
    outcome.status = CLIENT_GONE
    begun, usage = False, {}
    try:
        async with aclosing(rest):
            chunk = {**first, "crt": extra["crt"]}
            while chunk:
                if not begun and any(_has_text(choice) for choice in chunk.get("choices") or []):
                    begun = True
                    metrics.first_token.labels(level).observe(outcome.seconds)
                usage = chunk.get("usage") or usage
                if wants_usage:
                    yield {**chunk, **own}
                elif chunk.get("choices"):
                    yield {**{name: chunk[name] for name in chunk if name != "usage"}, **own}
                async with asyncio.timeout_at(deadline):
                    chunk = await anext(rest, {})
        outcome.status = 200
    except TimeoutError:
        outcome.status = 504
        raise time_limit(service.time_limit) from None
    except ApiError as error:
        outcome.status = error.status
        raise
    finally:
        metrics.count_tokens(level, usage)
        outcome.record()


def _has_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return bool(delta.get("content") or delta.get("reasoning_content") or choice.get("text"))


@dataclass
class Outcome:
    """How a request ended and how long it took; a stream records itself when it ends."""

    metrics: Metrics
    kind: Kind
    level: str = ""
    status: int = 200
    streaming: bool = False
    begun: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the request came."""
        return time.monotonic() - self.begun

    def __enter__(self) -> "Outcome":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.status = error.status if isinstance(error, ApiError) else 500
        if not self.streaming:
            self.record()

    def record(self) -> None:
        """Counts it."""
        self.metrics.count_request(self.kind, self.level, self.status, self.seconds)


def _add_models(app: FastAPI, service: Service, allowed: list[Any]) -> None:
    levels = [service.default, *service.family.levels]
    models = {
        name: model_json(level, name, service.started)
        for name, level in zip(model_ids(service.family), levels, strict=True)
    }

    @app.get("/v1/models", dependencies=allowed)
    async def list_models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": list(models.values())})

    @app.get("/v1/models/{name}", dependencies=allowed)
    async def one_model(name: str) -> JSONResponse:
        if name not in models:
            message = f"There is no model {name[:80]!r}."
            raise ApiError(404, message, param="model", code="model_not_found")
        return JSONResponse(models[name])


def model_json(level: Level, name: str, created: int) -> dict[str, Any]:
    """A model as OpenAI lists it, with what was measured of its level."""
    measured = {
        "level": level.name,
        "acc": level.acc.value,
        "len": level.len.value,
        "saved": level.saved.value if level.saved else 0.0,
        "certified": level.certified,
        "certificate": level.certificate and level.certificate.model_dump(),
    }
    return {"id": name, "object": "model", "created": created, "owned_by": "crt", "crt": measured}


def _add_monitoring(app: FastAPI, service: Service, allowed: list[Any]) -> None:
    @app.get("/health")
    @app.get("/healthz")
    async def health() -> JSONResponse:
        levels = await service.engine.health()
        ok = all(state == "ok" for state in levels.values())
        return JSONResponse(
            {"status": "ok" if ok else "failed", "levels": levels}, 200 if ok else 503
        )

    @app.get("/metrics", dependencies=allowed)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


class GradeRequest(BaseModel):
    """A response and the known answer."""

    model_config = ConfigDict(strict=True, extra="forbid")
    text: str = Field(max_length=200_000)
    answer: str = Field(min_length=1, max_length=1000)
    question: str = Field(default="", max_length=20_000)


def _add_playground(app: FastAPI, service: Service, grader: Grader, allowed: list[Any]) -> None:
    """The page is open to who reaches the server; the rest needs the key, if there is one."""
    for path, (name, media_type) in PLAYGROUND.items():
        content = (files("crt") / "assets" / "playground" / name).read_bytes()
        app.add_api_route(path, _static(content, media_type), methods=["GET"])
    about = playground_json(service.family, service.default)
    grading = asyncio.Semaphore(GRADES_AT_ONCE)

    @app.get("/playground/family", dependencies=allowed)
    async def family() -> JSONResponse:
        return JSONResponse(about)

    @app.post("/playground/grade", dependencies=allowed)
    async def grade(request: Request) -> JSONResponse:
        body = parse_body(await read_body(request, service.body_bytes))
        response = validated(GradeRequest, body)
        if grading.locked():
            raise ApiError(429, "Too many answers are being graded.", retry_after=1)
        async with grading:
            grade = await grader.grade_async(
                response.text, response.answer, question=response.question
            )
        verdict = {"verdict": grade.verdict.value, "extracted": grade.extracted}
        return JSONResponse({**verdict, "reason": grade.reason})


def playground_json(family: Family, default: Level) -> dict[str, Any]:
    """What the page needs of a family; no path is in it."""
    about = {"name", "method", "tolerance", "candidates", "measured", "examples"}
    measured = {"name", "acc", "len", "certificate", "pareto"}
    full = family.levels[-1].len.value
    levels = [
        {
            **level.model_dump(include=measured),
            "model": f"{family.name}:{level.name}",
            "saved": 100 * (1 - level.len.value / full),
            "certified": level.certified,
        }
        for level in family.levels
    ]
    return {**family.model_dump(include=about), "default": default.name, "levels": levels}


def _static(content: bytes, media_type: str) -> Any:
    async def send() -> Response:
        return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})

    return send


def _key_check(key: str | None) -> Any:
    """Lets in who has the key; comparing takes the same time wherever the first error is."""

    async def check(request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if key is not None and not hmac.compare_digest(given.encode(), key.encode()):
            raise ApiError(
                401,
                "The API key is missing or wrong: Authorization: Bearer KEY.",
                kind="authentication_error",
                code="invalid_api_key",
            )

    return check


def _add_error_handlers(app: FastAPI) -> None:
    def response(error: ApiError) -> JSONResponse:
        return JSONResponse(error.body(), error.status, headers=error.headers)

    @app.exception_handler(ApiError)
    async def api_error(_: Request, error: ApiError) -> JSONResponse:
        return response(error)

    @app.exception_handler(HTTPException)
    async def routing_error(_: Request, error: HTTPException) -> JSONResponse:
        return response(ApiError(error.status_code, f"{error.detail}."))

    @app.exception_handler(Exception)
    async def unexpected_error(_: Request, error: Exception) -> JSONResponse:
        return response(internal_error())


# ---- the edge to the network


async def read_body(request: Request, limit: int) -> bytes:
    """The JSON body; too large, too slow, or of another kind is refused before it is read."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(415, "Send JSON, with the header Content-Type: application/json.")
    too_large = ApiError(413, f"The body is larger than {limit} bytes.", code="body_too_large")
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > limit:
        raise too_large
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                content += piece
                if len(content) > limit:
                    raise too_large
    except TimeoutError:
        raise ApiError(408, f"The body did not arrive within {BODY_SECONDS:g} seconds.") from None
    return bytes(content)


Result = TypeVar("Result")


async def unless_disconnected(work: Awaitable[Result], receive: Receive) -> Result | None:
    """The result of the work, or None if the client leaves first; then the work is cancelled."""

    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, leaving):
            each.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(task, leaving, return_exceptions=True)


class EventStream(Response):
    """Server-sent events; when the client leaves, their source is closed at once."""

    media_type = "text/event-stream"

    def __init__(self, chunks: Chunks, headers: dict[str, str]) -> None:
        super().__init__(
            headers={**headers, "cache-control": "no-cache", "x-accel-buffering": "no"}
        )
        del self.headers["content-length"]
        self.chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the end, or until the client leaves."""
        await unless_disconnected(self._send(send), receive)

    async def _send(self, send: Send) -> None:
        start: AsgiMessage = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        async with aclosing(_events(self.chunks)) as events:
            async for event in events:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _events(chunks: Chunks) -> AsyncGenerator[bytes, None]:
    """Chunks as events; what goes wrong on the way is the last of them."""
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                yield _event(chunk)
        yield b"data: [DONE]\n\n"
    except ApiError as error:
        yield _event(error.body())
    except Exception:  # the headers are sent: all that can be done is to say so
        log.exception("a stream failed")
        yield _event(internal_error().body())


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False, allow_nan=False)}\n\n".encode()


class Guard:
    """Refuses foreign host names on a loopback server, and sets the headers of every answer.

    A name that resolves to this machine does not make a foreign page its own.
    """

    def __init__(self, app: ASGIApp, loopback_only: bool) -> None:
        self.app, self.loopback_only = app, loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), text.encode()) for name, text in SECURITY_HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        app: ASGIApp = self.app
        if self.loopback_only and _host(scope) not in LOOPBACK:
            app = JSONResponse(ApiError(421, "This server answers to localhost only.").body(), 421)
        await app(scope, receive, send_with_headers)


def _host(scope: Scope) -> str:
    header = next((value for name, value in scope["headers"] if name == b"host"), b"")
    host = header.decode("latin-1").strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
