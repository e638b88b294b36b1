"""What is counted, for Prometheus."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "crt_requests",
            "Requests answered.",
            ["route", "level", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "crt_request_seconds",
            "From a request to the end of its answer.",
            ["route", "level"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.first = Histogram(
            "crt_first_token_seconds",
            "From a request to its first token.",
            ["level"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.tokens = Counter(
            "crt_tokens",
            "Tokens read (prompt), written (completion), of these in thinking (reasoning).",
            ["level", "kind"],
            registry=self.registry,
        )
        self._running = self._gauge("crt_running", "Responses being written.")
        self._waiting = self._gauge("crt_waiting", "Responses in the queue.")

    def answered(self, route: str, level: str, status: int, seconds: float) -> None:
        """One more request."""
        self.requests.labels(route, level, str(status)).inc()
        self.seconds.labels(route, level).observe(seconds)

    def spoken(self, level: str, usage: Mapping[str, Any]) -> None:
        """Tokens of a request that has ended, or whose client is gone."""
        thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
        told = {
            "prompt": usage.get("prompt_tokens") or 0,
            "completion": usage.get("completion_tokens") or 0,
            "reasoning": thought,
        }
        for kind, count in told.items():
            self.tokens.labels(level, kind).inc(count)

    def watch(self, level: str, counts: Callable[[], tuple[int, int]]) -> None:
        """Asks for the numbers of responses running and waiting when they are read."""
        self._running.labels(level).set_function(lambda: counts()[0])
        self._waiting.labels(level).set_function(lambda: counts()[1])

    def text(self) -> bytes:
        """In Prometheus' format."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(name, about, ["level"], registry=self.registry)


@dataclass
class Heard:
    """Notes of one request how soon it began and what it took."""

    metrics: Metrics
    level: str
    begun: bool = False

    def first(self, seconds: float) -> None:
        """A token is there; only the first time counts."""
        if not self.begun:
            self.begun = True
            self.metrics.first.labels(self.level).observe(seconds)

    def ended(self, usage: Mapping[str, Any]) -> None:
        """Nothing follows."""
        self.metrics.spoken(self.level, usage)
