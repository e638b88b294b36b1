"""The server: OpenAI's routes with the dial in them, health, metrics and the playground."""

import hmac
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Depends, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from crt.serve.dial import Setting, choose_level, model_ids
from crt.serve.family import Family, Level
from crt.serve.faults import ApiError, broken
from crt.serve.forms import Answer, Chunks, Kind
from crt.serve.metrics import Metrics
from crt.serve.playground import add_playground
from crt.serve.protocol import DialOnly, checked, read_object
from crt.serve.wire import EventStream, Guard, read_body, unless_gone

log = logging.getLogger("crt.serve")
BODY_BYTES = 2**20
GONE = 499  # the client went away, as nginx writes it


class Engine(Protocol):
    """Who answers."""

    async def health(self) -> dict[str, str]: ...
    async def answer(self, kind: Kind, setting: Setting, plain: dict[str, Any]) -> Answer: ...
    def counts(self) -> dict[str, tuple[int, int]]: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class Service:
    """What is served, by whom, to whom."""

    family: Family
    engine: Engine
    metrics: Metrics
    default: Level
    api_key: str | None = None
    loopback_only: bool = True
    body_bytes: int = BODY_BYTES
    started: int = 0


def make_app(service: Service) -> FastAPI:
    """The application; it closes its engine when it ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for level in service.engine.counts():
            service.metrics.watch(level, lambda level=level: service.engine.counts()[level])
        yield
        await service.engine.close()
        grader.close()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, loopback_only=service.loopback_only)
    _add_errors(app)
    allowed = [Depends(key_check(service.api_key))]
    _add_models(app, service, allowed)
    _add_answers(app, service, allowed)
    _add_watching(app, service, allowed)
    grader = add_playground(app, service.family, service.default, service.body_bytes, allowed)
    return app


def key_check(key: str | None) -> Any:
    """Lets in who has the key; comparing takes the same time wherever the first error is."""

    async def check(request: Request) -> None:
        told = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if key is not None and not hmac.compare_digest(told.encode(), key.encode()):
            raise ApiError(
                401,
                "The API key is missing or wrong: Authorization: Bearer KEY.",
                kind="authentication_error",
                code="invalid_api_key",
            )

    return check


def model_json(family: Family, level: Level, name: str, created: int) -> dict[str, Any]:
    """A model as OpenAI lists it, with what was measured of its level."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "crt",
        "crt": {
            "level": level.name,
            "acc": level.acc.value,
            "len": level.len.value,
            "saved": level.saved.value if level.saved else 0.0,
            "certified": level.certified,
        },
    }


def _add_models(app: FastAPI, service: Service, allowed: list[Any]) -> None:
    family = service.family
    levels = [service.default, *family.levels]
    models = {
        name: model_json(family, level, name, service.started)
        for name, level in zip(model_ids(family), levels, strict=True)
    }

    @app.get("/v1/models", dependencies=allowed)
    async def list_models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": list(models.values())})

    @app.get("/v1/models/{name}", dependencies=allowed)
    async def one_model(name: str) -> JSONResponse:
        if name not in models:
            told = f"There is no model {name[:80]!r}."
            raise ApiError(404, told, param="model", code="model_not_found")
        return JSONResponse(models[name])


def _add_answers(app: FastAPI, service: Service, allowed: list[Any]) -> None:
    async def answer(kind: Kind, request: Request) -> Response:
        with Outcome(service.metrics, kind, time.monotonic()) as outcome:
            plain = read_object(await read_body(request, service.body_bytes))
            setting = choose_level(service.family, checked(DialOnly, _dial(plain)), service.default)
            outcome.level = setting.level.name
            told = await unless_gone(service.engine.answer(kind, setting, plain), request.receive)
            headers = {"X-CRT-Level": setting.level.name}
            if told is None:
                outcome.status = GONE
                return Response(status_code=GONE)  # nobody reads it
            if isinstance(told, dict):
                return JSONResponse(told, headers=headers)
            outcome.open = True
            return EventStream(recorded(told, outcome), headers)

    @app.post("/v1/chat/completions", dependencies=allowed)
    async def chat(request: Request) -> Response:
        return await answer("chat", request)

    @app.post("/v1/completions", dependencies=allowed)
    async def text(request: Request) -> Response:
        return await answer("text", request)


def _dial(plain: dict[str, Any]) -> dict[str, Any]:
    return {name: plain[name] for name in DialOnly.model_fields if name in plain}


@dataclass
class Outcome:
    """How a request ended and how long it took; a stream has not ended when it is handed over."""

    metrics: Metrics
    kind: Kind
    begun: float
    level: str = ""
    status: int = 200
    open: bool = False

    def __enter__(self) -> "Outcome":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.status = error.status if isinstance(error, ApiError) else 500
        if not self.open:
            self.record()

    def record(self) -> None:
        """Counts it."""
        seconds = time.monotonic() - self.begun
        self.metrics.answered(self.kind, self.level, self.status, seconds)


async def recorded(chunks: Chunks, outcome: Outcome) -> Chunks:
    """The same chunks; counted when they end, or when nobody wants them any more."""
    outcome.status = GONE
    try:
        async with aclosing(chunks) as told:
            async for chunk in told:
                yield chunk
        outcome.status = 200
    except ApiError as error:
        outcome.status = error.status
        raise
    finally:
        outcome.record()


def _add_watching(app: FastAPI, service: Service, allowed: list[Any]) -> None:
    @app.get("/health")
    async def health() -> JSONResponse:
        levels = await service.engine.health()
        sound = all(state == "ok" for state in levels.values())
        told = {"status": "ok" if sound else "failed", "levels": levels}
        return JSONResponse(told, 200 if sound else 503)

    @app.get("/metrics", dependencies=allowed)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def _add_errors(app: FastAPI) -> None:
    def told(error: ApiError) -> JSONResponse:
        return JSONResponse(error.body(), error.status, headers=error.headers)

    @app.exception_handler(ApiError)
    async def ours(_: Request, error: ApiError) -> JSONResponse:
        return told(error)

    @app.exception_handler(HTTPException)
    async def routing(_: Request, error: HTTPException) -> JSONResponse:
        return told(ApiError(error.status_code, f"{error.detail}."))

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        return told(broken())
