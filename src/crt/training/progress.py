"""The live view: where training is, what the step was for, and how it stands."""

import os
import sys
import time
from typing import Any

GOALS = {  # (stage, goal) in the paper's words: to rectify is to repair the constraint
    (1, "length"): "shorten",
    (1, "accuracy"): "rectify",
    (2, "accuracy"): "raise",
    (2, "length"): "rectify",
}
EVERY = 5  # steps per line, where no one is watching
SECONDS = 10.0  # between lines of a count there


class Progress:
    """A progress bar on a terminal, now and then a line elsewhere."""

    def __init__(self, shown: bool = True) -> None:
        shown = shown and "CRT_QUIET" not in os.environ
        self.shown, self.bar, self.printed, self.counted = shown, None, -SECONDS, False
        if shown and sys.stderr.isatty():
            self.bar = _bar()
            self.task = self.bar.add_task("", total=None, text="loading")
            self.bar.start()

    def begin(self, steps: int, done: int, tokens: int | None = None, generated: int = 0) -> None:
        """Training begins or goes on, `done` steps and `generated` tokens after its start."""
        self.steps, self.tokens, self.generated = steps, tokens, generated
        self.started, self.begun = time.monotonic(), self._share(done)
        if self.bar is not None:
            self.bar.reset(self.task, total=1.0, completed=self.begun, text="")

    def __call__(self, row: dict[str, Any]) -> None:
        """One more step."""
        self.generated += row["generated_tokens"]
        share = self._share(row["step"])
        line = f"{self._place(row['step'])}  {describe(row)}"
        if self.bar is not None:
            self.bar.update(self.task, completed=share, text=f"{self._left(share)}  {line}")
        elif row["step"] % EVERY == 0 or share >= 1:
            self.say(f"{line}  {self._left(share)}")

    def count(self, what: str, done: int, total: int) -> None:
        """How many problems are answered outside the steps.

        Without a terminal the first count of all is shown at once. Later ones are shown when they
        have got somewhere, because every step may ask for a few problems.
        """
        line = f"{what}, {done} of {total} problems"
        if self.bar is not None:
            self.bar.update(self.task, text=line)
        elif (done or not self.counted) and time.monotonic() - self.printed >= SECONDS:
            self.counted = True
            self.say(line)

    def say(self, sentence: str) -> None:
        """What is done outside the steps."""
        if self.bar is not None:
            self.bar.console.print(sentence, markup=False, highlight=False)
        elif self.shown:
            self.printed = time.monotonic()
            print(sentence, flush=True)

    def close(self) -> None:
        """Leaves the terminal as it was."""
        if self.bar is not None:
            self.bar.stop()

    def _share(self, step: int) -> float:
        """How much of the run is done: by steps or by tokens, whichever is nearer to its end."""
        spent = self.generated / self.tokens if self.tokens else 0.0
        return min(1.0, max(step / self.steps, spent))

    def _place(self, step: int) -> str:
        if not self.tokens:
            return f"step {step}/{self.steps}"
        return f"step {step}, {min(1.0, self.generated / self.tokens):.0%} of the tokens"

    def _left(self, share: float) -> str:
        per_share = (time.monotonic() - self.started) / max(1e-9, share - self.begun)
        return f"{per_share * (1 - share) / 60:.1f} min left"


def describe(row: dict[str, Any]) -> str:
    """Stage, goal, accuracy against the floor, tokens and speed of a step."""
    if "accuracy" not in row:
        return f"stage {row['stage']}  nothing could be graded"
    seconds = sum(row["seconds"].values())
    speed = row["tokens"] * row["rollouts"] / max(seconds, 1e-9)
    # With a smoothed guard the floor lies where the average over the last steps puts it.
    floor = row["accuracy"] - row["margin"] if row["stage"] == 1 and "lines" not in row else None
    against = f" (floor {100 * floor:.1f})" if floor is not None else ""
    goal = GOALS.get((row["stage"], row["goal"]), "both")
    lines = row.get("lines") or {}
    broken = [name for name, line in lines.items() if line["margin"] < 0]
    if lines:
        against = f" (broken: {', '.join(broken)})" if broken else f" ({len(lines)} lines kept)"
    return (
        f"stage {'I' * row['stage']}  {goal:<8} acc {100 * row['accuracy']:.1f} %"
        f"{against}  {row['tokens']:.0f} tokens  {speed:,.0f} tok/s"
    )


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(bar_width=16), TextColumn("{task.fields[text]}")
    return Progress(*columns, console=Console(stderr=True))
