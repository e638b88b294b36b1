"""A piece of work that is ended in the middle again and again, and begun again each time."""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from processes import Ended, Fault, Nursery

from crt.run import Run

# What an evaluation leaves behind, without what tells when it was.
FILES = ("rollouts.jsonl.zst", "by_problem.jsonl", "figures.json", "problems.jsonl")
MOST_LIVES = 60  # of one piece of work; it comes further in each of them


@dataclass(frozen=True)
class Work:
    """A command that can be given again; `words` depend on what is there already."""

    words: Callable[[], list[object]]
    folder: Path
    most: int  # events in a life, about
    check: Callable[[], None] = lambda: None  # after every end


def training(tiny: Path, run: Path, most: int = 260) -> Work:
    """A run, begun or resumed; whatever happened, everything in it can be read."""

    def words() -> list[object]:
        start = ["--resume", run] if run.exists() else [tiny / "recipe.toml", "--out", run]
        return ["train", *start]

    return Work(words, run.parent, most, lambda: readable(run))


def evaluation(tiny: Path, out: Path) -> list[object]:
    """The command that evaluates the tiny model, begun or gone on with."""
    how = ["--rollouts", 2, "--rows", 4, "--max-tokens", 8, "--temperature", 1]
    return ["eval", tiny / "model", "--data", tiny / "data.jsonl", "--out", out, *how]


def lived_through(
    nursery: Nursery, work: Work, kind: str, choice: random.Random, expected: int
) -> int:
    """Faults of this kind until it is done in spite of them; returns how many there were."""
    for faults in range(MOST_LIVES):
        at = choice.randrange(1, work.most) if faults < MOST_LIVES - 1 else 10**9
        ended = nursery.live(work.words(), Fault(kind, at, work.folder))
        if ended.code == 0:
            return faults
        assert ended.code == expected, ended.told
        one_sentence(ended)
        work.check()
    raise AssertionError("it never came to its end")


def one_sentence(ended: Ended) -> None:
    """Killed, it says nothing; else the last line says what happened. Never a traceback."""
    assert "Traceback" not in ended.err, ended.told
    if ended.code == 2:
        assert ended.err.strip().splitlines()[-1].startswith("crt "), ended.told


def readable(run: Path) -> None:
    """Whoever looks at a run at this moment, such as a report, finds nothing torn."""
    if not run.exists():
        return
    found = Run.open(run)
    assert found.progress is not None and found.checkpoints is not None
    for row in found.steps:
        assert found.rollouts(row["step"])


def sampled(references: Path) -> dict[tuple[str, str], str]:
    """What the reference caches hold: file and problem → checksum."""
    found: dict[tuple[str, str], str] = {}
    for path in references.glob("*.sqlite"):
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("select problem, checksum from rollouts").fetchall()
            found |= {(path.name, problem): checksum for problem, checksum in rows}
    return found
