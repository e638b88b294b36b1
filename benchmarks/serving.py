"""Requests and tokens per second with 1, 8 and 64 clients, against one request at a time.

    python benchmarks/serving.py runs/demo --rounds 4 --repeats 3
    python benchmarks/serving.py --server 9102 PID FOLDER     a server that is there, on this port

Starts `crt serve` on loopback twice, with a single place and with continuous batching, and sends
the same questions with the same seeds to both, in turns: every repeat measures one request at a
time anew and is compared with that. The table has the medians over the repeats. Beside the clock
it reads the server's own CPU seconds, which other work on the machine changes less.
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
from statistics import median

import httpx
import psutil

CLIENTS = (1, 8, 64)
MOST_SECONDS = 900.0  # for one measurement
INSTRUCTION = "\nPlease reason step by step, and put your final answer within \\boxed{}."
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 256}


@dataclass(frozen=True)
class Case:
    """So many clients ask a server with so many places."""

    places: int
    clients: int


@dataclass(frozen=True)
class Measured:
    """One measurement; `tokens` are those generated."""

    requests: int
    tokens: int
    seconds: float
    cpu_seconds: float
    slowest: float  # seconds of the slowest request

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds

    @property
    def thrift(self) -> float:
        """Tokens a CPU second of the server."""
        return self.tokens / self.cpu_seconds


HEAD = (
    "| places | clients | requests/s | tokens/s | ratio | lowest, highest | tokens/CPU s | ratio "
    "| lowest, highest | slowest, s |\n|---|---|---|---|---|---|---|---|---|---|"
)


def row(case: Case, measured: list[Measured], base: list[Measured]) -> str:
    """A line of the table: medians over repeats, ratios within each repeat."""
    pairs = list(zip(measured, base, strict=True))
    cells = (
        f"{case.places}",
        f"{case.clients}",
        f"{median(each.requests / each.seconds for each in measured):.1f}",
        f"{median(each.speed for each in measured):,.0f}",
        *_ratio([each.speed / one.speed for each, one in pairs]),
        f"{median(each.thrift for each in measured):,.0f}",
        *_ratio([each.thrift / one.thrift for each, one in pairs]),
        f"{median(each.slowest for each in measured):.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _ratio(found: list[float]) -> tuple[str, str]:
    return f"{median(found):.1f}", f"{min(found):.1f}, {max(found):.1f}"


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
    messages = [{"role": "user", "content": f"{question}{INSTRUCTION}"}]
    body = {"model": name, "messages": messages, "seed": seed, **SAMPLING}
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
    url: str, process: psutil.Process, name: str, questions: list[str], clients: int
) -> Measured:
    """One measurement."""
    before, begun = process.cpu_times(), time.monotonic()
    answers = asyncio.run(load(url, name, questions, clients))
    seconds, after = time.monotonic() - begun, process.cpu_times()
    return Measured(
        len(answers),
        sum(tokens for tokens, _ in answers),
        seconds,
        after.user + after.system - before.user - before.system,
        max(took for _, took in answers),
    )


def measure_server(port: int, pid: int, name: str) -> None:
    """A server that is there, with 1, 8 and 64 clients."""
    from crt.data.datasets import load as load_data

    questions = [problem.question for problem in load_data("pocket/test:128").problems]
    url, process = f"http://127.0.0.1:{port}", psutil.Process(pid)
    asyncio.run(load(url, name, questions[:4], 4))  # so that everything is warm
    one = measure(url, process, name, questions[:8], 1)
    for clients in CLIENTS:
        found = measure(url, process, name, questions[: max(8, 2 * clients)], clients)
        print(
            f"{clients} clients: {found.speed:,.0f} tokens/s ({found.speed / one.speed:.1f}), "
            f"{found.thrift:,.0f} tokens/CPU s ({found.thrift / one.thrift:.1f}), "
            f"slowest {found.slowest:.1f} s, {process.memory_info().rss >> 20} MB"
        )


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("family", type=Path, nargs="?", help="a run with family.json, or the file")
    parser.add_argument("--server", nargs=3, metavar=("PORT", "PID", "MODEL"))
    parser.add_argument("--level", default="full")
    parser.add_argument("--rounds", type=int, default=4, help="requests a client, about")
    parser.add_argument("--repeats", type=int, default=3, help="how often all is measured")
    parser.add_argument("--places", type=int, default=64)
    args = parser.parse_args()
    if args.server:
        measure_server(int(args.server[0]), int(args.server[1]), args.server[2])
        return
    file = args.family / "family.json" if args.family.is_dir() else args.family
    family = json.loads(file.read_text())
    asked = [example["question"] for example in family["examples"]]
    questions = list(islice(cycle(asked), args.rounds * args.places + 8))
    name = f"{family['name']}:{args.level}"
    base = Case(1, 8)
    cases = {case: [] for case in (base, *(Case(args.places, clients) for clients in CLIENTS))}
    with server(args.family, 1) as one, server(args.family, args.places) as many:
        for url, _ in (one, many):
            asyncio.run(load(url, name, questions[:4], 4))  # so that everything is warm
        for repeat in range(args.repeats):
            for case, found in cases.items():
                waits = 4 if case is base else case.clients
                some = questions[: args.rounds * waits + 8]
                found.append(measure(*(one if case is base else many), name, some, case.clients))
                print(repeat + 1, case, found[-1], file=sys.stderr)
    print(HEAD)
    print("\n".join(row(case, found, cases[base]) for case, found in cases.items()))


if __name__ == "__main__":
    main()
