"""One training step: `crt train` beside stock TRL, and what the guard adds to a step.

Both are run as a user runs them, as processes of their own on all cores. A step's seconds are the
programs' own: sampling, grading, deciding and update; loading and the first step are not counted.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from harness.results import Row, compared
from harness.timing import Timing
from limits import Machine, measure, operations
from models import Shape, shape_of

from crt.algorithm.batch import batch_of
from crt.algorithm.objectives import Shorten
from crt.algorithm.step import decide
from crt.io import read_rows
from crt.pocket import path as pocket_path
from crt.types import Rollout, Verdict

from . import Setting

HERE = Path(__file__).parents[1]
RECIPE = HERE.parent / "recipes" / "methods" / "crt_1s.toml"  # one stage: a stage loads a model
STEPS = 3  # that count, per repeat
FRESH = 4  # reference rollouts per problem where nothing is cached
UNIT = "s / 1,000 tokens"


@dataclass(frozen=True)
class Size:
    """Of one training step."""

    model: str = "pocket"
    problems: int = 16
    group: int = 16
    cap: int = 256
    dtype: str = "float32"

    def describe(self) -> str:
        """For the table."""
        name = "the pocket model" if self.model == "pocket" else Path(self.model).name
        return f"{self.problems}×{self.group} rollouts of {name}, cap {self.cap}"


POCKET = Size()
SMALL = Size(problems=4, group=4, cap=64)


def rows(setting: Setting) -> Iterator[Row]:
    """Runs alternate; per thousand generated tokens, because what is sampled differs in length."""
    size = SMALL if setting.small else POCKET
    if setting.wants("step-pocket", "guard-cached", "guard-fresh"):
        yield from _pocket_rows(setting, size)
    folder = os.environ.get("CRT_BENCH_135M")
    if setting.wants("step-135M") and folder:
        yield _step_row(setting, "step-135M", Size(folder, 2, 8, 96, "bfloat16"), goal=None)


def _pocket_rows(setting: Setting, size: Size) -> Iterator[Row]:
    if setting.wants("step-pocket"):
        yield _step_row(setting, "step-pocket", size, goal=6)
    if setting.wants("guard-cached", "guard-fresh"):
        cached = [crt_steps(setting, size, f"cached-{i}") for i in range(setting.repeats)]
        timings = [timing for timing, _ in cached]
    if setting.wants("guard-cached"):
        seconds = guard_seconds(size)
        plain = [Timing(t.wall - STEPS * seconds, t.cpu - STEPS * seconds, t.work) for t in timings]
        yield compared(
            "guard-cached", f"CRT step, reference in cache, {size.describe()}",
            "the same step without the guard's decision", timings, plain, goal=1.05,
            better="lower", unit=UNIT, scale=1000,
            note="the decision is timed by itself, on rollouts of this size",
        )  # fmt: skip
    if setting.wants("guard-fresh"):
        fresh = ["reference.mode=fresh", f"reference.rollouts={FRESH}"]
        drawn = [crt_steps(setting, size, f"fresh-{i}", fresh)[0] for i in range(setting.repeats)]
        yield compared(
            "guard-fresh", f"CRT step, {FRESH} reference rollouts per problem drawn in the step",
            "a step with the reference in cache", drawn, timings, goal=1.3, better="lower",
            unit=UNIT, scale=1000,
        )  # fmt: skip


def _step_row(setting: Setting, name: str, size: Size, goal: float | None) -> Row:
    """Ours and TRL's in turn; TRL with one process per core or with threads, if that is faster."""
    layouts = list(dict.fromkeys([(setting.cores, 1), (1, setting.cores)]))
    ours: list[Timing] = []
    least: list[float] = []
    theirs: dict[tuple[int, int], list[Timing]] = {layout: [] for layout in layouts}
    torch.set_num_threads(setting.cores)
    machine = measure(size.dtype)
    torch.set_num_threads(1)
    for repeat in range(setting.repeats):
        timing, lengths = crt_steps(setting, size, f"{name}-{repeat}")
        ours.append(timing)
        least.append(_least_seconds(machine, size, lengths) / timing.work)
        for layout in layouts if repeat == 0 else [_fastest(theirs)]:
            theirs[layout].append(stock_steps(size, *layout))
    best = _fastest(theirs)
    row = compared(
        name, f"one CRT step, {size.describe()}", "stock TRL GRPOTrainer", ours, theirs[best],
        goal=goal, unit=UNIT, scale=1000, least=sum(least) / len(least),
        note=f"TRL runs as processes × threads {best[0]} × {best[1]}, which is faster here",
    )  # fmt: skip
    return replace(row, cpu_ratio=None, ours_cpu=None, theirs_cpu=None)


def _fastest(timings: dict[tuple[int, int], list[Timing]]) -> tuple[int, int]:
    return min((k for k in timings if timings[k]), key=lambda k: timings[k][0].wall_each)


def _least_seconds(machine: Machine, size: Size, lengths: Sequence[Sequence[int]]) -> float:
    """Each token sampled once and learnt from once: a pass forwards, and three for the update."""
    folder = pocket_path() if size.model == "pocket" else Path(size.model)
    shape: Shape = shape_of(folder, size.cap)
    return operations(shape, [0] * len(lengths), lengths, passes=4.0) / machine.operations


def crt_steps(
    setting: Setting, size: Size, name: str, changes: Sequence[str] = ()
) -> tuple[Timing, list[list[int]]]:
    """The steps of a `crt train` of its own, and the lengths of their rollouts."""
    folder = setting.folder / "steps" / name
    settings = [
        f"model.name={json.dumps(size.model)}", f"model.dtype={size.dtype}",
        f"schedule.steps={STEPS + 1}", f"schedule.problems_per_step={size.problems}",
        f"schedule.save_every={STEPS + 1}", f"sampling.group_size={size.group}",
        f"sampling.max_tokens={size.cap}", "reference.rollouts=2", "validation.problems=8",
        "validation.rollouts=1", "validation.final_rollouts=0", "optim.learning_rate=1e-6",
        "preflight.max_truncated=1.0", 'preflight.skip=["solves"]', *changes,
    ]  # fmt: skip
    command = [sys.executable, "-m", "crt", "train", str(RECIPE), "--out", str(folder)]
    for change in settings:
        command += ["--set", change]
    _run(command)
    steps = read_rows(folder / "steps.jsonl")[1:]
    lengths = [
        [row["tokens"] for row in read_rows(file)]
        for file in sorted((folder / "rollouts").iterdir())[1 : STEPS + 1]
    ] if (folder / "rollouts").is_dir() else []  # fmt: skip
    wall = sum(sum(step["seconds"].values()) for step in steps)
    return Timing(wall, wall, sum(step["generated"] for step in steps)), lengths


def stock_steps(size: Size, processes: int, threads: int) -> Timing:
    """The steps of stock TRL."""
    script = [
        str(HERE / "stock_trl.py"), "--model", size.model, "--problems", str(size.problems),
        "--group", str(size.group), "--cap", str(size.cap), "--dtype", size.dtype,
        "--steps", str(STEPS + 1),
    ]  # fmt: skip
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launcher if processes > 1 else []), *script]
    lines = _run(command, OMP_NUM_THREADS=str(threads)).splitlines()
    steps: list[dict[str, Any]] = [json.loads(line) for line in lines if line.startswith('{"sec')]
    wall = sum(step["seconds"] for step in steps[1:])
    return Timing(wall, wall, sum(step["tokens"] for step in steps[1:]))


def _run(command: Sequence[str], **environment: str) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr}")
    return ended.stdout


def guard_seconds(size: Size) -> float:
    """What looking a reference up and deciding take, on made-up rollouts of this size."""
    rollouts = [
        Rollout(
            f"p{i}", "", 50 + (7 * i + 11 * j) % 100, "eos",
            Verdict.CORRECT if (i + j) % 4 else Verdict.WRONG,
        )
        for i in range(size.problems) for j in range(size.group)
    ]  # fmt: skip
    reference, _ = batch_of(rollouts, "wrong")
    assert reference is not None
    times: list[float] = []
    for _ in range(20):
        began = time.perf_counter()
        decide(Shorten(), rollouts, reference.select)
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2]
