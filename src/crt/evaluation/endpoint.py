"""Answers from an OpenAI-compatible server: bounded concurrency, retries, back-off."""

import os
import random
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from crt.config import EvaluationConfig
from crt.data.prompts import PromptSettings, to_messages
from crt.errors import ConfigError, EngineError
from crt.evaluation.http import Address, Client, Refused, TryAgain, address
from crt.evaluation.sampling import Answered, Unit, seed_of
from crt.evaluation.tally import MOST
from crt.sampling.policy import Response
from crt.types import Problem

LONGEST_WAIT = 60.0


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
class Endpoint:
    """One request a response, each with its own seed."""

    client: Client
    settings: EndpointSettings
    served: str
    sampling: EvaluationConfig
    prompt: PromptSettings
    seed: int
    budget: int | None
    failures: list[EngineError] = field(default_factory=list[EngineError])  # the first one counts

    @property
    def rows(self) -> int:
        """A unit is a problem with all of its rollouts: little is lost when cut off."""
        return self.sampling.rollouts

    @property
    def max_tokens(self) -> int:
        """The cap; whether it fits is the server's to say."""
        return self.sampling.max_tokens

    def model(self) -> Mapping[str, Any]:
        """The server's word for it: there are no weights to hash."""
        return {
            "name": self.served,
            "kind": "endpoint",
            "hash": None,
            "url": self.client.address.url,
            "opens_thinking": self.settings.opens_thinking,
        }

    def prompt_hash(self) -> str | None:
        """Unknown: the server applies its own template."""
        return None

    def template_text(self) -> str | None:
        """Unknown as well."""
        return None

    def sent(self, problem: Problem) -> Mapping[str, Any]:
        """The messages."""
        messages = list(to_messages(problem.question, self.prompt, self.budget))
        return {"messages": messages, "opens_thinking": self.settings.opens_thinking}

    def answers(self, units: Iterable[Unit]) -> Iterator[Answered]:
        """Units as they complete; never more than `concurrency` requests at once."""
        waiting: dict[str, tuple[Unit, list[Future[Response]]]] = {}
        work = iter(units)
        pool = ThreadPoolExecutor(self.settings.concurrency)
        try:
            while True:
                self._fill(pool, work, waiting)
                if not waiting:
                    return
                pending = [f for _, asked in waiting.values() for f in asked if not f.done()]
                wait(pending, return_when=FIRST_COMPLETED)
                yield from _complete(waiting)
                if self.failures:
                    raise self.failures[0]
        finally:
            self.client.stop()
            pool.shutdown(wait=True, cancel_futures=True)

    def _fill(
        self,
        pool: ThreadPoolExecutor,
        work: Iterator[Unit],
        waiting: dict[str, tuple[Unit, list["Future[Response]"]]],
    ) -> None:
        """Keeps as much asked for as keeps every thread busy."""
        asked = sum(not f.done() for _, futures in waiting.values() for f in futures)
        while asked < 2 * self.settings.concurrency and (unit := next(work, None)) is not None:
            futures = [
                pool.submit(self._ask, unit, problem, unit.first + offset)
                for problem in unit.problems
                for offset in range(unit.num_samples)
            ]
            waiting[unit.name] = (unit, futures)
            asked += len(futures)

    def _ask(self, unit: Unit, problem: Problem, rollout: int) -> Response:
        """One response, tried as often as allowed."""
        body = self._body(problem, seed_of(self.seed, unit.data, problem.id, rollout))
        jitter = random.Random(body["seed"])  # so that clients don't all come back at once
        delay = self.settings.first_wait
        for left in range(self.settings.retries, -1, -1):
            try:
                told = self.client.send("POST", "/chat/completions", body)
                return answer_of(told, self.settings.opens_thinking)
            except Refused as error:
                raise self._failed(f"{self.client.address.url} refuses: {error}") from None
            except TryAgain as error:
                pause = min(LONGEST_WAIT, max(error.after, delay * jitter.uniform(0.5, 1.0)))
                if left == 0 or not self.client.wait(pause):
                    raise self._failed(self._gave_up(str(error))) from None
                delay *= 2
        raise AssertionError("the last try returns or raises")

    def _failed(self, sentence: str) -> EngineError:
        """Notes the failure and stops the others: the evaluation cannot be whole any more."""
        error = EngineError(sentence)
        self.failures.append(error)
        self.client.stop()
        return error

    def _gave_up(self, reason: str) -> str:
        return (
            f"{self.client.address.url} gave no answer in {self.settings.retries + 1} tries, at "
            f"last: {reason}. What is done is kept: the same command goes on."
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


def endpoint(
    url: str,
    settings: EndpointSettings,
    prompt: PromptSettings,
    sampling: EvaluationConfig,
    *,
    seed: int = 0,
    budget: int | None = None,
) -> Endpoint:
    """The backend for a server's address."""
    if prompt.plain is not None:
        raise ConfigError("an endpoint applies its own chat template: `plain` cannot be used")
    where = address(url)
    client = Client(where, _key(settings.key_from), settings.timeout)
    served = settings.model or _only_model(client, where)
    return Endpoint(client, settings, served, sampling, prompt, seed, budget)


def answer_of(told: Any, opens_thinking: bool) -> Response:
    """The response in a server's answer; TryAgain if it is not all there."""
    try:
        choice = told["choices"][0]
        message, finish = choice["message"], choice["finish_reason"]
        said, thought = message.get("content"), _thought(message)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise TryAgain("the answer has no choices[0].message and finish_reason") from None
    if not isinstance(finish, str) or not isinstance(said, str | None):
        raise TryAgain(f"the answer is unfinished: finish_reason is {finish!r}")
    stop = "length" if finish == "length" else "eos"
    if thought:  # the server took the thinking out of the text: put it back, closed if it was
        closed = f"\n</think>\n{said or ''}" if said or stop == "eos" else ""
        return Response(f"<think>\n{thought}{closed}", _tokens(told), stop)
    return Response(said or "", _tokens(told), stop, opens_thinking)


def _thought(message: Mapping[str, Any]) -> str:
    found = message.get("reasoning_content") or message.get("reasoning")
    return found if isinstance(found, str) else ""


def _tokens(told: Mapping[str, Any]) -> int | None:
    usage = told.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    known = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < MOST
    return count if known else None


def _complete(waiting: dict[str, tuple[Unit, list["Future[Response]"]]]) -> Iterator[Answered]:
    """Units whose answers are all there leave."""
    done = [name for name, (_, asked) in waiting.items() if all(f.done() for f in asked)]
    for name in done:
        unit, asked = waiting.pop(name)
        if not any(future.exception() for future in asked):
            answers = [future.result() for future in asked]
            num_samples = unit.num_samples
            yield unit, [answers[i : i + num_samples] for i in range(0, len(answers), num_samples)]


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key or not key.isprintable():
        raise ConfigError(f"--key-from {variable}: the environment has no such variable, or no key")
    return key


def _only_model(client: Client, where: Address) -> str:
    try:
        told = client.send("GET", "/models")
        names = [str(each["id"]) for each in told["data"]]
    except (Refused, TryAgain) as error:
        raise EngineError(f"{where.url} does not say which models it serves: {error}") from None
    except (KeyError, TypeError):
        raise EngineError(f"{where.url}/models is not a list of models.") from None
    if len(names) != 1:
        raise ConfigError(
            f"{where.url} serves {len(names)} models ({', '.join(names[:10])}): choose one with "
            "--served-name"
        )
    return names[0]
