"""What another server says, as our client is told it."""

import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import httpx

from crt.serve.faults import ApiError, busy
from crt.serve.forms import Chunks

PASSED_ON = (400, 404, 413, 422)  # the client's own mistakes, in the server's words
LONGEST_ERROR = 64 * 1024


def stops_of(value: Any) -> tuple[str, ...]:
    """The texts that end an answer, one or several."""
    found = [value] if isinstance(value, str) and value else value or []
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise ApiError(400, "The field 'stop' is not a text or a list of texts.", param="stop")
    return tuple(found)


def thinking_named(told: dict[str, Any]) -> dict[str, Any]:
    """The same with thinking under the name that it has here, where vLLM calls it `reasoning`."""
    for choice in told.get("choices") or []:
        said = choice.get("delta") or choice.get("message") or {}
        if said.get("reasoning"):
            said.setdefault("reasoning_content", said["reasoning"])
    return told


def wants_usage(plain: Mapping[str, Any]) -> bool:
    """Whether a stream's client asked what it took."""
    options = plain.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))


async def as_asked(chunks: Chunks, named: dict[str, Any], usage: bool) -> Chunks:
    """The chunks under the family's name, without the usage that only the dial wanted."""
    async with aclosing(chunks) as told:
        async for chunk in told:
            if usage:
                yield {**chunk, **named}
            elif chunk.get("choices"):
                yield {**{name: chunk[name] for name in chunk if name != "usage"}, **named}


async def after(first: dict[str, Any], rest: Chunks) -> Chunks:
    """A chunk that is there already, then the others."""
    try:
        yield first
        async for chunk in rest:
            yield chunk
    finally:
        await rest.aclose()


async def events(response: httpx.Response) -> Chunks:
    """The events of a stream up to its end, which must be there."""
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        chunk = json_object(data)
        if "error" in chunk and "choices" not in chunk:
            raise ApiError(502, message(chunk), kind="server_error")
        yield chunk
    raise ApiError(502, "The server behind the dial broke off its answer.", kind="server_error")


async def refused(response: httpx.Response) -> ApiError:
    """What another server's refusal means for our client."""
    told = b""
    async for piece in response.aiter_bytes():
        told += piece
        if len(told) > LONGEST_ERROR:
            break
    status = response.status_code
    if status in PASSED_ON:
        return _mistake(status, json_object(told, strict=False))
    if status in (429, 503):
        seconds = response.headers.get("retry-after", "1")
        return busy(min(3600, int(seconds)) if seconds.isdigit() else 1)
    if status in (401, 403):
        text = "The server behind the dial does not accept the dial's key (--upstream-key-from)."
        return ApiError(502, text, kind="server_error")
    return ApiError(502, f"The server behind the dial answered {status}.", kind="server_error")


def json_object(data: bytes | str, strict: bool = True) -> dict[str, Any]:
    """The object in an answer; if there is none, an error or nothing."""
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


def _mistake(status: int, told: Mapping[str, Any]) -> ApiError:
    """The client's own mistake, with the field if the server names it."""
    error = told.get("error")
    param = error.get("param") if isinstance(error, dict) else None
    return ApiError(status, message(told), param=param[:200] if isinstance(param, str) else None)


def message(told: Mapping[str, Any]) -> str:
    """The sentence in an error, in OpenAI's form or vLLM's older one."""
    error = told.get("error")
    found = error.get("message") if isinstance(error, dict) else told.get("message")
    return found[:2000] if isinstance(found, str) else "The server behind the dial refuses this."
