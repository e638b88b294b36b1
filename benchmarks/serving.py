"""Requests and tokens a second with 1, 8 and 64 clients, against one request at a time.

    python benchmarks/serving.py runs/demo --rounds 4

Starts `crt serve` on loopback twice, with a single place and with continuous batching, and sends
the same questions with the same seeds to both. Beside the clock it reads the server's own CPU
seconds, which other work on the machine does not change.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import httpx
import psutil

CLIENTS = (1, 8, 64)
MOST_SECONDS = 900.0  # for one measurement


@dataclass(frozen=True)
class Measured:
    """One measurement; `tokens` are those generated."""

    places: int
    clients: int
    requests: int
    tokens: int
    seconds: float
    cpu_seconds: float
    slowest: float  # seconds of the slowest request

    def row(self, base: "Measured") -> str:
        """A line of the table; ratios are against the first."""
        speed, base_speed = self.tokens / self.seconds, base.tokens / base.seconds
        thrift, base_thrift = self.tokens / self.cpu_seconds, base.tokens / base.cpu_seconds
        cells = (
            f"{self.places}",
            f"{self.clients}",
            f"{self.requests / self.seconds:.1f}",
            f"{speed:,.0f}",
            f"{speed / base_speed:.1f}",
            f"{thrift:,.0f}",
            f"{thrift / base_thrift:.1f}",
            f"{self.slowest:.1f}",
        )
        return f"| {' | '.join(cells)} |"


HEAD = (
    "| places | clients | requests/s | tokens/s | ratio | tokens/CPU s | ratio | slowest, s |\n"
    "|---|---|---|---|---|---|---|---|"
)


@contextmanager
def server(family: Path, places: int) -> Iterator[tuple[str, psutil.Process]]:
    """`crt serve` on a free port, until the block ends."""
    command = [sys.executable, "-m", "crt", "serve", str(family), "--port", "0"]
    limits = ["--slots", str(places), "--queue", "1000", "--time-limit", str(MOST_SECONDS)]
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    with subprocess.Popen(
        [*command, *limits], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            told = (re.search(r"Playground: (http\S+)/", line) for line in process.stdout)
            yield next(found.group(1) for found in told if found), psutil.Process(process.pid)
        finally:
            process.terminate()


async def ask(client: httpx.AsyncClient, name: str, question: str, seed: int) -> tuple[int, float]:
    """Tokens of one answer, and how long it took."""
    begun = time.monotonic()
    body = {
        "model": name,
        "messages": [{"role": "user", "content": question}],
        "measured_prompt": True,
        "seed": seed,
    }
    told = await client.post("/v1/chat/completions", json=body)
    told.raise_for_status()
    return told.json()["usage"]["completion_tokens"], time.monotonic() - begun


async def load(url: str, name: str, questions: list[str], clients: int) -> list[tuple[int, float]]:
    """Every question once, by so many clients that each ask again as soon as they are answered."""
    left = iter(enumerate(questions))
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(
        base_url=url, timeout=MOST_SECONDS, limits=limits, trust_env=False
    ) as client:

        async def one() -> list[tuple[int, float]]:
            return [await ask(client, name, question, seed) for seed, question in left]

        return [
            answer
            for part in await asyncio.gather(*(one() for _ in range(clients)))
            for answer in part
        ]


def measure(
    url: str, process: psutil.Process, name: str, questions: list[str], places: int, clients: int
) -> Measured:
    """One row of the table."""
    asyncio.run(load(url, name, questions[:4], 4))  # so that everything is warm
    before, begun = process.cpu_times(), time.monotonic()
    answers = asyncio.run(load(url, name, questions, clients))
    seconds, after = time.monotonic() - begun, process.cpu_times()
    return Measured(
        places,
        clients,
        len(answers),
        sum(tokens for tokens, _ in answers),
        seconds,
        after.user + after.system - before.user - before.system,
        max(took for _, took in answers),
    )


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("family", type=Path, help="a run with family.json, or the file")
    parser.add_argument("--level", default="full")
    parser.add_argument("--rounds", type=int, default=4, help="requests a client, about")
    parser.add_argument("--places", type=int, default=64)
    args = parser.parse_args()
    file = args.family / "family.json" if args.family.is_dir() else args.family
    family = json.loads(file.read_text())
    asked = [example["question"] for example in family["examples"]]
    questions = list(islice(cycle(asked), args.rounds * args.places + 8))
    rows: list[Measured] = []
    for places, numbers in ((1, (8,)), (args.places, CLIENTS)):
        with server(args.family, places) as (url, process):
            name = f"{family['name']}:{args.level}"
            for clients in numbers:
                some = questions[: args.rounds * (clients if places > 1 else 4) + 8]
                rows.append(measure(url, process, name, some, places, clients))
                print(rows[-1], file=sys.stderr)
    print(HEAD)
    print("\n".join(row.row(rows[0]) for row in rows))


if __name__ == "__main__":
    main()
