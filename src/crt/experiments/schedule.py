"""Carries a comparison out: processes train and evaluate what is not done yet, some at a time."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from crt.errors import DataError
from crt.experiments.plan import LOGS, PLAN, RUNS, TIMES, Comparison, write_plan
from crt.experiments.progress import (
    Outcome,
    Task,
    pending_tasks,
    progress_line,
    read_outcome,
    read_outcomes,
)
from crt.experiments.results import write_results
from crt.io import append_row
from crt.processes import at_signal, ends_with_parent
from crt.run import CONFIG

say = partial(print, flush=True)  # at once, also into a pipe
REPORT_EVERY = 60.0  # seconds between lines about progress
POLL_EVERY = 0.2


@dataclass(frozen=True)
class Child:
    """The process that does a task."""

    task: Task
    device: str | None
    process: "subprocess.Popen[bytes]"
    started: float
    share_before: float  # of the run's training

    def ask_to_end(self) -> None:
        """Training saves what it has; evaluation has saved all but its last unit."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)


class Schedule:
    """What is to be done, which processes do it now, and what failed."""

    def __init__(self, comparison: Comparison, at_once: int, devices: Sequence[str]) -> None:
        self.comparison = comparison
        self.slots: list[str | None] = [d.strip() for d in devices] or [None] * at_once
        self.children: list[Child] = []
        self.failed: dict[str, str] = {}  # name → reason
        self.begun: set[Task] = set()
        self.ending = False
        self.cpu_seconds = _cpu_seconds()

    def carry_out(self) -> bool:
        """Whether everything was done; False when the process was asked to end."""
        write_plan(self.comparison)
        reported = time.monotonic()
        try:
            with at_signal(self._end, signal.SIGTERM, signal.SIGINT):
                self._start_tasks()
                while self.children:
                    if self._collect_ended():
                        self._start_tasks()
                    if time.monotonic() - reported > REPORT_EVERY and self.children:
                        reported = time.monotonic()
                        say(progress_line(self.comparison, len(self.slots), self._running()))
                    time.sleep(POLL_EVERY)
            if self.ending:
                say(
                    f"Stopped; everything so far is in {self.comparison.path}. "
                    "The same command goes on."
                )
            return not self.ending
        finally:
            for child in self.children:
                child.ask_to_end()
                child.process.wait()

    def _end(self, *_: object) -> None:
        """Nothing new is begun; what runs is asked to save and end."""
        self.ending = True
        for child in self.children:
            child.ask_to_end()

    def _start_tasks(self) -> None:
        while len(self.children) < len(self.slots) and not self.ending:
            tasks = pending_tasks(self.comparison, read_outcomes(self.comparison))
            task = next((task for task in tasks if task not in self.begun), None)
            if task is None:
                return
            busy = [child.device for child in self.children]
            device = next((d for d in self.slots if d is None or d not in busy), None)
            self.begun.add(task)
            share = self._outcome(task.name).share if task.kind == "train" else 0.0
            process = start_process(self._argv(task), self._log(task), device)
            self.children.append(Child(task, device, process, time.monotonic(), share))

    def _argv(self, task: Task) -> tuple[str, ...]:
        """After `python -m`."""
        path, name = self.comparison.path, task.name
        if task.kind == "evaluate":
            return ("crt.experiments.measure", str(path), name)
        return train_argv(path / PLAN / f"{name}.json", path / RUNS / name)

    def _collect_ended(self) -> bool:
        """Whether some process has ended; what came of it is written down and reported."""
        before = len(self.children)
        for child in list(self.children):  # one after the other, so that its CPU time is known
            code = child.process.poll()
            if code is not None:
                self.children.remove(child)
                self._record(child, code)
        return len(self.children) < before

    def _record(self, child: Child, code: int) -> None:
        task, seconds = child.task, time.monotonic() - child.started
        before, self.cpu_seconds = self.cpu_seconds, _cpu_seconds()
        row = {
            "name": task.name,
            "kind": task.kind,
            "code": code,
            "seconds": round(seconds, 1),
            "cpu": round(self.cpu_seconds - before, 1),
            "share_before": child.share_before,
        }
        append_row(self.comparison.path / TIMES, row)
        if task.kind == "evaluate" and code == 0:
            say(f"{task.name} is evaluated ({seconds / 60:.1f} min).")
            write_results(self.comparison)
        elif task.kind == "train" and (outcome := self._outcome(task.name)).over:
            say(describe_training(task.name, outcome))
        elif not self.ending:
            reason = last_line(self._log(task)) or f"exit code {code}"
            self.failed[task.name] = reason
            say(f"{task.name} failed ({task.kind}, exit code {code}): {reason}")

    def _running(self) -> list[str]:
        return [
            f"{child.task.name} {self._outcome(child.task.name).share:.0%}"
            if child.task.kind == "train"
            else f"{child.task.name} is evaluated"
            for child in self.children
        ]

    def _outcome(self, name: str) -> Outcome:
        return read_outcome(self.comparison.path / RUNS / name)

    def _log(self, task: Task) -> Path:
        return self.comparison.path / LOGS / f"{task.name}-{task.kind}.log"


def start_process(argv: Sequence[str], log: Path, device: str | None) -> "subprocess.Popen[bytes]":
    """A process with one thread and a log, which does not outlive its parent."""
    try:
        file = log.open("ab")
    except OSError as error:
        raise DataError(f"{log} cannot be written: {error.strerror}.") from None
    with file:
        return subprocess.Popen(
            [sys.executable, "-m", *argv],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment(device),
            start_new_session=True,  # Ctrl-C is the parent's to pass on
            # A killed comparison leaves nothing running that would hold its runs' locks.
            preexec_fn=ends_with_parent(signal.SIGKILL),
        )


def environment(device: str | None) -> dict[str, str]:
    """One thread unless the user says otherwise, and the device that is the process's own."""
    alone = {"OMP_NUM_THREADS": "1", "CRT_PROCESSES": "1"}  # the cores are shared by the jobs
    variables = {**alone, "TOKENIZERS_PARALLELISM": "false", **os.environ}
    variables["PYTHONUNBUFFERED"] = "1"
    if device is not None:
        variables["CUDA_VISIBLE_DEVICES"] = device
    return variables


def train_argv(recipe: Path, run: Path) -> tuple[str, ...]:
    """`crt train`, for a new run or one that was begun."""
    if (run / CONFIG).is_file():
        return ("crt", "train", "--resume", str(run))
    shutil.rmtree(run, ignore_errors=True)  # killed before it was a run
    return ("crt", "train", str(recipe), "--out", str(run))


def describe_training(name: str, outcome: Outcome) -> str:
    """How a run ended that is over."""
    if outcome.status == "stopped":
        return f"{name} was stopped at step {outcome.steps}: {outcome.stopped}"
    kept = "feasible" if outcome.feasible else "none was feasible, the nearest"
    return (
        f"{name} is trained: {outcome.steps} steps, {outcome.tokens:,} tokens, "
        f"{outcome.seconds / 60:.1f} min; recommended: "
        f"step {outcome.checkpoints.get('recommended')} ({kept})."
    )


def last_line(log: Path) -> str:
    """What a process printed last, which is why it failed."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:500] if lines else ""


def _cpu_seconds() -> float:
    """Of all processes that were started here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
