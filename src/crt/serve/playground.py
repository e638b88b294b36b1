"""The page at `/`: its files, what it shows of the family, and verdicts for known answers."""

import asyncio
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from crt.config import GradingConfig
from crt.grading.grader import Grader
from crt.serve.family import Family, Level
from crt.serve.faults import ApiError
from crt.serve.protocol import checked, read_object
from crt.serve.wire import read_body

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/playground/style.css": ("style.css", "text/css; charset=utf-8"),
    "/playground/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/playground/icon.svg": ("icon.svg", "image/svg+xml"),
}
GRADES_AT_ONCE = 8


class GradeRequest(BaseModel):
    """A response and the answer that is known."""

    model_config = ConfigDict(strict=True, extra="forbid")
    text: str = Field(max_length=200_000)
    answer: str = Field(min_length=1, max_length=1000)
    question: str = Field(default="", max_length=20_000)


def add_playground(
    app: FastAPI, family: Family, default: Level, body_bytes: int, allowed: list[Any]
) -> Grader:
    """The page is open to who reaches the server; the rest needs the key, if there is one.

    The grader that is returned is to be closed in the end.
    """
    for path, (name, kind) in FILES.items():
        content = (files("crt") / "assets" / "playground" / name).read_bytes()
        app.add_api_route(path, _file(content, kind), methods=["GET"])
    about = shown(family, default)
    settings = GradingConfig()
    grader = Grader(1, settings.deadline_seconds, settings.memory_mb)
    places = asyncio.Semaphore(GRADES_AT_ONCE)

    @app.get("/playground/family", dependencies=allowed)
    async def levels() -> JSONResponse:
        return JSONResponse(about)

    @app.post("/playground/grade", dependencies=allowed)
    async def grade(request: Request) -> JSONResponse:
        asked = checked(GradeRequest, read_object(await read_body(request, body_bytes)))
        if places.locked():
            raise ApiError(429, "Too many answers are being graded.", retry_after=1)
        async with places:
            found = await grader.grade_async(asked.text, asked.answer, question=asked.question)
        told = {"verdict": found.verdict.value, "extracted": found.extracted}
        return JSONResponse({**told, "reason": found.reason})

    return grader


def shown(family: Family, default: Level) -> dict[str, Any]:
    """What the page needs of a family: no path is in it."""
    full = family.levels[-1]
    return {
        "name": family.name,
        "method": family.method,
        "default": default.name,
        "tolerance": family.tolerance,
        "candidates": family.candidates,
        "measured": family.measured.model_dump(mode="json"),
        "examples": [example.model_dump() for example in family.examples],
        "levels": [
            {
                "name": level.name,
                "model": f"{family.name}:{level.name}",
                "acc": level.acc.model_dump(),
                "len": level.len.model_dump(),
                "saved": 100 * (1 - level.len.value / full.len.value),
                "certificate": level.certificate and level.certificate.model_dump(),
                "certified": level.certified,
                "front": level.front,
            }
            for level in family.levels
        ],
    }


def _file(content: bytes, kind: str) -> Any:
    async def send() -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return send
