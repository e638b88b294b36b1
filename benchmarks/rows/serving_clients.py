"""Serving: 64 clients at once beside one request at a time, on the same server and questions."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from harness.results import Row, compared
from harness.timing import Contender, interleaved
from serving import load, server

from crt.data.datasets import load as load_data
from crt.io import write_json
from crt.levels.family import FORMAT
from crt.pocket import path
from crt.sampling.models import weights_hash
from crt.version import __version__

from . import Setting

CLIENTS = 64
ONE_AT_A_TIME = 12  # answers in a repeat
ROUNDS = 3  # answers that each of many clients gets in a repeat


def rows(setting: Setting) -> Iterator[Row]:
    """Two servers, one with a single place; the one that is not asked sleeps."""
    clients, rounds, single = (4, 1, 2) if setting.small else (CLIENTS, ROUNDS, ONE_AT_A_TIME)
    questions = [p.question for p in load_data(f"pocket/test:{clients * rounds}").problems]
    file = family(setting.folder / "serving" / "family.json")
    with ExitStack() as stack:
        one, _ = stack.enter_context(server(file, 1))
        many, _ = stack.enter_context(server(file, clients))
        contenders = {
            "many": asking(many, questions, clients),
            "one": asking(one, questions[:single], 1),
        }
        timings = interleaved(contenders, setting.repeats)
    yield compared(
        "serving", f"`crt serve`, {clients} clients, pocket model", "one request at a time",
        timings["many"], timings["one"], goal=5, unit="s / 1,000 tokens", scale=1000,
        note="CPU seconds are those of server and clients",
    )  # fmt: skip


def asking(url: str, questions: list[str], clients: int) -> Contender:
    """A contender that has every question answered; its work is the answers' tokens."""

    def run(repeat: int) -> float:
        some = questions if repeat >= 0 else questions[:8]  # a few warm up
        answers = asyncio.run(load(url, "bench:full", some, clients))
        return sum(tokens for tokens, _ in answers)

    return run


def family(file: Path) -> Path:
    """The pocket model alone, as a family; its figures are not looked at, so all are 1."""
    one = {"value": 1.0, "low": 1.0, "high": 1.0, "problems": 1}
    level = {
        "name": "full", "step": 0, "model": "pocket", "folder": False,
        "hash": weights_hash(path()), "acc": one, "len": one, "r_zip": None, "saved": None,
        "certificate": None,
    }  # fmt: skip
    measured = {
        "data": [], "rollouts": 1, "temperature": 1.0, "top_p": 1.0, "max_tokens": 256,
        "evaluation": "none", "date": "none",
    }  # fmt: skip
    told = {
        "format": FORMAT, "name": "bench", "method": "crt", "tolerance": 0.01, "candidates": 0,
        "measured": measured, "prompt": {}, "levels": [level], "examples": [],
        "versions": {"crt": __version__},
    }  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, told)
    return file
