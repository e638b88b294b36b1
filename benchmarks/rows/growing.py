"""Growth: a step's time against its tokens, the report's against rollouts, memory against steps."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import psutil
from harness.results import Row, four, rounded
from harness.statistics import exponent, ratio_of_medians
from harness.timing import Timing, interleaved
from made_up_evaluation import ROLLOUTS, write_evaluation

from . import Setting
from .steps import RECIPE, Size, crt_steps

SIZES = (Size(problems=4, group=8, cap=128), Size(problems=8, group=8, cap=128),
         Size(problems=16, group=8, cap=256), Size(problems=16, group=16, cap=256))  # fmt: skip
PROBLEMS = (125, 500, 2000)  # of the report's evaluations
STEPS = 60
LINEAR = 1.05  # with a little room for the clock


def rows(setting: Setting) -> Iterator[Row]:
    """Exponents: 1 is linear, and what a step costs at any size makes them smaller."""
    if setting.wants("growth-tokens"):
        yield step_row(setting)
    if setting.wants("growth-report"):
        yield report_row(setting)
    if setting.wants("growth-memory"):
        yield memory_row(setting)
    if setting.wants("large-step"):
        yield large_step_row(setting)


def step_row(setting: Setting) -> Row:
    """Steps of several sizes, each in a `crt train` of its own, all in turn."""
    sizes = SIZES[:2] if setting.small else SIZES
    points = [
        (timing.work, timing)
        for repeat in range(setting.repeats)
        for place, size in enumerate(sizes)
        for timing, _ in [crt_steps(setting, size, f"growth-{place}-{repeat}")]
    ]
    return growth("growth-tokens", "a step's seconds against its tokens", points)


def large_step_row(setting: Setting) -> Row:
    """What a real step hands to the core: 128 × 16 responses of 8,192 tokens, made up."""
    script = Path(__file__).parents[1] / "large_step.py"
    runs = [
        subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
        for _ in range(setting.repeats)
    ]
    seconds, megabytes = zip(*(map(float, run.stdout.split()[-2:]) for run in runs), strict=True)
    row = Row(
        "large-step", "grading, deciding and keeping 128 × 16 responses of 8,192 tokens",
        "seconds", *rounded(ratio_of_medians(seconds, [1.0] * len(seconds))), 5.0, "lower",
        ours=four(median(seconds)), theirs=None, unit="s", repeats=len(seconds),
    )  # fmt: skip
    return replace(row, note=f"{median(megabytes):.0f} MB more than the responses themselves")


def growth(name: str, what: str, points: Sequence[tuple[float, Timing]]) -> Row:
    """The exponent of wall seconds over a size."""
    sizes, walls = [float(size) for size, _ in points], [t.wall for _, t in points]
    fitted = exponent(sizes, walls)
    largest = max(sizes)
    most = median(t.wall for size, t in points if size == largest)
    cpu = exponent(sizes, [t.cpu for _, t in points]).value
    return Row(
        name, what, "linear is 1", *rounded(fitted), LINEAR, "lower", ours=four(most), theirs=None,
        unit="s at the largest", cpu_ratio=four(cpu), repeats=len(points),
        note=f"{min(sizes):g} to {largest:g}, {len(points)} points",
    )  # fmt: skip


def report_row(setting: Setting) -> Row:
    """`crt report` on two evaluations of growing size."""
    from crt.reporting.report import ReportOptions, write_report

    contenders = {}
    for problems in PROBLEMS[:2] if setting.small else PROBLEMS:
        places = tuple(
            write_evaluation(setting.folder / f"report{problems}" / name, problems, words, seed)
            for seed, (name, words) in enumerate((("base", 120), ("short", 60)))
        )
        options = ReportOptions(places, setting.folder / f"report{problems}.html")
        contenders[str(problems)] = lambda _, options=options: bool(write_report(options))
    timings = interleaved(contenders, setting.repeats)
    points = [(2.0 * ROLLOUTS * int(size), t) for size, ts in timings.items() for t in ts]
    return growth("growth-report", "the report's seconds against rollouts", points)


def memory_row(setting: Setting) -> Row:
    """A real run's memory after each step: its last third beside its middle third."""
    steps = 9 if setting.small else STEPS
    used = memory_of_run(setting.folder / "memory", steps)
    third = len(used) // 3
    late, middle = used[-third:], used[-2 * third : -third]
    slope = 100 * (median(late) - median(middle)) / third
    row = Row(
        "growth-memory", f"memory of `crt train` in its last third of {len(used)} steps",
        "its middle third", *rounded(ratio_of_medians(late, middle)), 1.01, "lower",
        ours=four(median(late)), theirs=four(median(middle)), unit="MB", repeats=third,
    )  # fmt: skip
    return replace(row, note=f"{slope:+.1f} MB in a hundred steps")


def memory_of_run(folder: Path, steps: int) -> list[float]:
    """Resident megabytes when each step was done."""
    changes = (
        f"schedule.steps={steps}", f"schedule.save_every={steps // 3}",
        "schedule.problems_per_step=4", "sampling.group_size=4", "sampling.max_tokens=128",
        "reference.rollouts=2", "validation.problems=8", "validation.rollouts=1",
        "validation.final_rollouts=0", "preflight.max_truncated=1.0",
    )  # fmt: skip
    command = [sys.executable, "-m", "crt", "train", str(RECIPE), "--out", str(folder / "run")]
    for change in changes:
        command += ["--set", change]
    rows, used = folder / "run" / "steps.jsonl", []
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "output.txt"
    with output.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            done = rows.read_text().count("\n") if rows.is_file() else 0
            if len(used) < done < steps:  # after the last one it tidies up
                used += [watched.memory_info().rss / 2**20] * (done - len(used))
            time.sleep(0.02)
        if process.returncode:
            raise RuntimeError(f"crt train ended with {process.returncode}: {output.read_text()}")
    return used
