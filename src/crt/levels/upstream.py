"""OpenAI-compatible servers behind the proxy: requests pass through under each level's own name."""

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from crt.errors import ConfigError, EngineError
from crt.levels.errors import ApiError, bad_gateway, queue_full
from crt.levels.family import Family
from crt.levels.reasoning_splitter import ChatSplitter, Vocabulary
from crt.levels.requests import Call, Chunks, Kind

ROUTES: dict[Kind, str] = {"chat": "/chat/completions", "text": "/completions"}
CONNECT_SECONDS = 5.0
HEALTH_SECONDS = 2.0  # how old a server's state may be
CLIENT_ERRORS = (400, 404, 413, 422)  # the client's own mistakes, passed on in the server's words
LONGEST_ERROR = 64 * 1024


@dataclass(frozen=True)
class UpstreamSettings:
    """How the servers behind the proxy are used."""

    max_requests: int = 384  # under way at once
    key_from: str | None = None  # environment variable with the servers' key

    @property
    def headers(self) -> dict[str, str]:
        """With the key, if there is one."""
        key = os.environ.get(self.key_from or "", "")
        return {"Authorization": f"Bearer {key}"} if key else {}


@dataclass(frozen=True)
class UpstreamModel:
    """Where a level is served, and under which name."""

    url: str
    name: str
    vocabulary: Vocabulary | None = None  # to split answers by token ids; None passes them as is


class UpstreamEngine:
    """Replaces the model's name, passes the rest on, and streams back what comes."""

    def __init__(self, models: Mapping[str, UpstreamModel], settings: UpstreamSettings) -> None:
        self.models, self.settings = models, settings
        self.under_way = dict.fromkeys(models, 0)
        self._client: httpx.AsyncClient | None = None
        self._checking, self._checked_at = asyncio.Lock(), float("-inf")
        self._states: dict[str, str] = {}

    async def answer(self, call: Call) -> dict[str, Any] | Chunks:
        """The server's answer; a stream has its usage in the last chunk."""
        if sum(self.under_way.values()) >= self.settings.max_requests:
            raise queue_full(1)
        if call.kind == "chat" and not call.body.get("messages"):
            raise ApiError(400, "The field 'messages' is missing or empty.", param="messages")
        splitter = self._splitter(call)
        body = self._upstream_body(call, splitter is not None)
        if call.stream:
            return self._stream(call, body, splitter)
        async with self._post(call, body) as response:
            answer = _json_object(await response.aread())
        return (splitter.split(answer) if splitter else _name_reasoning(answer)) or answer

    def load(self) -> dict[str, tuple[int, int]]:
        """Level → requests under way; how many wait in the server is not known here."""
        return {level: (count, 0) for level, count in self.under_way.items()}

    async def health(self) -> dict[str, str]:
        """The servers' own state, checked at most every few seconds."""
        async with self._checking:
            if time.monotonic() - self._checked_at > HEALTH_SECONDS:
                urls = list(dict.fromkeys(model.url for model in self.models.values()))
                states = await asyncio.gather(*(self._state(url) for url in urls))
                self._states = dict(zip(urls, states, strict=True))
                self._checked_at = time.monotonic()
        return {level: self._states[model.url] for level, model in self.models.items()}

    async def close(self) -> None:
        """Ends the connections."""
        if self._client is not None:
            await self._client.aclose()

    def _splitter(self, call: Call) -> ChatSplitter | None:
        vocabulary = self.models[call.level.name].vocabulary
        if vocabulary is None or call.kind != "chat":
            return None
        return ChatSplitter(vocabulary, _stops(call.body.get("stop")))

    def _upstream_body(self, call: Call, with_token_ids: bool) -> dict[str, Any]:
        body = {**call.body, "model": self.models[call.level.name].name}
        if call.stream:  # the tokens are counted, whether the client asks or not
            options = call.body.get("stream_options") or {}
            if isinstance(options, dict):
                body["stream_options"] = {**options, "include_usage": True}
        if with_token_ids:
            body["return_token_ids"] = True
            body.pop("stop", None)  # there it would end the thinking, too
        return body

    @asynccontextmanager
    async def _post(self, call: Call, body: dict[str, Any]) -> AsyncIterator[httpx.Response]:
        """The server's response, if it is an answer; anything else becomes an OpenAI error."""
        level = call.level.name
        self.under_way[level] += 1
        try:
            url = self.models[level].url + ROUTES[call.kind]
            async with self._http().stream("POST", url, json=body) as response:
                if response.status_code != 200:
                    raise await _refusal(response)
                yield response
        except httpx.HTTPError:
            raise bad_gateway("The server behind the proxy cannot be reached.") from None
        finally:
            self.under_way[level] -= 1

    async def _stream(
        self, call: Call, body: dict[str, Any], splitter: ChatSplitter | None
    ) -> Chunks:
        async with self._post(call, body) as response:
            async for chunk in _server_sent_events(response):
                new = splitter.split(chunk) if splitter else _name_reasoning(chunk)
                if new:
                    yield new

    async def _state(self, url: str) -> str:
        """By its /health, which sees more; by its models if it has none."""
        try:
            for path in (f"{url.removesuffix('/v1')}/health", f"{url}/models"):
                response = await self._http().get(path, timeout=CONNECT_SECONDS)
                if response.status_code == 200:
                    return "ok"
                if response.status_code not in (401, 403, 404, 405):
                    return "failed"
        except httpx.HTTPError:
            return "unreachable"
        return "failed"

    def _http(self) -> httpx.AsyncClient:
        """One client, made in the event loop that uses it; the proxy has the time limit."""
        if self._client is None:
            self._client = httpx.AsyncClient(
                headers=self.settings.headers,
                timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
                limits=httpx.Limits(max_connections=self.settings.max_requests + 8),
                trust_env=False,
            )
        return self._client


async def _server_sent_events(response: httpx.Response) -> Chunks:
    """The chunks of a stream up to its end, which must be there."""
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        chunk = _json_object(data)
        if "error" in chunk and "choices" not in chunk:
            raise bad_gateway(_error_message(chunk))
        yield chunk
    raise bad_gateway("The server behind the proxy broke off its answer.")


async def _refusal(response: httpx.Response) -> ApiError:
    """Another server's refusal, as our client is told it."""
    content = b""
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > LONGEST_ERROR:
            break
    status = response.status_code
    if status in CLIENT_ERRORS:
        body = _json_object(content, strict=False)
        error = body.get("error")
        param = error.get("param") if isinstance(error, dict) else None
        param = param[:200] if isinstance(param, str) else None
        return ApiError(status, _error_message(body), param=param)
    if status in (429, 503):
        seconds = response.headers.get("retry-after", "1")
        return queue_full(min(3600, int(seconds)) if seconds.isdigit() else 1)
    if status in (401, 403):
        return bad_gateway(
            "The server behind the proxy does not accept the proxy's key (--upstream-key-from)."
        )
    return bad_gateway(f"The server behind the proxy answered {status}.")


def _json_object(data: bytes | str, strict: bool = True) -> dict[str, Any]:
    """The object in an answer; if there is none, an error or nothing."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    if strict:
        raise bad_gateway("The server behind the proxy did not answer in JSON.")
    return {}


def _error_message(body: Mapping[str, Any]) -> str:
    """The sentence in an error, in OpenAI's form or vLLM's older one."""
    error = body.get("error")
    message = error.get("message") if isinstance(error, dict) else body.get("message")
    text = message if isinstance(message, str) else "The server behind the proxy refuses this."
    return text[:2000]


def _name_reasoning(answer: dict[str, Any]) -> dict[str, Any]:
    """The same with `reasoning_content`, where vLLM calls it `reasoning`."""
    for choice in answer.get("choices") or []:
        message = choice.get("delta") or choice.get("message") or {}
        if message.get("reasoning"):
            message.setdefault("reasoning_content", message["reasoning"])
    return answer


def _stops(value: Any) -> tuple[str, ...]:
    """The texts that end an answer, one or several."""
    texts = [value] if isinstance(value, str) and value else value or []
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ApiError(400, "The field 'stop' is not a text or a list of texts.", param="stop")
    return tuple(texts)


def find_upstream(
    family: Family, urls: Sequence[str], names: Sequence[str], settings: UpstreamSettings
) -> UpstreamEngine:
    """The engine for `[LEVEL=]URL`s; each level's model there is given or found by its name."""
    if settings.key_from and not os.environ.get(settings.key_from):
        raise ConfigError(f"--upstream-key-from {settings.key_from}: there is no such variable")
    levels = [level.name for level in family.levels]
    url_of = level_urls(urls, levels)
    given = dict(_level_pair(text, "--upstream-model", levels) for text in names)
    served = {url: _served_models(url, settings) for url in dict.fromkeys(url_of.values())}
    models: dict[str, UpstreamModel] = {}
    for level in levels:
        url = url_of[level]
        name = given.get(level) or match_model(family.name, level, served[url])
        if name is None:
            raise ConfigError(
                f"{url} serves {', '.join(served[url][:10]) or 'no model'}, and none is "
                f"called like {family.name}:{level}: give its name, --upstream-model {level}=NAME"
            )
        same = next((k for k, m in models.items() if (m.url, m.name) == (url, name)), None)
        if same is not None and level not in given:
            raise ConfigError(
                f"{same} and {level} would both be {name} at {url}: give the address of {level}, "
                f"--upstream {level}=URL, or its name there, --upstream-model {level}=NAME"
            )
        models[level] = UpstreamModel(url, name)
    return UpstreamEngine(models, settings)


def level_urls(urls: Sequence[str], levels: Sequence[str]) -> dict[str, str]:
    """Level → address; a bare URL is for all levels that have none of their own."""
    own: dict[str, str] = {}
    common: str | None = None
    for text in urls:
        if re.match(r"https?://", text):
            common = text
        else:
            level, url = _level_pair(text, "--upstream", levels)
            own[level] = url
    missing = [level for level in levels if level not in own]
    if missing and common is None:
        raise ConfigError(f"--upstream: no address for the level {missing[0]}")
    every = {level: own.get(level) or str(common) for level in levels}
    bad = next((url for url in every.values() if not re.match(r"https?://[^/\s]+", url)), None)
    if bad is not None:
        raise ConfigError(f"--upstream {bad!r} is not an address such as http://127.0.0.1:8001/v1")
    return {level: url.rstrip("/") for level, url in every.items()}


def match_model(family: str, level: str, served: Sequence[str]) -> str | None:
    """A level's name on a server: `family:level`, `family-level`, `level`, or the only one."""
    wanted = (f"{family}:{level}", f"{family}-{level}", level)
    match = next((name for name in wanted if name in served), None)
    return served[0] if match is None and len(served) == 1 else match


def _served_models(url: str, settings: UpstreamSettings) -> list[str]:
    try:
        response = httpx.get(
            f"{url}/models", headers=settings.headers, timeout=30.0, trust_env=False
        )
        response.raise_for_status()
        return [str(model["id"]) for model in response.json()["data"]]
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        raise EngineError(f"{url}/models answers {status}: is the address right?") from None
    except httpx.HTTPError as error:
        raise EngineError(f"{url} cannot be reached: {error}.") from None
    except (ValueError, KeyError, TypeError):
        raise EngineError(f"{url}/models is not a list of models.") from None


def _level_pair(text: str, option: str, levels: Sequence[str]) -> tuple[str, str]:
    level, equals, value = text.partition("=")
    if not equals or not value or level not in levels:
        raise ConfigError(f"{option} {text!r} is not LEVEL=…, with one of {', '.join(levels)}")
    return level, value
