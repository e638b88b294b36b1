"""Who answers: a model on this machine, or an OpenAI-compatible server, in units of work."""

import asyncio
import json
import os
import queue
import random
import ssl
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
from anyio.from_thread import start_blocking_portal

from crt.config import EvaluationConfig, GradingConfig, ModelConfig
from crt.data.datasets import Loaded, digest
from crt.data.prompts import Prompt, PromptSettings, prepare, render, to_messages
from crt.errors import ConfigError, EngineError
from crt.evaluation.completions import thinking_of
from crt.evaluation.metrics import MAX_TOKENS, TruncatedIs
from crt.sampling.base import Engine, Sampler, Sampling, choose_engine
from crt.sampling.models import ModelFiles, describe_dtype, model_files
from crt.sampling.policy import Response, respond
from crt.sampling.workers import sampler_on_all_cores
from crt.types import Problem

MAX_BYTES = 64 * 2**20  # of a server's answer
LONGEST_WAIT = 60.0  # seconds between two tries
RETRIED = {408, 409, 425, 429}  # and every 5xx: the same request may succeed later


# What is evaluated and how


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
class Plan:
    """What is evaluated and how; every default is `crt.config`'s."""

    model: ModelConfig
    settings: EvaluationConfig
    prompt: PromptSettings = field(default_factory=PromptSettings)
    seed: int = 0
    truncated: TruncatedIs = "wrong"
    grading: GradingConfig = field(default_factory=GradingConfig)
    budget: int | None = None  # tokens, for a prompt that states a budget
    engine: Engine = "auto"
    rows: int | None = None  # responses sampled together; None for what fits
    endpoint: EndpointSettings = field(default_factory=EndpointSettings)
    load: Mapping[str, Any] | None = None  # how data sets are loaded: folder, seed, skip_bad, …


# Problems × rollouts as units of work, each with its own seed, in any order and only once


@dataclass(frozen=True)
class Unit:
    """Some problems of a set and some of their rollouts: what is sampled, or lost, together."""

    name: str  # sorts in the order of the plan
    dataset: str
    problems: tuple[Problem, ...]
    first: int  # rollout
    num_samples: int
    seed: int

    @property
    def size(self) -> int:
        return len(self.problems) * self.num_samples


Answered = tuple[Unit, Sequence[Sequence[Response]]]  # for each problem, for each rollout


@dataclass(frozen=True)
class Backend:
    model: Mapping[str, Any]  # who it is, for the manifest
    prompt_hash: str | None  # of the chat template with the settings, if it is known
    template: str | None  # the chat template itself, if it is known
    rows: int  # responses that a unit may have
    max_tokens: int  # the cap
    prompt_row: Callable[[Problem], Mapping[str, Any]]  # what is sent for a problem
    answers: Callable[[Iterable[Unit]], Generator[Answered]]  # units as they are done, any order


def plan_units(sets: Sequence[Loaded], rollouts: int, rows: int, seed: int) -> list[Unit]:
    """All the work, cut into units of at most `rows` responses.

    A unit's seed depends on what it holds and not on when it is sampled, so that an evaluation
    that was cut off anywhere gives what an uninterrupted one gives.
    """
    units: list[Unit] = []
    num_samples = min(rollouts, rows)
    step = max(1, rows // rollouts)
    for place, loaded in enumerate(sets):
        for start in range(0, len(loaded), step):
            problems = loaded.problems[start : start + step]
            for first in range(0, rollouts, num_samples):
                name = f"{place:03d}-{start:07d}-{first:05d}"
                unit_seed = seed_of(seed, loaded.name, problems[0].id, first)
                count = min(num_samples, rollouts - first)
                units.append(Unit(name, loaded.name, problems, first, count, unit_seed))
    return units


def seed_of(seed: int, dataset: str, problem_id: str, rollout: int) -> int:
    """A seed of 62 bits that is the same on every machine."""
    return int(digest(str(seed), dataset, problem_id, str(rollout))[:15], 16)


# A model on this machine: through vLLM where it can run, else the fast sampler


def local_backend(plan: Plan, sets: Sequence[Loaded]) -> tuple[Backend, list[str]]:
    """The backend, and what a user should know: a template's quirks, a cap that does not fit."""
    if plan.rows is not None and plan.rows < 1:
        raise ConfigError(f"rows = {plan.rows}: at least 1 response has to be sampled at a time")
    model, settings = plan.model, plan.settings
    trusted = model.trust_remote_code
    files = model_files(model.name, revision=model.revision, trust_remote_code=trusted)
    template = prepare(files.tokenizer, plan.prompt)  # pyright: ignore[reportArgumentType]

    def prompt_of(problem: Problem) -> Prompt:
        return render(problem, template, plan.budget)

    longest_prompt = max(len(prompt_of(each).token_ids) for loaded in sets for each in loaded)
    cap, notes = fit_cap(files, settings.max_tokens, longest_prompt)
    engine = choose_engine(plan.engine, files)
    sampling = Sampling(cap, settings.temperature, settings.top_p)
    if engine == "vllm":
        from crt.sampling.vllm import VllmSampler

        dtype, positions = model.dtype, cap + longest_prompt
        sampler: Sampler = VllmSampler(
            files, sampling, positions=positions, dtype=dtype, trust_remote_code=trusted
        )
    else:
        sampler, dtype = sampler_on_all_cores(files, sampling, model.dtype, trusted)
    own = files.tokenizer.chat_template

    def prompt_row(problem: Problem) -> Mapping[str, Any]:
        prompt = prompt_of(problem)
        return {"prompt": prompt.text, "opens_thinking": prompt.opens_thinking}

    def answers(units: Iterable[Unit]) -> Generator[Answered]:
        for unit in units:
            prompts = [prompt_of(problem) for problem in unit.problems]
            how = (files.tokenizer, files.eos_token_ids, unit.num_samples, unit.seed)
            yield unit, respond(prompts, sampler, *how)

    identity = {"name": files.name, "kind": "local", "hash": files.hash}
    backend = Backend(
        model={**identity, "dtype": dtype, "engine": engine},
        prompt_hash=template.hash,
        template=own if plan.prompt.plain is None and isinstance(own, str) else None,
        rows=plan.rows or sampler.batch_size(longest_prompt),
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


# A server: bounded concurrency, retries, back-off


class Refused(Exception):
    """The server does not want this request, and would not want it later."""


class TryAgain(Exception):
    """This time it did not work; `after` is how long the server asks to wait, in seconds."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


def endpoint_backend(plan: Plan) -> Backend:
    """The backend for a server's address; it has its own template and no weights to hash."""
    if plan.prompt.plain is not None:
        raise ConfigError("an endpoint applies its own chat template: `plain` cannot be used")
    endpoint = Endpoint(api_url(plan.model.name), plan, _key(plan.endpoint.key_from))
    served = plan.endpoint.model or endpoint.only_model()
    identity = {"name": served, "kind": "endpoint", "hash": None, "url": endpoint.url}
    opens_thinking = {"opens_thinking": plan.endpoint.opens_thinking}
    return Backend(
        model={**identity, **opens_thinking},
        prompt_hash=None,
        template=None,
        rows=plan.settings.rollouts,  # a unit is a problem: little is lost when it is cut off
        max_tokens=plan.settings.max_tokens,
        prompt_row=lambda problem: {"messages": endpoint.messages(problem), **opens_thinking},
        answers=lambda units: endpoint.answers(units, served),
    )


@dataclass(frozen=True)
class Endpoint:
    """A server: one request per response, each with its own seed."""

    url: str
    plan: Plan
    key: str | None = field(repr=False)

    def messages(self, problem: Problem) -> list[Any]:
        return list(to_messages(problem.question, self.plan.prompt, self.plan.budget))

    def only_model(self) -> str:
        async def models() -> Any:
            async with self._connect() as http:
                return await self._send(http, "GET", "/models")

        try:
            with start_blocking_portal() as portal:
                answer = portal.call(models)
            names = [str(model["id"]) for model in answer["data"]]
        except (Refused, TryAgain) as error:
            raise EngineError(f"{self.url} does not say which models it serves: {error}") from None
        except (KeyError, TypeError):
            raise EngineError(f"{self.url}/models is not a list of models.") from None
        if len(names) != 1:
            raise ConfigError(
                f"{self.url} serves {len(names)} models ({', '.join(names[:10])}): choose one with "
                "--served-name"
            )
        return names[0]

    def answers(self, units: Iterable[Unit], served: str) -> Generator[Answered]:
        """Units as they complete; requests go on while the caller grades.

        The first request that fails for good ends all others, as leaving the generator does.
        They run in a thread of their own, for a notebook has an event loop already.
        """
        finished: queue.SimpleQueue[Answered | None] = queue.SimpleQueue()
        # as many units as keep every slot busy, those that the caller has not taken included
        slots = self.plan.endpoint.concurrency
        ahead = asyncio.Semaphore(-(-2 * slots // self.plan.settings.rollouts))
        with start_blocking_portal() as portal:
            requests = portal.start_task_soon(self._request_all, units, served, ahead, finished.put)
            requests.add_done_callback(lambda _: finished.put(None))
            while (answered := finished.get()) is not None:
                yield answered
                portal.call(ahead.release)
            try:
                requests.result()
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from None

    async def _request_all(
        self,
        units: Iterable[Unit],
        served: str,
        ahead: asyncio.Semaphore,
        put: Callable[[Answered], None],
    ) -> None:
        slots = asyncio.Semaphore(self.plan.endpoint.concurrency)

        async def request(dataset: str, problem: Problem, index: int) -> Response:
            body = self._body(served, problem, seed_of(self.plan.seed, dataset, problem.id, index))
            async with slots:
                return await self._respond(http, body)

        async def complete(
            unit: Unit, requests: Sequence[Sequence[asyncio.Task[Response]]]
        ) -> None:
            put((unit, [await asyncio.gather(*row) for row in requests]))

        async with self._connect() as http, asyncio.TaskGroup() as group:
            for unit in units:
                await ahead.acquire()
                indices = range(unit.first, unit.first + unit.num_samples)
                rows = [
                    [group.create_task(request(unit.dataset, problem, i)) for i in indices]
                    for problem in unit.problems
                ]
                group.create_task(complete(unit, rows))

    def _body(self, served: str, problem: Problem, seed: int) -> dict[str, Any]:
        sampling, thinking = self.plan.settings, self.plan.prompt.enable_thinking
        extra = {"chat_template_kwargs": {"enable_thinking": thinking}}
        return {
            "model": served,
            "messages": self.messages(problem),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": seed % 2**31,
            **({} if thinking is None else extra),
        }

    async def _respond(self, http: httpx.AsyncClient, body: dict[str, Any]) -> Response:
        """One response, tried as often as allowed."""
        jitter = random.Random(body["seed"])  # so that clients don't all come back at once
        settings, reason = self.plan.endpoint, ""
        tries = settings.retries + 1
        for attempt in range(tries):
            try:
                answer = await self._send(http, "POST", "/chat/completions", body)
                return parse_answer(answer, settings.opens_thinking)
            except Refused as error:
                raise EngineError(f"{self.url} refuses: {error}") from None
            except TryAgain as error:
                reason = str(error)
                pause = settings.first_wait * 2 ** min(attempt, 16) * jitter.uniform(0.5, 1.0)
                if attempt + 1 < tries:
                    await asyncio.sleep(min(LONGEST_WAIT, max(error.after, pause)))
        raise EngineError(
            f"{self.url} gave no answer in {tries} tries, at last: {reason}. What is done is kept: "
            "the same command goes on."
        )

    def _connect(self) -> httpx.AsyncClient:
        """Connections to be used within one event loop."""
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        return httpx.AsyncClient(
            headers=headers,
            verify=ssl.create_default_context(),
            timeout=self.plan.endpoint.timeout,
            limits=httpx.Limits(max_connections=None),
            trust_env=False,  # no proxy, no .netrc
        )

    async def _send(self, http: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON, within a deadline and a size limit; Refused or TryAgain if none."""
        content = None if body is None else json.dumps(body)
        timeout = self.plan.endpoint.timeout
        try:
            async with (
                asyncio.timeout(timeout),
                http.stream(method, f"{self.url}{path}", content=content) as response,
            ):
                answer = bytearray()
                async for chunk in response.aiter_bytes():
                    answer += chunk
                    if len(answer) > MAX_BYTES:
                        raise TryAgain(f"the answer is larger than {MAX_BYTES} bytes")
        except TimeoutError:
            raise TryAgain(f"no whole answer within {timeout:g} s") from None
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
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    counted = details.get("reasoning_tokens") if isinstance(details, dict) else None
    if isinstance(thinking, str) and thinking:  # taken out of the text: put back, closed if it was
        closed = f"\n</think>\n{content or ''}" if content or stop == "eos" else ""
        text, opens_thinking = f"<think>\n{thinking}{closed}", False
    else:
        text, counted = content or "", counted or None  # 0: the server takes nothing out
    thought = thinking_of(text, opens_thinking, length, counted)
    return Response(text, length, stop, opens_thinking, thought)


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key or not (key.isascii() and key.isprintable()):
        raise ConfigError(f"--key-from {variable}: the environment has no such variable, or no key")
    return key


def _beginning(content: bytes | bytearray) -> str:
    """The beginning of what a server says, on one line and printable."""
    text = content[:200].decode("utf-8", errors="replace")
    return "".join(c if c.isprintable() else " " for c in text).strip() or "nothing"


def _seconds(header: str | None) -> float:
    try:
        return max(0.0, float(header or 0))
    except ValueError:  # a date: the usual waiting time does
        return 0.0
