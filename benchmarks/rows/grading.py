"""Grading rollout-like answers: ours beside math-verify, one at a time and in a pool."""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from grader import rollouts
from harness.results import Row, compared
from harness.timing import Contender, interleaved
from made_up_answers import records

from crt.grading.grader import Grader, Item

from . import Setting

ANSWERS, GROUP = 20_000, 16
SLICE = 1000  # answers that math-verify grades in a repeat: it needs minutes for all
NOTE = (
    f"ours grades all {ANSWERS:,} answers in every repeat, math-verify another {SLICE:,} of them, "
    "drawn at random: it keeps nothing, so an answer costs it the same in any company"
)


def rows(setting: Setting) -> Iterator[Row]:
    """Answers in groups of 16, most of a group alike; a process per core for everybody."""
    count = 400 if setting.small else ANSWERS
    data = [item for item, _ in rollouts(sets(), count, GROUP)]
    with multiprocessing.get_context("spawn").Pool(setting.cores) as pool:
        contenders = {"crt": ours(data, setting.cores), "math-verify": theirs(data, pool.map)}
        timings = interleaved(contenders, setting.repeats)
    yield compared(
        "grading", f"grading {count:,} rollout-like answers", "math-verify in a pool",
        timings["crt"], timings["math-verify"], goal=20, unit="ms per answer", scale=1000,
        note=NOTE,
    )  # fmt: skip


def sets() -> dict[str, list[dict[str, Any]]]:
    """GSM8K and MATH train from CRT_DATA if they are there, else answers made up like them."""
    folder = os.environ.get("CRT_DATA")
    found = {}
    for name in ("gsm8k_train", "math_train"):
        path = Path(folder or "/nowhere") / f"{name}.jsonl"
        if path.is_file():
            with path.open(encoding="utf-8") as lines:
                found[name] = [row for row in map(json.loads, lines) if row["answer"]]
    return found or {"made up": records(4000)}


def ours(data: Sequence[Item], workers: int) -> Contender:
    """Our grader, new in every repeat, so that it remembers nothing."""

    def run(_: int) -> float:
        with Grader(workers=workers) as grader:
            return len(grader.grade_many(data))

    return run


def theirs(data: Sequence[Item], apply: Callable[..., Iterable[bool]]) -> Contender:
    """math-verify as its page says to use it, here or in other processes."""
    return lambda repeat: len(list(apply(plain, some(data, repeat))))


def some(data: Sequence[Item], repeat: int) -> Sequence[Item]:
    """Another part in every repeat; the answers are in random order."""
    first = (repeat + 1) * SLICE % max(1, len(data) - SLICE)
    return data[first : first + SLICE]


def plain(item: Item) -> bool:
    """math-verify's word on one answer."""
    return taken_for_right(item.text, item.problem.answer)


def taken_for_right(text: str, gold: str) -> bool:
    """Whether math-verify takes a response for right."""
    from math_verify import parse, verify

    return verify(parse(f"${gold}$"), parse(text))
