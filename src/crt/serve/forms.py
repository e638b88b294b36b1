"""Answers in OpenAI's form: whole, or in chunks."""

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from crt.serve.answering import Answering, Part
from crt.serve.dial import Setting
from crt.serve.protocol import Sampling
from crt.serve.reading import Piece

Kind = Literal["chat", "text"]
Chunks = AsyncGenerator[dict[str, Any], None]
Answer = dict[str, Any] | Chunks  # whole, or as it is written


@dataclass(frozen=True)
class Form:
    """What is the same in every chunk of an answer."""

    kind: Kind
    model: str
    setting: Setting
    id: str
    created: int

    def head(self, chunk: bool) -> dict[str, Any]:
        """The fields that come before the choices."""
        kind = "text_completion"
        if self.kind == "chat":
            kind = "chat.completion.chunk" if chunk else "chat.completion"
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": f"fp_{self.setting.level.hash[:12]}",
        }

    @property
    def dial(self) -> dict[str, Any]:
        """Our own field: the level, and which part of the request chose it."""
        return {"level": self.setting.level.name, "chosen_by": self.setting.by}


def form(kind: Kind, family: str, setting: Setting) -> Form:
    """A new answer's form."""
    prefix = "chatcmpl" if kind == "chat" else "cmpl"
    name = f"{family}:{setting.level.name}"
    return Form(kind, name, setting, f"{prefix}-{secrets.token_hex(12)}", int(time.time()))


async def whole(form: Form, answering: Answering) -> dict[str, Any]:
    """The answer when it has ended."""
    pieces = [Piece() for _ in answering.readers]
    finish = [""] * len(pieces)
    async for parts in answering.parts():
        for part in parts:
            pieces[part.number].reasoning += part.piece.reasoning
            pieces[part.number].content += part.piece.content
            finish[part.number] = part.finish or ""
    choices = [
        {"index": i, **_said(form, piece), "logprobs": None, "finish_reason": finish[i]}
        for i, piece in enumerate(pieces)
    ]
    return {
        **form.head(chunk=False),
        "choices": choices,
        "usage": answering.usage(),
        "crt": form.dial,
    }


async def chunks(form: Form, answering: Answering, request: Sampling) -> Chunks:
    """The answer as it is written; usage at the end, and in every chunk, if asked for."""
    wants = request.wants_usage or request.wants_running_usage
    if form.kind == "chat":
        opening = [_delta(i, {"role": "assistant", "content": ""}) for i in _all(answering)]
        usage = {"usage": None} if wants else {}
        yield {**form.head(chunk=True), "choices": opening, **usage, "crt": form.dial}
    async for parts in answering.parts():
        told = [each for part in parts for each in _choices(form, part)]
        if told:
            running = answering.usage() if request.wants_running_usage else None
            usage = {"usage": running} if wants else {}
            yield {**form.head(chunk=True), "choices": told, **usage}
    if request.wants_usage:
        yield {**form.head(chunk=True), "choices": [], "usage": answering.usage()}


def _all(answering: Answering) -> Sequence[int]:
    return range(len(answering.readers))


def _said(form: Form, piece: Piece) -> dict[str, Any]:
    if form.kind == "text":
        return {"text": piece.content}
    message: dict[str, Any] = {"role": "assistant", "content": piece.content, "refusal": None}
    if piece.reasoning:
        message["reasoning_content"] = piece.reasoning
    return {"message": message}


def _choices(form: Form, part: Part) -> list[dict[str, Any]]:
    """What is new of a response; thinking and answer come one after the other."""
    piece = part.piece
    if form.kind == "text":
        new = {"text": piece.content, "logprobs": None, "finish_reason": part.finish}
        return [{"index": part.number, **new}] if piece.content or part.finish else []
    delta: dict[str, Any] = {}
    if piece.reasoning:
        delta["reasoning_content"] = piece.reasoning
    if piece.content:
        delta["content"] = piece.content
    return [_delta(part.number, delta, part.finish)] if delta or part.finish else []


def _delta(index: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
