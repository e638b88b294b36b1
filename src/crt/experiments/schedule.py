"""Carries a comparison out: processes train and evaluate what is not done yet, some at a time."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from crt.config import RunConfig
from crt.errors import CrtError, DataError
from crt.evaluation.evaluator import Plan, evaluate
from crt.experiments.collect import Outcome, is_evaluated, read_outcome, read_outcomes
from crt.experiments.plan import (
    LOGS,
    PLAN,
    RUNS,
    TIMES,
    Comparison,
    Job,
    open_comparison,
    write_plan,
)
from crt.experiments.results import write_results
from crt.io import append_row, read_rows
from crt.processes import at_signal, ends_with_parent, silence_libraries
from crt.run import CONFIG, Run

say = partial(print, flush=True)  # at once, also into a pipe
REPORT_EVERY = 60.0  # seconds between lines about progress
POLL_EVERY = 0.2


class Task(NamedTuple):
    name: str  # of the run, or base-seedN
    kind: Literal["train", "evaluate"]


def pending_tasks(comparison: Comparison, outcomes: Mapping[str, Outcome]) -> list[Task]:
    """What is not done; evaluations first, then seed by seed, so that results come early."""
    evaluations = {comparison.base(seed).name: [comparison.base(seed)] for seed in comparison.seeds}
    training: list[Task] = []
    for job in sorted(comparison.jobs, key=lambda job: comparison.seeds.index(job.seed)):
        outcome = outcomes[job.name]
        if outcome.over:
            steps = outcome.checkpoints.values()
            evaluations[job.name] = [comparison.evaluation(job, step) for step in steps]
        else:
            training.append(Task(job.name, "train"))
    if comparison.kind == "tune":  # by validation alone
        return training
    missing = (name for name, folders in evaluations.items() if not all(map(is_evaluated, folders)))
    return [*(Task(name, "evaluate") for name in missing), *training]


# ---- How long it takes


def progress_lines(
    comparison: Comparison, at_once: int, running: Sequence[str] = ()
) -> Iterator[str]:
    """Runs done, what is under way, and the time left by what has been measured so far."""
    outcomes = read_outcomes(comparison)
    over = sum(outcome.over for outcome in outcomes.values())
    yield f"{over} of {len(outcomes)} runs are over"
    if running:
        yield f"now: {', '.join(running)}"
    times = {"train": 0.0, "evaluate": 0.0}
    rows = [row for row in read_rows(comparison.path / TIMES) if row["code"] == 0]
    for row in rows:
        times[row["kind"]] += row["seconds"]
    evaluated = sum(row["kind"] == "evaluate" for row in rows)
    # A run is also trained in its steps alone, before its process has ended.
    trained = max(times["train"], sum(outcome.seconds for outcome in outcomes.values()))
    share = sum(outcome.share for outcome in outcomes.values())
    if not share:
        yield "time left is not known before a first run is under way"
        return
    left = trained / share * (len(outcomes) - share)
    if comparison.kind != "tune":  # a run that is not over will be evaluated too
        each = times["evaluate"] / max(1, evaluated)
        left += each * len(pending_tasks(comparison, outcomes))
    minutes = left / at_once / 60
    yield f"{minutes / 60:.1f} h left" if minutes >= 90 else f"{minutes:.0f} min left"


def describe_plan(comparison: Comparison, at_once: int) -> list[str]:
    """The plan and what it costs, for a dry run."""
    outcomes = read_outcomes(comparison)
    lines = [
        f"{comparison.jobs[0].config.model.name}: {len(comparison.methods)} methods × seeds "
        f"{', '.join(map(str, comparison.seeds))}: {len(outcomes)} runs."
    ]
    for method, jobs in comparison.methods.items():
        schedule = jobs[0].config.schedule
        budget = f" or {schedule.tokens:,} tokens" if schedule.tokens else ""
        lines.append(f"  {method} ({jobs[0].type}): at most {schedule.steps:,} steps{budget}")
    budgets = [job.config.schedule.tokens for job in comparison.jobs]
    if None not in budgets:
        used = [outcomes[job.name].tokens for job in comparison.jobs]
        left = sum(max(0, (b or 0) - u) for b, u in zip(budgets, used, strict=True))
        lines.append(f"To be generated in training: {left:,} tokens at most.")
    return [*lines, f"With {at_once} at once: {'; '.join(progress_lines(comparison, at_once))}."]


# ---- The processes


@dataclass(frozen=True)
class Child:
    task: Task
    device: str | None
    process: "subprocess.Popen[bytes]"
    started: float


class Schedule:
    """What is to be done, which processes do it now, and what failed."""

    def __init__(self, comparison: Comparison, at_once: int, devices: Sequence[str]) -> None:
        self.comparison = comparison
        self.slots: list[str | None] = [d.strip() for d in devices] or [None] * at_once
        self.children: list[Child] = []
        self.failed: dict[str, str] = {}  # name → reason
        self.begun: set[Task] = set()
        self.ending = False

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
                        running = [f"{c.task.name} ({c.task.kind})" for c in self.children]
                        lines = progress_lines(self.comparison, len(self.slots), running)
                        say("; ".join(lines))
                    time.sleep(POLL_EVERY)
        finally:
            for child in self.children:
                child.process.terminate()
                child.process.wait()
        if self.ending:
            path = self.comparison.path
            say(f"Stopped; everything so far is in {path}. The same command goes on.")
        return not self.ending

    def _end(self, *_: object) -> None:
        """Nothing new is begun; what runs is asked to save and end."""
        self.ending = True
        for child in self.children:
            child.process.terminate()

    def _start_tasks(self) -> None:
        while len(self.children) < len(self.slots) and not self.ending:
            tasks = pending_tasks(self.comparison, read_outcomes(self.comparison))
            task = next((task for task in tasks if task not in self.begun), None)
            if task is None:
                return
            busy = [child.device for child in self.children]
            device = next((d for d in self.slots if d is None or d not in busy), None)
            self.begun.add(task)
            process = start_process(self._argv(task), self._log(task), device)
            self.children.append(Child(task, device, process, time.monotonic()))

    def _argv(self, task: Task) -> tuple[str, ...]:
        """After `python -m`."""
        path, name = self.comparison.path, task.name
        if task.kind == "evaluate":
            return ("crt.experiments.schedule", str(path), name)
        return train_argv(path / PLAN / f"{name}.json", path / RUNS / name)

    def _collect_ended(self) -> bool:
        """Whether some process has ended; what came of it is written down and reported."""
        ended = False
        for child in list(self.children):
            before = _cpu_seconds()
            code = child.process.poll()  # adds the CPU time of a process that has ended
            if code is not None:
                ended = True
                self.children.remove(child)
                self._record(child, code, _cpu_seconds() - before)
        return ended

    def _record(self, child: Child, code: int, cpu: float) -> None:
        task, seconds = child.task, time.monotonic() - child.started
        row = {"name": task.name, "kind": task.kind, "code": code}
        row |= {"seconds": round(seconds, 1), "cpu": round(cpu, 1)}
        append_row(self.comparison.path / TIMES, row)
        if task.kind == "evaluate" and code == 0:
            say(f"{task.name} is evaluated ({seconds / 60:.1f} min).")
            write_results(self.comparison)
            return
        outcome = read_outcome(self.comparison.path / RUNS / task.name)
        if task.kind == "train" and outcome.over:
            say(describe_training(task.name, outcome))
        elif not self.ending:
            reason = last_line(self._log(task)) or f"exit code {code}"
            self.failed[task.name] = reason
            say(f"{task.name} failed ({task.kind}, exit code {code}): {reason}")

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


# ---- In the process that evaluates: python -m crt.experiments.schedule DIR NAME


def measure_base(comparison: Comparison, seed: int) -> None:
    """Evaluates the model as it was; no budget is stated to it."""
    config = next(job.config for job in comparison.jobs if job.seed == seed)
    prompt = replace(config.prompt, budget="none", budget_tokens=None)
    plan = plan_for(config.model_copy(update={"prompt": prompt}), config.model.name)
    evaluate(plan, comparison.base(seed), name="base", note=print)


def measure_run(comparison: Comparison, job: Job) -> None:
    """Evaluates the recommended checkpoint and the last; once if they are the same."""
    run = Run.open(comparison.run(job))
    for step in dict.fromkeys(read_outcome(run.path).checkpoints.values()):
        folder = comparison.evaluation(job, step)
        if not is_evaluated(folder):
            plan = plan_for(run.config, str(run.checkpoint(step)))
            evaluate(plan, folder, name=job.method, note=print)


def plan_for(config: RunConfig, model: str) -> Plan:
    """As the recipe says, with the prompt that the method was trained with."""
    own = {"name": model} | ({} if model == config.model.name else {"revision": None})
    return Plan(
        config.model.model_copy(update=own),
        config.evaluation,
        prompt=config.prompt,
        seed=config.seed,
        truncated="grade" if config.grading.truncated == "grade" else "wrong",
        grading=config.grading,
        load={"folder": config.data.folder, "skip_bad": config.data.skip_bad},
    )


def main(folder: str, name: str) -> None:
    """Evaluates one run by its name, or `base-seedN`."""
    silence_libraries()
    comparison = open_comparison(Path(folder))
    seeds = {comparison.base(seed).name: seed for seed in comparison.seeds}
    if name in seeds:
        measure_base(comparison, seeds[name])
    else:
        measure_run(comparison, next(job for job in comparison.jobs if job.name == name))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except CrtError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
