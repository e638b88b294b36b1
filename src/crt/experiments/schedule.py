"""Carries a comparison out: trains and evaluates what is not done yet, some at a time."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from crt.experiments.children import Child, Work, cpu_seconds, last_line, train_words
from crt.experiments.measure import base_is_measured, is_measured
from crt.experiments.outcome import outcome
from crt.experiments.plan import LOGS, TIMES, Comparison, Job
from crt.experiments.progress import estimate, spoken
from crt.io import append_row
from crt.processes import at_signal

EVERY = 60.0  # seconds between lines about how far it is
PAUSE = 0.2

Say = Callable[[str], None]


class Schedule:
    """What is to be done, who does it now, and what failed."""

    def __init__(
        self,
        comparison: Comparison,
        at_once: int,
        devices: Sequence[str],
        say: Say,
        on_measured: Callable[[], None],
    ) -> None:
        self.comparison, self.say, self.on_measured = comparison, say, on_measured
        self.slots: list[str | None] = list(devices) or [None] * at_once
        self.children: list[Child] = []
        self.failed: dict[str, str] = {}
        self.shares: dict[str, float] = {}
        self.begun: set[tuple[str, str]] = set()
        self.ending = False
        self.cpu = cpu_seconds()

    def carry_out(self) -> bool:
        """Whether everything was done; False when it was asked to end."""
        told = time.monotonic()
        with _ends_on_signals(self):
            changed = True
            while True:
                if changed:
                    self._start_what_fits()
                if not self.children:
                    return not self.ending
                changed = self._reap()
                if time.monotonic() - told > EVERY and self.children:
                    told = time.monotonic()
                    self.say(spoken(estimate(self.comparison), len(self.slots), self._running()))
                time.sleep(PAUSE)

    def ask_to_end(self) -> None:
        """Nothing new is begun; what runs is asked to save and end."""
        self.ending = True
        for child in self.children:
            child.ask_to_end()

    def _start_what_fits(self) -> None:
        while len(self.children) < len(self.slots) and not self.ending:
            work = next(self._waiting(), None)
            if work is None:
                return
            busy = [child.device for child in self.children]
            device = next((d for d in self.slots if d is None or d not in busy), None)
            self.begun.add((work.kind, work.name))
            if work.kind == "train":
                run = self.comparison.path / "runs" / work.name
                self.shares[work.name] = outcome(run).share
            self.children.append(Child(work, device))

    def _waiting(self) -> Iterator[Work]:
        """Seed by seed, so that every method has a result early; evaluations come first."""
        for work in self._evaluations():
            if ("evaluate", work.name) not in self.begun:
                yield work
        for job in by_seed(self.comparison):
            run = self.comparison.run(job)
            if ("train", job.name) not in self.begun and not outcome(run).over:
                words = tuple(train_words(self.comparison.recipe(job), run))
                yield self._work(job.name, "train", words)

    def _evaluations(self) -> Iterator[Work]:
        if self.comparison.kind == "tune":
            return
        words = ("crt.experiments.measure", str(self.comparison.path))
        for seed in self.comparison.seeds:
            if not base_is_measured(self.comparison, seed):
                name = self.comparison.base(seed).name
                yield self._work(name, "evaluate", (*words, name))
        for job in self.comparison.jobs:
            over = outcome(self.comparison.run(job)).over
            if over and not is_measured(self.comparison, job):
                yield self._work(job.name, "evaluate", (*words, job.name))

    def _work(self, name: str, kind: str, words: tuple[str, ...]) -> Work:
        return Work(name, kind, words, self.comparison.path / LOGS / f"{name}-{kind}.log")

    def _reap(self) -> bool:
        """Whether some process has ended."""
        before = len(self.children)
        for child in list(self.children):
            code = child.ended()  # one after the other, so that its CPU time is known
            if code is not None:
                self.children.remove(child)
                self._note(child, code)
        return len(self.children) < before

    def _note(self, child: Child, code: int) -> None:
        work, before = child.work, self.cpu
        self.cpu = cpu_seconds()
        row: dict[str, Any] = {"name": work.name, "kind": work.kind, "code": code}
        row |= {"seconds": round(child.seconds, 1), "cpu": round(self.cpu - before, 1)}
        append_row(
            self.comparison.path / TIMES,
            row | {"share_before": self.shares.get(work.name, 0.0)},
        )
        if work.kind == "train":
            self._note_training(work, code)
        elif code == 0:
            self.say(f"{work.name} is evaluated ({child.seconds / 60:.1f} min).")
            self.on_measured()
        else:
            self._note_failure(work, code)

    def _note_training(self, work: Work, code: int) -> None:
        found = outcome(self.comparison.path / "runs" / work.name)
        if found.how == "finished":
            best = (found.chosen or {}).get("recommended")
            kept = "feasible" if found.feasible else "none was feasible, the nearest"
            self.say(
                f"{work.name} is trained: {found.steps} steps, {found.tokens:,} tokens, "
                f"{found.seconds / 60:.1f} min; recommended: step {best} ({kept})."
            )
        elif found.how == "stopped":
            self.say(f"{work.name} was stopped at step {found.steps}: {found.stopped}")
        elif not self.ending:
            self._note_failure(work, code)

    def _note_failure(self, work: Work, code: int) -> None:
        if self.ending:
            return
        why = last_line(work.log) or f"exit code {code}"
        self.failed[work.name] = why
        self.say(f"{work.name} failed ({work.kind}, exit code {code}): {why}")

    def _running(self) -> list[str]:
        said: list[str] = []
        for child in self.children:
            found = outcome(self.comparison.path / "runs" / child.work.name)
            how = f" {found.share:.0%}" if child.work.kind == "train" else " is evaluated"
            said.append(child.work.name + how)
        return said


def by_seed(comparison: Comparison) -> list[Job]:
    """All methods with the first seed, then all with the next."""
    return [job for seed in comparison.seeds for job in comparison.jobs if job.seed == seed]


@contextlib.contextmanager
def _ends_on_signals(schedule: Schedule) -> Iterator[None]:
    """SIGTERM and Ctrl-C end the comparison with everything saved."""

    def end(*_: object) -> None:
        schedule.ask_to_end()

    try:
        with at_signal(end, signal.SIGTERM, signal.SIGINT):
            yield
    finally:
        for child in schedule.children:
            child.ask_to_end()
            child.wait()
