"""Who answers: a model on this machine, or an OpenAI-compatible server."""

import asyncio
import json
import os
import queue
import random
import ssl
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from crt.config import EvaluationConfig, ModelConfig
from crt.data.datasets import Loaded
from crt.data.prompts import PromptSettings, prepare, render, to_messages
from crt.errors import ConfigError, EngineError
from crt.evaluation.counts import MAX_TOKENS
from crt.evaluation.work_units import Answered, Backend, Unit, seed_of
from crt.sampling.base import Engine, Sampler, Sampling, choose_engine
from crt.sampling.models import ModelFiles, describe_dtype, model_files
from crt.sampling.policy import Response, respond
from crt.sampling.workers import sampler_on_all_cores
from crt.types import Problem

MAX_BYTES = 64 * 2**20  # of a server's answer
LONGEST_WAIT = 60.0  # seconds between two tries
RETRIED = {408, 409, 425, 429}  # and every 5xx: the same request may succeed later


# A model on this machine: through vLLM where it can run, else the fast sampler


def local_backend(
    model: ModelConfig,
    sets: Sequence[Loaded],
    prompt: PromptSettings,
    settings: EvaluationConfig,
    *,
    budget: int | None = None,
    engine: Engine = "auto",
    rows: int | None = None,
) -> tuple[Backend, list[str]]:
    """The backend, and what a user should know: a template's quirks, a cap that does not fit."""
    if rows is not None and rows < 1:
        raise ConfigError(f"rows = {rows}: at least 1 response has to be sampled at a time")
    files = model_files(
        model.name, revision=model.revision, trust_remote_code=model.trust_remote_code
    )
    template = prepare(files.tokenizer, prompt)  # pyright: ignore[reportArgumentType]
    longest_prompt = max(
        len(render(problem, template, budget).token_ids) for loaded in sets for problem in loaded
    )
    cap, notes = fit_cap(files, settings.max_tokens, longest_prompt)
    chosen = choose_engine(engine, files)
    sampling = Sampling(cap, settings.temperature, settings.top_p)
    sampler, dtype = _make_sampler(chosen, files, model, sampling, cap + longest_prompt)
    identity = {"name": files.name, "kind": "local", "hash": files.hash}
    own = files.tokenizer.chat_template

    def prompt_row(problem: Problem) -> Mapping[str, Any]:
        rendered = render(problem, template, budget)
        return {"prompt": rendered.text, "opens_thinking": rendered.opens_thinking}

    def answers(units: Iterable[Unit]) -> Generator[Answered]:
        for unit in units:
            prompts = [render(problem, template, budget) for problem in unit.problems]
            how = (files.tokenizer, files.eos_token_ids, unit.num_samples, unit.seed)
            yield unit, respond(prompts, sampler, *how)

    backend = Backend(
        model={**identity, "dtype": dtype, "engine": chosen},
        prompt_hash=template.hash,
        template=own if prompt.plain is None and isinstance(own, str) else None,
        rows=rows or sampler.batch_size(longest_prompt),
        max_tokens=cap,
        prompt_row=prompt_row,
        answers=answers,
    )
    return backend, [*template.notes, *notes, *describe_dtype(files, model.dtype, dtype)]


def fit_cap(files: ModelFiles, cap: int, longest_prompt: int) -> tuple[int, list[str]]:
    """The cap, or what the model has positions for, which is then said."""
    if files.context is None or cap + longest_prompt <= files.context:
        return cap, []
    left = files.context - longest_prompt
    if left < 2:
        raise ConfigError(
            f"{files.name} has {files.context} positions, and the longest prompt takes "
            f"{longest_prompt}: nothing is left for an answer."
        )
    return left, [
        f"{files.name} has {files.context} positions: the cap is {left} tokens, not {cap}"
    ]


def _make_sampler(
    engine: str, files: ModelFiles, model: ModelConfig, sampling: Sampling, positions: int
) -> tuple[Sampler, str]:
    """Who draws, and in which number format."""
    if engine == "vllm":
        from crt.sampling.vllm import VllmSampler

        options: dict[str, Any] = {"trust_remote_code": model.trust_remote_code}
        sampler = VllmSampler(files, sampling, positions=positions, dtype=model.dtype, **options)
        return sampler, model.dtype
    return sampler_on_all_cores(files, sampling, model.dtype, model.trust_remote_code)


# A server: bounded concurrency, retries, back-off


class Refused(Exception):
    """The server does not want this request, and would not want it later."""


class TryAgain(Exception):
    """This time it did not work; `after` is how long the server asks to wait, in seconds."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


@dataclass(frozen=True)
class EndpointSettings:
    """How a server is talked to; nothing here changes what is sampled."""

    model: str | None = None  # as the server calls it; None asks the server
    concurrency: int = 32  # requests under way at once, at most
    timeout: float = 600.0  # seconds a request may take
    retries: int = 5
    first_wait: float = 1.0  # seconds before the first retry; doubles each time
    key_from: str | None = None  # name of the environment variable that holds the key
    opens_thinking: bool = False  # the server's chat template ends inside <think>

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.timeout <= 0 or self.retries < 0 or self.first_wait < 0:
            raise ConfigError(
                f"concurrency {self.concurrency}, time-out {self.timeout:g} s and "
                f"{self.retries} retries cannot work: at least 1, above 0, at least 0."
            )


@dataclass(frozen=True)
class Client:
    """Sends JSON to a server and receives JSON, within a deadline and a size limit."""

    url: str
    timeout: float
    key: str | None = field(default=None, repr=False)

    def connect(self) -> httpx.AsyncClient:
        """Connections to be used within one event loop."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        headers |= {"Accept-Encoding": "identity"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        return httpx.AsyncClient(
            headers=headers,
            verify=ssl.create_default_context(),
            timeout=self.timeout,
            limits=httpx.Limits(max_connections=None),
            trust_env=False,  # no proxy, no .netrc
        )

    async def send(self, http: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON; Refused or TryAgain where there is none."""
        content = None if body is None else json.dumps(body)
        try:
            async with (
                asyncio.timeout(self.timeout),
                http.stream(method, f"{self.url}{path}", content=content) as response,
            ):
                answer = bytearray()
                async for chunk in response.aiter_bytes():
                    answer += chunk
                    if len(answer) > MAX_BYTES:
                        raise TryAgain(f"the answer is larger than {MAX_BYTES} bytes")
        except TimeoutError:
            raise TryAgain(f"no whole answer within {self.timeout:g} s") from None
        except (httpx.HTTPError, OSError) as error:
            raise TryAgain(f"{type(error).__name__}: {error}".rstrip(": ")) from None
        status = response.status_code
        if status != 200:
            reason = f"HTTP {status}: {_beginning(answer)}"
            if status in RETRIED or status >= 500:
                raise TryAgain(reason, _seconds(response.headers.get("Retry-After")))
            raise Refused(reason)
        try:
            return json.loads(answer)
        except (ValueError, RecursionError):
            reason = f"the answer is not JSON, or only half of it: {_beginning(answer)}"
            raise TryAgain(reason) from None


@dataclass(frozen=True)
class Endpoint:
    """One request per response, each with its own seed."""

    client: Client
    settings: EndpointSettings
    served: str
    sampling: EvaluationConfig
    prompt: PromptSettings
    seed: int
    budget: int | None

    def answers(self, units: Iterable[Unit]) -> Generator[Answered]:
        """Units as they complete; requests go on while the caller grades.

        The first request that fails for good ends all others, as leaving the generator does.
        """
        finished: queue.SimpleQueue[Answered | None] = queue.SimpleQueue()
        # as many units as keep every slot busy, those that the caller has not taken included
        ahead = asyncio.Semaphore(-(-2 * self.settings.concurrency // self.sampling.rollouts))
        with background_loop() as loop:
            requests = self._request_all(units, ahead, finished.put)
            running = asyncio.run_coroutine_threadsafe(requests, loop)
            running.add_done_callback(lambda _: finished.put(None))
            while (answered := finished.get()) is not None:
                yield answered
                loop.call_soon_threadsafe(ahead.release)
            try:
                running.result()
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from None

    async def _request_all(
        self, units: Iterable[Unit], ahead: asyncio.Semaphore, put: Callable[[Answered], None]
    ) -> None:
        slots = asyncio.Semaphore(self.settings.concurrency)

        async def request(dataset: str, problem: Problem, index: int) -> Response:
            seed = seed_of(self.seed, dataset, problem.id, index)
            async with slots:
                return await self._request(http, problem, seed)

        async def complete(
            unit: Unit, requests: Sequence[Sequence[asyncio.Task[Response]]]
        ) -> None:
            put((unit, [await asyncio.gather(*row) for row in requests]))

        async with self.client.connect() as http, asyncio.TaskGroup() as group:
            for unit in units:
                await ahead.acquire()
                indices = range(unit.first, unit.first + unit.num_samples)
                rows = [
                    [group.create_task(request(unit.dataset, problem, i)) for i in indices]
                    for problem in unit.problems
                ]
                group.create_task(complete(unit, rows))

    async def _request(self, http: httpx.AsyncClient, problem: Problem, seed: int) -> Response:
        """One response, tried as often as allowed."""
        body = self._body(problem, seed)
        jitter = random.Random(body["seed"])  # so that clients don't all come back at once
        url, tries = self.client.url, self.settings.retries + 1
        reason = ""
        for attempt in range(tries):
            try:
                answer = await self.client.send(http, "POST", "/chat/completions", body)
                return parse_answer(answer, self.settings.opens_thinking)
            except Refused as error:
                raise EngineError(f"{url} refuses: {error}") from None
            except TryAgain as error:
                reason = str(error)
                if attempt + 1 < tries:
                    pause = (
                        self.settings.first_wait * 2 ** min(attempt, 16) * jitter.uniform(0.5, 1.0)
                    )
                    await asyncio.sleep(min(LONGEST_WAIT, max(error.after, pause)))
        raise EngineError(
            f"{url} gave no answer in {tries} tries, at last: {reason}. What is done is kept: the "
            "same command goes on."
        )

    def _body(self, problem: Problem, seed: int) -> dict[str, Any]:
        thinking = self.prompt.enable_thinking
        extra = {"chat_template_kwargs": {"enable_thinking": thinking}}
        return {
            "model": self.served,
            "messages": list(to_messages(problem.question, self.prompt, self.budget)),
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "max_tokens": self.sampling.max_tokens,
            "seed": seed % 2**31,
            **({} if thinking is None else extra),
        }


def endpoint_backend(
    url: str,
    settings: EndpointSettings,
    prompt: PromptSettings,
    sampling: EvaluationConfig,
    *,
    seed: int = 0,
    budget: int | None = None,
) -> Backend:
    """The backend for a server's address; it has its own template and no weights to hash."""
    if prompt.plain is not None:
        raise ConfigError("an endpoint applies its own chat template: `plain` cannot be used")
    client = Client(api_url(url), settings.timeout, _key(settings.key_from))
    served = settings.model or _only_model(client)
    identity = {"name": served, "kind": "endpoint", "hash": None, "url": client.url}
    opens_thinking = {"opens_thinking": settings.opens_thinking}

    def prompt_row(problem: Problem) -> Mapping[str, Any]:
        messages = to_messages(problem.question, prompt, budget)
        return {"messages": list(messages), **opens_thinking}

    return Backend(
        model={**identity, **opens_thinking},
        prompt_hash=None,
        template=None,
        rows=sampling.rollouts,  # a unit is a problem: little is lost when it is cut off
        max_tokens=sampling.max_tokens,
        prompt_row=prompt_row,
        answers=Endpoint(client, settings, served, sampling, prompt, seed, budget).answers,
    )


def api_url(url: str) -> str:
    """`http://host:port/v1` with nothing secret in it; a path is added where there is none."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise ConfigError(f"{url!r} is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is not an address: write it as http://host:port/v1")
    if parts.username or parts.password or parts.query:
        raise ConfigError("an endpoint's address has no key in it: name a variable, --key-from")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
    return f"{parts.scheme}://{host}:{port}{path}"


def parse_answer(answer: Any, opens_thinking: bool) -> Response:
    """The response in a server's answer; TryAgain if it is not all there."""
    try:
        choice = answer["choices"][0]
        message, finish = choice["message"], choice["finish_reason"]
        content = message.get("content")
        thinking = message.get("reasoning_content") or message.get("reasoning")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise TryAgain("the answer has no choices[0].message and finish_reason") from None
    if not isinstance(finish, str) or not isinstance(content, str | None):
        raise TryAgain(f"the answer is unfinished: finish_reason is {finish!r}")
    stop = "length" if finish == "length" else "eos"
    usage = answer.get("usage")
    length = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if type(length) is not int or not 0 <= length < MAX_TOKENS:
        length = None
    if isinstance(thinking, str) and thinking:  # taken out of the text: put back, closed if it was
        closed = f"\n</think>\n{content or ''}" if content or stop == "eos" else ""
        return Response(f"<think>\n{thinking}{closed}", length, stop)
    return Response(content or "", length, stop, opens_thinking)


@contextmanager
def background_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own; what still runs in it when the block ends is cancelled.

    A thread, for a notebook has a loop in its main thread already.
    """
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run_until_stopped() -> None:
        stop = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run_until_stopped()), daemon=True)
    thread.start()
    loop, stop = started.result()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key or not (key.isascii() and key.isprintable()):
        raise ConfigError(f"--key-from {variable}: the environment has no such variable, or no key")
    return key


def _only_model(client: Client) -> str:
    async def models() -> Any:
        async with client.connect() as http:
            return await client.send(http, "GET", "/models")

    try:
        with background_loop() as loop:
            answer = asyncio.run_coroutine_threadsafe(models(), loop).result()
        names = [str(model["id"]) for model in answer["data"]]
    except (Refused, TryAgain) as error:
        raise EngineError(f"{client.url} does not say which models it serves: {error}") from None
    except (KeyError, TypeError):
        raise EngineError(f"{client.url}/models is not a list of models.") from None
    if len(names) != 1:
        raise ConfigError(
            f"{client.url} serves {len(names)} models ({', '.join(names[:10])}): choose one with "
            "--served-name"
        )
    return names[0]


def _beginning(content: bytes | bytearray) -> str:
    """The beginning of what a server says, on one line and printable."""
    text = content[:200].decode("utf-8", errors="replace")
    return "".join(c if c.isprintable() else " " for c in text).strip() or "nothing"


def _seconds(header: str | None) -> float:
    try:
        return max(0.0, float(header or 0))
    except ValueError:  # a date: the usual waiting time does
        return 0.0
