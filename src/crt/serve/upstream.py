"""Only the dial, in front of OpenAI-compatible servers that are there: requests pass through."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from crt.serve.apart import ASKS, Apart, Words
from crt.serve.dial import Setting
from crt.serve.family import Family, Level
from crt.serve.faults import ApiError, busy, too_slow
from crt.serve.forms import Answer, Chunks, Kind
from crt.serve.metrics import Heard, Metrics
from crt.serve.protocol import ChatRequest, checked
from crt.serve.relay import (
    after,
    as_asked,
    events,
    json_object,
    refused,
    stops_of,
    thinking_named,
    wants_usage,
)
from crt.serve.turns import turns_of

ROUTES: dict[Kind, str] = {"chat": "/chat/completions", "text": "/completions"}
OURS = ("model", "verbosity", "reasoning_effort", "token_target", "measured_prompt")
CONNECT_SECONDS = 5.0
HEALTH_SECONDS = 2.0  # how old a server's state may be


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
    words: Words | None = None  # to read the tokens it returns; without, it passes as it is


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
        self._asking, self._heard_at = asyncio.Lock(), float("-inf")
        self._states: dict[str, str] = {}

    async def answer(self, kind: Kind, setting: Setting, plain: dict[str, Any]) -> Answer:
        """The server's answer under the family's name."""
        level = setting.level.name
        if sum(self.under_way.values()) >= self.settings.most:
            raise busy(1)
        body = self._body(kind, setting.level, plain)
        apart = self._apart(kind, level, plain)
        named = {"model": f"{self.family.name}:{level}"}
        dial = {"crt": {"level": level, "chosen_by": setting.by}}
        if body.get("stream"):
            chunks = self._stream(kind, level, body, apart)
            shown = as_asked(chunks, named, wants_usage(plain))
            first = await anext(shown, {})  # an error must be known before headers are sent
            return after({**first, **dial}, shown)
        async with self._sent(kind, level, body) as response:
            told = json_object(await response.aread())
        told = (apart.read(told) if apart else thinking_named(told)) or told
        self.metrics.spoken(level, told.get("usage") or {})
        return {**told, **named, **dial}

    def counts(self) -> dict[str, tuple[int, int]]:
        """Level → requests under way; how many wait there is not known here."""
        return {level: (count, 0) for level, count in self.under_way.items()}

    async def health(self) -> dict[str, str]:
        """What the servers say of themselves, asked at most every few seconds."""
        async with self._asking:
            if time.monotonic() - self._heard_at > HEALTH_SECONDS:
                urls = list(dict.fromkeys(each.url for each in self.served.values()))
                states = await asyncio.gather(*(self._state(url) for url in urls))
                self._states = dict(zip(urls, states, strict=True))
                self._heard_at = time.monotonic()
        return {level: self._states[each.url] for level, each in self.served.items()}

    async def close(self) -> None:
        """Ends the connections."""
        if self._client is not None:
            await self._client.aclose()

    def _body(self, kind: Kind, level: Level, plain: dict[str, Any]) -> dict[str, Any]:
        """The request without what is the dial's, drawn as the levels were measured."""
        if kind == "chat" and not plain.get("messages"):
            raise ApiError(400, "The field 'messages' is missing or empty.", param="messages")
        body = {name: value for name, value in plain.items() if name not in OURS}
        how = self.family.measured
        for name, value in (("temperature", how.temperature), ("top_p", how.top_p)):
            body[name] = value if plain.get(name) is None else plain[name]
        if body.get("stream"):  # the tokens are counted, whether the client asks or not
            options = plain.get("stream_options") or {}
            if isinstance(options, dict):
                body["stream_options"] = {**options, "include_usage": True}
        if kind == "chat" and self.served[level.name].words:
            body = {**body, **ASKS}
            body.pop("stop", None)  # there it would end thinking, too
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
                    raise await refused(response)
                yield response
        except (TimeoutError, httpx.TimeoutException):
            raise too_slow(self.settings.time_limit) from None
        except httpx.HTTPError:
            raise ApiError(
                502, "The server behind the dial cannot be reached.", kind="server_error"
            ) from None
        finally:
            self.under_way[level] -= 1

    async def _stream(
        self, kind: Kind, level: str, body: dict[str, Any], apart: Apart | None
    ) -> Chunks:
        heard, begun = Heard(self.metrics, level), time.monotonic()
        usage: dict[str, Any] = {}
        try:
            async with self._sent(kind, level, body) as response:
                async for chunk in events(response):
                    heard.first(time.monotonic() - begun)
                    told = apart.read(chunk) if apart else thinking_named(chunk)
                    if told is not None:
                        usage = told.get("usage") or usage
                        yield told
        finally:
            heard.ended(usage)

    def _apart(self, kind: Kind, level: str, plain: Mapping[str, Any]) -> Apart | None:
        words = self.served[level].words
        return Apart(words, stops_of(plain.get("stop"))) if words and kind == "chat" else None

    async def _state(self, url: str) -> str:
        """By its /health, which sees more; by its models if it has none."""
        try:
            for asked in (f"{url.removesuffix('/v1')}/health", f"{url}/models"):
                told = await self._open().get(asked, timeout=CONNECT_SECONDS)
                if told.status_code == 200:
                    return "ok"
                if told.status_code not in (401, 403, 404, 405):
                    return "failed"
        except httpx.HTTPError:
            return "unreachable"
        return "failed"

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
