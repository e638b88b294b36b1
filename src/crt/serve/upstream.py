"""Only the dial, in front of OpenAI-compatible servers that are there: requests pass through."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from crt.serve.dial import Setting
from crt.serve.family import Family, Level
from crt.serve.faults import ApiError, busy, too_slow
from crt.serve.forms import Answer, Chunks, Kind
from crt.serve.metrics import Heard, Metrics
from crt.serve.protocol import ChatRequest, checked
from crt.serve.turns import turns_of

ROUTES: dict[Kind, str] = {"chat": "/chat/completions", "text": "/completions"}
OURS = ("model", "verbosity", "reasoning_effort", "token_target", "measured_prompt")
PASSED_ON = (400, 404, 413, 422)  # the client's own mistakes, in the server's words
CONNECT_SECONDS = 5.0
LONGEST_ERROR = 64 * 1024


@dataclass(frozen=True)
class UpstreamSettings:
    """How the servers behind the dial are used."""

    most: int = 384  # requests under way at once
    time_limit: float = 300.0
    key_from: str | None = None  # environment variable with the servers' key
    measured_prompt: bool = False


@dataclass(frozen=True)
class Served:
    """Where a level is served, and under which name."""

    url: str
    model: str


class UpstreamEngine:
    """Rewrites the model's name, passes the rest on, and streams back what comes."""

    def __init__(
        self,
        family: Family,
        served: Mapping[str, Served],
        settings: UpstreamSettings,
        metrics: Metrics,
    ) -> None:
        self.family, self.served, self.settings, self.metrics = family, served, settings, metrics
        self.under_way = dict.fromkeys(served, 0)
        self._client: httpx.AsyncClient | None = None

    async def answer(self, kind: Kind, setting: Setting, plain: dict[str, Any]) -> Answer:
        """The server's answer under the family's name."""
        level = setting.level.name
        if sum(self.under_way.values()) >= self.settings.most:
            raise busy(1)
        body = self._body(kind, setting.level, plain)
        name = f"{self.family.name}:{level}"
        dial = {"level": level, "chosen_by": setting.by}
        if body.get("stream"):
            chunks = self._stream(kind, level, body, name)
            first = await anext(chunks, None)  # an error must be known before headers are sent
            return _after({**(first or {}), "crt": dial}, chunks)
        async with self._sent(kind, level, body) as response:
            told = _json(await response.aread())
            self.metrics.spoken(level, told.get("usage") or {})
            return {**told, "model": name, "crt": dial}

    def counts(self) -> dict[str, tuple[int, int]]:
        """Level → requests under way; how many wait there is not known here."""
        return {level: (count, 0) for level, count in self.under_way.items()}

    @property
    def healthy(self) -> bool:
        """The dial works; whether the servers do, their own /health says."""
        return True

    async def close(self) -> None:
        """Ends the connections."""
        if self._client is not None:
            await self._client.aclose()

    def _body(self, kind: Kind, level: Level, plain: dict[str, Any]) -> dict[str, Any]:
        """The request without what is the dial's."""
        body = {name: value for name, value in plain.items() if name not in OURS}
        wrap = plain.get("measured_prompt")
        if kind == "chat" and (self.settings.measured_prompt if wrap is None else wrap):
            asked = {"model": self.family.name, "messages": plain.get("messages")}
            body["messages"] = turns_of(checked(ChatRequest, asked), self.family.prompt_for(level))
        thinking = self.family.prompt_settings.enable_thinking
        if kind == "chat" and thinking is not None:
            body.setdefault("chat_template_kwargs", {"enable_thinking": thinking})
        return {"model": self.served[level.name].model, **body}

    @asynccontextmanager
    async def _sent(
        self, kind: Kind, level: str, body: dict[str, Any]
    ) -> AsyncIterator[httpx.Response]:
        """The server's answer, if it is one; what goes wrong is told in OpenAI's form."""
        url = self.served[level].url + ROUTES[kind]
        self.under_way[level] += 1
        try:
            async with (
                asyncio.timeout(self.settings.time_limit),
                self._open().stream("POST", url, json=body) as response,
            ):
                if response.status_code != 200:
                    raise await _refused(response)
                yield response
        except (TimeoutError, httpx.TimeoutException):
            raise too_slow(self.settings.time_limit) from None
        except httpx.HTTPError:
            raise ApiError(
                502, "The server behind the dial cannot be reached.", kind="server_error"
            ) from None
        finally:
            self.under_way[level] -= 1

    async def _stream(self, kind: Kind, level: str, body: dict[str, Any], name: str) -> Chunks:
        heard, begun = Heard(self.metrics, level), time.monotonic()
        usage: dict[str, Any] = {}
        try:
            async with self._sent(kind, level, body) as response:
                async for chunk in _events(response):
                    heard.first(time.monotonic() - begun)
                    usage = chunk.get("usage") or usage
                    yield {**chunk, "model": name}
        finally:
            heard.ended(usage)

    def _open(self) -> httpx.AsyncClient:
        """One client for all, made in the event loop that uses it."""
        if self._client is None:
            key = os.environ.get(self.settings.key_from or "", "")
            self._client = httpx.AsyncClient(
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=httpx.Timeout(self.settings.time_limit, connect=CONNECT_SECONDS),
                limits=httpx.Limits(max_connections=self.settings.most + 8),
                trust_env=False,
            )
        return self._client


async def _after(first: dict[str, Any], rest: Chunks) -> Chunks:
    try:
        yield first
        async for chunk in rest:
            yield chunk
    finally:
        await rest.aclose()


async def _events(response: httpx.Response) -> Chunks:
    """The events of a stream up to its end, which must be there."""
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        chunk = _json(data)
        if "error" in chunk and "choices" not in chunk:
            raise ApiError(502, _message(chunk), kind="server_error")
        yield chunk
    raise ApiError(502, "The server behind the dial broke off its answer.", kind="server_error")


async def _refused(response: httpx.Response) -> ApiError:
    """What another server's refusal means for our client."""
    told = b""
    async for piece in response.aiter_bytes():
        told += piece
        if len(told) > LONGEST_ERROR:
            break
    status = response.status_code
    if status in PASSED_ON:
        return ApiError(status, _message(_json(told, strict=False)))
    if status in (429, 503):
        after = response.headers.get("retry-after", "1")
        return busy(min(3600, int(after)) if after.isdigit() else 1)
    if status in (401, 403):
        text = "The server behind the dial does not accept the dial's key (--upstream-key-from)."
        return ApiError(502, text, kind="server_error")
    return ApiError(502, f"The server behind the dial answered {status}.", kind="server_error")


def _json(data: bytes | str, strict: bool = True) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    if strict:
        text = "The server behind the dial did not answer in JSON."
        raise ApiError(502, text, kind="server_error")
    return {}


def _message(told: Mapping[str, Any]) -> str:
    """The sentence in an error, in OpenAI's form or vLLM's older one."""
    error = told.get("error")
    found = error.get("message") if isinstance(error, dict) else told.get("message")
    return found[:2000] if isinstance(found, str) else "The server behind the dial refuses this."
