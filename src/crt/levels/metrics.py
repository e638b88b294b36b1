"""Counters of the proxy, for Prometheus."""

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "crt_requests", "Requests answered.", ["route", "level", "status"], registry=registry
        )
        self.seconds = Histogram(
            "crt_request_seconds",
            "From a request to the end of its answer.",
            ["route", "level"],
            buckets=SECONDS,
            registry=registry,
        )
        self.first_token = Histogram(
            "crt_first_token_seconds",
            "From a request to the first token of a stream.",
            ["level"],
            buckets=SECONDS,
            registry=registry,
        )
        self.tokens = Counter(
            "crt_tokens",
            "Tokens of finished answers: prompt, completion, and reasoning as part of completion.",
            ["level", "kind"],
            registry=registry,
        )
        self.running = Gauge("crt_running", "Responses under way.", ["level"], registry=registry)
        self.waiting = Gauge("crt_waiting", "Responses in the queue.", ["level"], registry=registry)

    def count_request(self, route: str, level: str, status: int, seconds: float) -> None:
        """One more request."""
        self.requests.labels(route, level, str(status)).inc()
        self.seconds.labels(route, level).observe(seconds)

    def count_tokens(self, level: str, usage: Mapping[str, Any]) -> None:
        """Tokens of an answer that has ended."""
        details = usage.get("completion_tokens_details") or {}
        counts = {
            "prompt": usage.get("prompt_tokens"),
            "completion": usage.get("completion_tokens"),
            "reasoning": details.get("reasoning_tokens"),
        }
        for kind, count in counts.items():
            self.tokens.labels(level, kind).inc(count or 0)

    def watch_load(self, level: str, load: Callable[[], tuple[int, int]]) -> None:
        """Reads the responses running and waiting whenever the metrics are read."""
        self.running.labels(level).set_function(lambda: load()[0])
        self.waiting.labels(level).set_function(lambda: load()[1])

    def text(self) -> bytes:
        """In Prometheus' format."""
        return generate_latest(self.registry)
