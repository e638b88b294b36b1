"""OpenAI-compatible servers behind the proxy: requests pass through under each level's own name."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from crt.errors import ConfigError, EngineError
from crt.levels.family import Family
from crt.levels.options import ServeOptions
from crt.levels.reasoning_splitter import ChatSplitter, Vocabulary
from crt.levels.requests import ApiError, Call, Chunks, queue_full

if TYPE_CHECKING:
    from crt.levels.vllm import ServerProcesses

ROUTES = {"chat": "/chat/completions", "text": "/completions"}
CONNECT_SECONDS = 5.0
CLIENT_ERRORS = (400, 404, 413, 422)  # the client's own mistakes, passed on in the server's words


@dataclass(frozen=True)
class UpstreamModel:
    """Where a level is served, and under which name."""

    url: str
    name: str
    vocabulary: Vocabulary | None = None  # to split answers by token ids; None passes them as is


class UpstreamEngine:
    """Replaces the model's name, passes the rest on, and streams back what comes."""

    def __init__(
        self,
        models: Mapping[str, UpstreamModel],
        max_requests: int,
        headers: Mapping[str, str] | None = None,
        servers: "ServerProcesses | None" = None,
    ) -> None:
        self.models, self.max_requests, self.servers = models, max_requests, servers
        self.under_way = dict.fromkeys(models, 0)
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),  # the proxy has the time limit
            limits=httpx.Limits(max_connections=max_requests + 8),
            trust_env=False,
        )

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Watches the servers that were started here; ends them, and the connections."""
        watching = asyncio.create_task(self.servers.watch()) if self.servers else None
        async with self._client:
            yield
        if self.servers and watching:
            watching.cancel()
            await asyncio.to_thread(self.servers.stop)

    async def answer(self, call: Call) -> Chunks:
        """The server's answer; a stream has its usage in the last chunk."""
        if sum(self.under_way.values()) >= self.max_requests:
            raise queue_full()
        if call.kind == "chat" and not call.body.get("messages"):
            raise ApiError(400, "The field 'messages' is missing or empty.", param="messages")
        vocabulary = self.models[call.level.name].vocabulary if call.kind == "chat" else None
        splitter = vocabulary and ChatSplitter(vocabulary, _stops(call.body.get("stop")))
        async with self._post(call, self.upstream_body(call, splitter is not None)) as response:
            async for chunk in _read_chunks(response, call.stream):
                if new := splitter.split(chunk) if splitter else _name_reasoning(chunk):
                    yield new

    def upstream_body(self, call: Call, with_token_ids: bool) -> dict[str, Any]:
        body = {**call.body, "model": self.models[call.level.name].name}
        options = call.body.get("stream_options") or {}
        if call.stream and isinstance(options, dict):  # the proxy counts tokens in any case
            body["stream_options"] = {**options, "include_usage": True}
        if with_token_ids:
            body["return_token_ids"] = True
            body.pop("stop", None)  # there it would end the thinking, too
        return body

    def load(self) -> dict[str, tuple[int, int]]:
        """Level → requests under way; how many wait in the server is not known here."""
        return {level: (count, 0) for level, count in self.under_way.items()}

    async def health(self) -> dict[str, str]:
        urls = list(dict.fromkeys(model.url for model in self.models.values()))
        states = dict(zip(urls, await asyncio.gather(*map(self._state, urls)), strict=True))
        return {level: states[model.url] for level, model in self.models.items()}

    @asynccontextmanager
    async def _post(self, call: Call, body: dict[str, Any]) -> AsyncIterator[httpx.Response]:
        """The server's response, if it is an answer; anything else becomes an OpenAI error."""
        level = call.level.name
        self.under_way[level] += 1
        try:
            url = self.models[level].url + ROUTES[call.kind]
            async with self._client.stream("POST", url, json=body) as response:
                if response.status_code != 200:
                    raise _refusal(response, await response.aread())
                yield response
        except httpx.HTTPError:
            raise ApiError(502, "The server behind the proxy cannot be reached.") from None
        finally:
            self.under_way[level] -= 1

    async def _state(self, url: str) -> str:
        """By its /health, which sees more; by its models if it has none."""
        try:
            for path in (f"{url.removesuffix('/v1')}/health", f"{url}/models"):
                response = await self._client.get(path, timeout=CONNECT_SECONDS)
                if response.status_code == 200:
                    return "ok"
                if response.status_code not in (401, 403, 404, 405):
                    return "failed"
        except httpx.HTTPError:
            return "unreachable"
        return "failed"


async def _read_chunks(response: httpx.Response, stream: bool) -> Chunks:
    """The whole answer, or the chunks of a stream up to its end, which must be there."""
    if not stream:
        yield _json_object(await response.aread())
        return
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        chunk = _json_object(data)
        if "error" in chunk and "choices" not in chunk:
            raise ApiError(502, _error_message(chunk))
        yield chunk
    raise ApiError(502, "The server behind the proxy broke off its answer.")


def _refusal(response: httpx.Response, content: bytes) -> ApiError:
    """Another server's refusal, in the form that our clients get."""
    status = response.status_code
    if status in CLIENT_ERRORS:
        body: dict[str, Any] = {}
        with suppress(ApiError):
            body = _json_object(content)
        error = body.get("error")
        param = error.get("param") if isinstance(error, dict) else None
        param = param[:200] if isinstance(param, str) else None
        return ApiError(status, _error_message(body), param=param)
    if status in (429, 503):
        seconds = response.headers.get("retry-after", "1")
        return queue_full(min(3600, int(seconds)) if seconds.isdigit() else 1)
    reason = f"answered {status}"
    if status in (401, 403):
        reason = "does not accept the proxy's key (--upstream-key-from)"
    return ApiError(502, f"The server behind the proxy {reason}.")


def _json_object(data: bytes | str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ApiError(502, "The server behind the proxy did not answer in JSON.")
    return value


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


# ---- which server has which level


def find_upstream(family: Family, options: ServeOptions) -> UpstreamEngine:
    """The engine for `[LEVEL=]URL`s; each level's model there is given or found by its name."""
    key = os.environ.get(options.upstream_key_from or "", "")
    if options.upstream_key_from and not key:
        raise ConfigError(
            f"--upstream-key-from {options.upstream_key_from}: there is no such variable"
        )
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    levels = [level.name for level in family.levels]
    urls = level_urls(options.upstream, levels)
    names = dict(_level_pair(text, "--upstream-model", levels) for text in options.upstream_model)
    served = {url: _served_models(url, headers) for url in dict.fromkeys(urls.values())}
    models: dict[str, UpstreamModel] = {}
    for level, url in urls.items():
        name = names.get(level) or match_model(family.name, level, served[url])
        if name is None:
            raise ConfigError(
                f"{url} serves {', '.join(served[url][:10]) or 'no model'}, and none is "
                f"called like {family.name}:{level}: give its name, --upstream-model {level}=NAME"
            )
        model = UpstreamModel(url, name)
        same = next((other for other in models if models[other] == model), None)
        if same is not None and level not in names:
            raise ConfigError(
                f"{same} and {level} would both be {name} at {url}: give the address of {level}, "
                f"--upstream {level}=URL, or its name there, --upstream-model {level}=NAME"
            )
        models[level] = model
    return UpstreamEngine(models, options.upstream_requests, headers)


def level_urls(urls: Sequence[str], levels: Sequence[str]) -> dict[str, str]:
    """Level → address; a bare URL is for all levels that have none of their own."""
    bare = [url for url in urls if re.match(r"https?://", url)]
    own = dict(_level_pair(text, "--upstream", levels) for text in urls if text not in bare)
    addresses: dict[str, str] = {}
    for level in levels:
        url = own.get(level) or (bare[-1] if bare else None)
        if url is None:
            raise ConfigError(f"--upstream: no address for the level {level}")
        if not re.match(r"https?://[^/\s]+", url):
            example = "http://127.0.0.1:8001/v1"
            raise ConfigError(f"--upstream {url!r} is not an address such as {example}")
        addresses[level] = url.rstrip("/")
    return addresses


def match_model(family: str, level: str, served: Sequence[str]) -> str | None:
    """A level's name on a server: `family:level`, `family-level`, `level`, or the only one."""
    names = (f"{family}:{level}", f"{family}-{level}", level)
    only = served[0] if len(served) == 1 else None
    return next((name for name in names if name in served), only)


def _served_models(url: str, headers: Mapping[str, str]) -> list[str]:
    try:
        response = httpx.get(f"{url}/models", headers=headers, timeout=30.0, trust_env=False)
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
