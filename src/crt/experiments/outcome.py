"""What came of a run: how far it is, how it ended, and which checkpoints are measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from crt.algorithm.two_stage import candidates_of, shortest_feasible
from crt.run import CONFIG, Run

How = Literal["absent", "unfinished", "finished", "stopped"]


@dataclass(frozen=True)
class Outcome:
    """A run as its files say; `stopped` is the alarm's sentence, `chosen` kind → step."""

    how: How
    share: float  # of its tokens or steps
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    stopped: str = ""
    chosen: dict[str, int] | None = None
    feasible: bool = False

    @property
    def over(self) -> bool:
        """It came to an end, good or bad."""
        return self.how in ("finished", "stopped")


def outcome(path: Path) -> Outcome:
    """Read from the run's directory; one that is not there is at its beginning."""
    if not (path / CONFIG).is_file():
        return Outcome("absent", 0.0)
    run = Run.open(path)
    rows, progress, schedule = run.steps, run.progress, run.config.schedule
    tokens = sum(row["generated"] for row in rows)
    spent = tokens / schedule.tokens if schedule.tokens else 0.0
    stopped = str(progress.get("stopped") or "")
    how: How = "finished" if progress.get("finished") else "stopped" if stopped else "unfinished"
    chosen, feasible = checkpoints(run, progress)
    return Outcome(
        how,
        1.0 if how == "finished" else min(1.0, max(len(rows) / schedule.steps, spent)),
        len(rows),
        tokens,
        sum(sum(row["seconds"].values()) for row in rows),
        stopped,
        chosen,
        feasible,
    )


def checkpoints(run: Run, progress: dict[str, Any]) -> tuple[dict[str, int], bool]:
    """The recommended one and the last, by step, and whether the first kept the guard.

    A run that was stopped has named none: then it is the shortest feasible of those it has.
    """
    records = run.checkpoints
    if not records:
        return {}, False
    if "recommended" in progress:
        best, feasible = int(progress["recommended"]), bool(progress["feasible"])
    else:
        found = candidates_of(records)
        if not found:
            return {"last": max(records)}, False
        chosen = shortest_feasible(found)
        best, feasible = chosen.step, chosen.feasible
    return {"recommended": best, "last": max(records)}, feasible
