"""The proxy: OpenAI's routes with a dial for the level, health, metrics, limits, the playground."""

import asyncio
import hmac
import json
import logging
import shlex
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from crt.config import GradingConfig
from crt.errors import ConfigError
from crt.grading.grader import Grader, make_grader
from crt.levels.answers import WordRestorer
from crt.levels.family import Family, Level, family_file, read_family
from crt.levels.requests import (
    ApiError,
    Call,
    Chunks,
    Dial,
    Kind,
    Strict,
    apply_measured_prompt,
    choose_level,
    internal_error,
    model_ids,
    parse_body,
    validated,
)
from crt.pocket import is_world, read_question
from crt.processes import at_signal
from crt.sampling.models import Dtype

log = logging.getLogger("crt.levels")
KEY_VARIABLE = "CRT_API_KEY"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
UPSTREAM_REQUESTS = 256  # under way at once behind the proxy, besides the queue
MOST_CONNECTIONS = 1024
CLIENT_GONE = 499  # as nginx writes it
BODY_SECONDS = 30.0  # for a client to send its body
SEND_SECONDS = 60.0  # for a client to take a piece of its stream
GRADES_AT_ONCE = 8
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)  # seconds
RECORD = "crt.record"  # where a request's RequestRecord is in its ASGI scope
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
PLAYGROUND = {
    "/": ("index.html", "text/html"),
    "/playground/style.css": ("style.css", "text/css"),
    "/playground/app.js": ("app.js", "text/javascript"),
    "/playground/icon.svg": ("icon.svg", "image/svg+xml"),
}


class ServeOptions(BaseModel):
    """Where the server listens, who is let in, the limits, and what answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, lt=2**16)] = 8000
    api_key: Annotated[str, Field(min_length=16)] | None = None
    default: str | None = None  # level of requests that choose none
    measured_prompt: bool = True
    slots: Annotated[int, Field(ge=1)] = 64  # responses at once per level, if their caches fit
    queue: Annotated[int, Field(ge=0)] = 128  # responses that may wait per level
    context: Annotated[int, Field(ge=2)] | None = None  # tokens; None for the model's own
    time_limit: Annotated[float, Field(gt=0)] = 300.0  # seconds per request
    body_kb: Annotated[int, Field(ge=1)] = 1024
    drain: int = 30  # seconds for streams at the end
    engine: Literal["auto", "local", "vllm"] = "auto"
    dtype: Dtype = "auto"
    vllm_args: str = ""
    upstream: tuple[str, ...] = ()
    upstream_model: tuple[str, ...] = ()
    upstream_key_from: str | None = None

    @model_validator(mode="after")
    def _reachable_with_a_key(self) -> "ServeOptions":
        if not self.loopback and self.api_key is None:
            raise ValueError(
                f"it can be reached by others: give a key in {KEY_VARIABLE} or --api-key, "
                "which clients send as their API key"
            )
        return self

    @property
    def loopback(self) -> bool:
        """Only this machine can reach it."""
        return self.host in LOOPBACK


def serve_options(**given: Any) -> ServeOptions:
    """The options, or one sentence about the first that cannot work."""
    try:
        return ServeOptions(**given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0] if first["loc"] else "host")
    value = "" if name == "api_key" else f" {given.get(name)}"
    message = first["msg"].removeprefix("Value error, ")
    raise ConfigError(f"--{name.replace('_', '-')}{value} cannot work: {message}.")


class Engine(Protocol):
    """What answers: one chunk that is the whole answer, or a stream that ends with the usage."""

    def answer(self, call: Call) -> Chunks: ...
    async def health(self) -> dict[str, str]: ...
    def load(self) -> dict[str, tuple[int, int]]: ...
    def lifespan(self) -> AbstractAsyncContextManager[None]: ...


class Metrics:
    def __init__(self, engine: Engine) -> None:
        self.registry = CollectorRegistry()
        own: Any = {"registry": self.registry}
        timed: Any = {**own, "buckets": BUCKETS}
        labels = ["route", "level"]
        self.requests = Counter("crt_requests", "Requests answered.", [*labels, "status"], **own)
        about = "From a request to the end of its answer."
        self.seconds = Histogram("crt_request_seconds", about, labels, **timed)
        about = "From a request to the first token of a stream."
        self.first_token = Histogram("crt_first_token_seconds", about, ["level"], **timed)
        about = "Tokens of finished answers: prompt, completion, and reasoning as part of it."
        self.tokens = Counter("crt_tokens", about, ["level", "kind"], **own)
        running = Gauge("crt_running", "Responses under way.", ["level"], **own)
        waiting = Gauge("crt_waiting", "Responses in the queue.", ["level"], **own)
        for level in engine.load():
            running.labels(level).set_function(lambda level=level: engine.load()[level][0])
            waiting.labels(level).set_function(lambda level=level: engine.load()[level][1])

    def count_tokens(self, level: str, usage: Mapping[str, Any]) -> None:
        details = usage.get("completion_tokens_details") or {}
        counts = {
            "prompt": usage.get("prompt_tokens"),
            "completion": usage.get("completion_tokens"),
            "reasoning": details.get("reasoning_tokens"),
        }
        for kind, count in counts.items():
            self.tokens.labels(level, kind).inc(count or 0)

    def text(self) -> bytes:
        return generate_latest(self.registry)


@dataclass
class RequestRecord:
    """What is counted of a request when it has ended."""

    kind: Kind
    level: str = ""
    status: int = 500
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


class Service:
    """A family, the engine that answers for it, and the options for clients."""

    def __init__(
        self, family: Family, engine: Engine, options: ServeOptions, default: Level | None = None
    ) -> None:
        self.family, self.engine, self.options = family, engine, options
        self.default = default or family.default
        model = family.levels[-1].model
        self.world = model if is_world(model) else None  # which knows one kind of question
        self.metrics = Metrics(engine)
        self.started = int(time.time())


def make_app(service: Service) -> FastAPI:
    """The application; it closes its engine when it ends."""
    grader = make_grader(GradingConfig(), workers=1)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.engine.lifespan():
            yield
        grader.close()

    async def require_key(request: Request) -> None:
        key = service.options.api_key
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if key is not None and not hmac.compare_digest(given.encode(), key.encode()):
            message = "The API key is missing or wrong: Authorization: Bearer KEY."
            raise ApiError(401, message, code="invalid_api_key")

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, service=service)
    app.add_exception_handler(HTTPException, _error_response)
    app.add_exception_handler(Exception, _error_response)
    with_key = APIRouter(dependencies=[Depends(require_key)])
    _add_completions(with_key, service)
    _add_models(with_key, service)
    _add_playground(with_key, service, grader)
    app.include_router(with_key)
    _add_open_pages(app, service)
    return app


async def _error_response(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, ApiError):
        routing = isinstance(error, HTTPException)
        error = ApiError(error.status_code, f"{error.detail}.") if routing else internal_error()
    return JSONResponse({"error": error.error}, error.status_code, headers=error.headers)


# ---- completions


def _add_completions(router: APIRouter, service: Service) -> None:
    async def answer(kind: Kind, request: Request) -> Response:
        record = request.scope[RECORD] = RequestRecord(kind)
        body = parse_body(await read_body(request, 1024 * service.options.body_kb))
        call = prepare_call(service, kind, body)
        record.level = call.level.name
        chunks = relay(service, call, record)
        first = await unless_disconnected(anext(chunks, {}), request.receive)
        headers = {"X-CRT-Level": call.level.name}
        if first is None:
            return Response(status_code=CLIENT_GONE)  # nobody reads it
        if call.stream:
            return EventStream(_events(first, chunks), headers=headers)
        await anext(chunks, None)  # its end
        return JSONResponse(first, headers=headers)

    @router.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        return await answer("chat", request)

    @router.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await answer("text", request)


def prepare_call(service: Service, kind: Kind, body: dict[str, Any]) -> Call:
    """The request as the engine gets it.

    Temperature and top-p are those of the measurement, unless the client gives others.
    """
    family, dial = service.family, validated(Dial, body)
    level, chosen_by = choose_level(family, dial, service.default)
    model = f"{family.name}:{level.name}"
    fields = {name: value for name, value in body.items() if name not in Dial.model_fields}
    for name in ("temperature", "top_p"):
        if fields.get(name) is None:
            fields[name] = getattr(family.measured, name)
    wrapped, restore = None, None
    if kind == "chat":
        settings, wanted = family.prompt_for(level), dial.measured_prompt
        if service.options.measured_prompt if wanted is None else wanted:
            read = partial(read_question, service.world)
            wrapped = apply_measured_prompt(fields, settings, read, explicit=bool(wanted))
        if wrapped is not None:
            fields, reading = wrapped
            restore = reading.restore if reading.meant else None
        if settings.enable_thinking is not None:
            thinking = {"enable_thinking": settings.enable_thinking}
            fields.setdefault("chat_template_kwargs", thinking)
    about = {"level": level.name, "chosen_by": chosen_by, "measured_prompt": wrapped is not None}
    return Call(kind, level, model, {"model": model, **fields}, about, restore)


async def relay(service: Service, call: Call, record: RequestRecord) -> Chunks:
    """The engine's chunks under the family's name, counted, within the time limit."""
    options, limit = call.body.get("stream_options"), service.options.time_limit
    hides_usage = call.stream and not (isinstance(options, dict) and options.get("include_usage"))
    deadline = asyncio.get_running_loop().time() + limit
    level, own, usage = call.level.name, {"model": call.model, "crt": call.about}, {}
    first_token = service.metrics.first_token.labels(level) if call.stream else None
    restorer = WordRestorer(call.restore) if call.restore else None
    record.status = CLIENT_GONE
    try:
        async with aclosing(service.engine.answer(call)) as chunks:
            while True:
                async with asyncio.timeout_at(deadline):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    break
                chunk = restorer.read(chunk) if restorer else chunk
                usage = chunk.get("usage") or usage
                if first_token and any(map(_has_text, chunk.get("choices") or [])):
                    first_token.observe(record.seconds)
                    first_token = None
                if hides_usage:
                    chunk = {name: chunk[name] for name in chunk if name != "usage"}
                if not hides_usage or chunk.get("choices"):
                    yield {**chunk, **own}
                    own.pop("crt", None)  # once is enough
        record.status = 200
    except TimeoutError:
        record.status = 504
        message = f"The answer was not finished within {limit:g} seconds. Ask for fewer tokens"
        message += " (max_completion_tokens) or a shorter level."
        raise ApiError(504, message, code="time_limit") from None
    except Exception as error:
        record.status = error.status_code if isinstance(error, ApiError) else 500
        raise
    finally:
        service.metrics.count_tokens(level, usage)


def _has_text(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return bool(delta.get("content") or delta.get("reasoning_content") or choice.get("text"))


async def _events(first: dict[str, Any], chunks: Chunks) -> AsyncGenerator[bytes, None]:
    """Chunks as server-sent events; what goes wrong on the way is the last of them."""
    try:
        async with aclosing(chunks):
            if first:
                yield _event(first)
            async for chunk in chunks:
                yield _event(chunk)
        yield b"data: [DONE]\n\n"
    except ApiError as error:
        yield _event({"error": error.error})
    except Exception:  # the headers are sent: all that can be done is to say so
        log.exception("a stream failed")
        yield _event({"error": internal_error().error})


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False, allow_nan=False)}\n\n".encode()


# ---- models, health, metrics, the playground


def _add_models(router: APIRouter, service: Service) -> None:
    levels = [service.default, *service.family.levels]
    models = {
        name: {
            "id": name,
            "object": "model",
            "created": service.started,
            "owned_by": "crt",
            "crt": level_json(service.family, level),
        }
        for name, level in zip(model_ids(service.family), levels, strict=True)
    }

    @router.get("/v1/models")
    async def list_models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": list(models.values())})

    @router.get("/v1/models/{name}")
    async def one_model(name: str) -> JSONResponse:
        model = f"{service.family.name}:{name}" if service.family.level(name) else name
        if model not in models:
            message = f"There is no model {name[:80]!r}."
            raise ApiError(404, message, param="model", code="model_not_found")
        return JSONResponse(models[model])

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def level_json(family: Family, level: Level) -> dict[str, Any]:
    """What was measured of a level; no path is in it."""
    return {
        "level": level.name,
        "accuracy": level.acc.model_dump(),  # in %
        "mean_tokens": level.len.model_dump(),
        "tokens_saved": 100 * (1 - level.len.value / family.levels[-1].len.value),  # in %
        "pareto": level.pareto,
        "certified": level.certified,
        "certificate": level.certificate and level.certificate.model_dump(),
    }


class GradeRequest(Strict):
    text: str = Field(max_length=200_000)
    answer: str = Field(min_length=1, max_length=1000)
    question: str = Field(default="", max_length=20_000)


def _add_playground(router: APIRouter, service: Service, grader: Grader) -> None:
    family, grading = service.family, asyncio.Semaphore(GRADES_AT_ONCE)
    about = family.model_dump(include={"name", "tolerance", "candidates", "measured", "examples"})
    about |= {
        "pocket": service.world is not None,
        "default": service.default.name,
        "levels": [level_json(family, level) for level in family.levels],
    }

    @router.get("/playground/family")
    async def describe_family() -> JSONResponse:
        return JSONResponse(about)

    @router.post("/playground/grade")
    async def grade(request: Request) -> JSONResponse:
        body = parse_body(await read_body(request, 1024 * service.options.body_kb))
        given = validated(GradeRequest, body)
        if grading.locked():
            raise ApiError(429, "Too many answers are being graded.", retry_after=1)
        async with grading:
            grade = await grader.grade_async(given.text, given.answer, question=given.question)
        verdict = {"verdict": grade.verdict.value, "extracted": grade.extracted}
        return JSONResponse({**verdict, "reason": grade.reason})


def _add_open_pages(app: FastAPI, service: Service) -> None:
    """Health, and the page, for who reaches the server; the rest needs the key, if there is one."""

    @app.get("/health")
    @app.get("/healthz")
    async def health() -> JSONResponse:
        levels = await service.engine.health()
        ok = all(state == "ok" for state in levels.values())
        status = {"status": "ok" if ok else "failed", "levels": levels}
        return JSONResponse(status, 200 if ok else 503)

    for path, (name, media_type) in PLAYGROUND.items():
        content = (files("crt") / "assets" / "playground" / name).read_bytes()
        headers = {"cache-control": "no-cache"}
        page = Response(content, media_type=media_type, headers=headers)
        app.add_route(path, lambda _, page=page: page)


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
        for pending in (task, leaving):
            pending.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(task, leaving, return_exceptions=True)


class EventStream(StreamingResponse):
    """Server-sent events; when the client leaves, their source is closed at once."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], headers: dict[str, str]) -> None:
        self.events = events
        headers = {**headers, "cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(events, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the end, or until the client leaves or takes nothing more."""

        async def send_in_time(message: AsgiMessage) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)

        async with aclosing(self.events):
            await unless_disconnected(self.stream_response(send_in_time), receive)


class Guard:
    """Refuses foreign host names on a loopback server, sets the headers of every answer, counts.

    A name that resolves to this machine does not make a foreign page its own.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = 500

        async def send_with_headers(message: AsgiMessage) -> None:
            nonlocal sent
            if message["type"] == "http.response.start":
                sent = message["status"]
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        app = self.app
        if self.service.options.loopback and _host(scope) not in LOOPBACK:
            app = await _error_response(
                Request(scope), ApiError(421, "This server answers to localhost only.")
            )
        try:
            await app(scope, receive, send_with_headers)
        finally:
            if record := scope.get(RECORD):
                status = record.status if sent == 200 else sent
                metrics = self.service.metrics
                metrics.requests.labels(record.kind, record.level, str(status)).inc()
                metrics.seconds.labels(record.kind, record.level).observe(record.seconds)


def _host(scope: Scope) -> str:
    host = Headers(scope=scope).get("host", "").strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


# ---- from a family.json to a running server, and how it ends


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
    from crt.levels.upstream import choose_engine, find_upstream, start_vllm

    most = options.queue + UPSTREAM_REQUESTS
    if options.upstream:
        names, key = options.upstream_model, options.upstream_key_from
        return find_upstream(family, options.upstream, names, key, most)
    if choose_engine(options.engine) == "vllm":
        try:
            extra = shlex.split(options.vllm_args)
        except ValueError as error:
            text = options.vllm_args
            raise ConfigError(f"--vllm-args {text!r} cannot be read: {error}") from None
        return start_vllm(family, file, extra, most, note)
    from crt.levels.local import load_local_engine

    limits: Any = {name: getattr(options, name) for name in ("slots", "queue", "context", "dtype")}
    return load_local_engine(family, file, note=note, **limits)


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
