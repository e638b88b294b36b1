"""Growth: a step's time against its size, the report's against rollouts, memory against steps."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import psutil
from harness.results import Row, four, rounded
from harness.statistics import exponent, ratio_of_medians
from harness.timing import Timing, Timings, interleaved
from made_up_evaluation import ROLLOUTS, write_evaluation

from . import Setting

SIZES: Mapping[str, tuple[tuple[int, int, int], ...]] = {  # problems, group, cap
    "growth-problems": ((4, 8, 128), (8, 8, 128), (16, 8, 128)),
    "growth-group": ((4, 4, 128), (4, 8, 128), (4, 16, 128)),
    "growth-cap": ((4, 8, 32), (4, 8, 64), (4, 8, 128), (4, 8, 256)),
}
VARIED = {"growth-problems": 0, "growth-group": 1, "growth-cap": 2}
PROBLEMS = (125, 500, 2000)  # of the report's evaluations
STEPS = 60
LINEAR = 1.05  # with a little room for the clock
RECIPE = Path(__file__).parents[2] / "recipes" / "methods" / "crt_1s.toml"  # a stage loads a model


def rows(setting: Setting) -> Iterator[Row]:
    """Exponents: 1 is linear, and what a step costs at any size makes them smaller."""
    if setting.wants("growth-tokens", *SIZES):
        yield from step_rows(setting)
    if setting.wants("growth-report"):
        yield report_row(setting)
    if setting.wants("growth-memory"):
        yield memory_row(setting)


def step_rows(setting: Setting) -> Iterator[Row]:
    """One step at several sizes, all in turn."""
    names = SIZES if setting.wants("growth-tokens") else setting.wanted & SIZES.keys()
    sizes = list(dict.fromkeys(size for name in names for size in SIZES[name]))
    timings = steps_of(setting, sizes[:2] if setting.small else sizes)
    if setting.wants("growth-tokens"):
        every = [(t.work, t) for each in timings.values() for t in each]
        yield growth("growth-tokens", "a step's seconds against its tokens", every)
    for name, place in VARIED.items():
        known = [size for size in SIZES[name] if str(size) in timings]
        if setting.wants(name) and len(known) > 1:
            points = [(size[place], t) for size in known for t in timings[str(size)]]
            yield growth(name, f"a step's seconds against its {name.partition('-')[2]}", points)


def steps_of(setting: Setting, sizes: list[tuple[int, int, int]]) -> Timings:
    """Seconds and tokens of steps of these sizes."""
    from trainers import Size, Trainers, use_threads

    from crt.grading.grader import Grader

    use_threads(setting.threads)
    with Grader() as grader:
        contenders = {}
        for size in sizes:
            trainers = Trainers(Size(*size), grader, setting.folder / "growth")
            trainer = trainers.ours(trainers.reference(2, kept=True))
            contenders[str(size)] = lambda _, t=trainers, each=trainer: t.one_step(each)
        return interleaved(contenders, setting.repeats)


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
    points = [(2.0 * ROLLOUTS * int(size), t) for size, each in timings.items() for t in each]
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
    said = folder / "said.txt"
    with said.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            done = rows.read_text().count("\n") if rows.is_file() else 0
            if len(used) < done < steps:  # after the last one it tidies up
                used += [watched.memory_info().rss / 2**20] * (done - len(used))
            time.sleep(0.02)
        if process.returncode:
            raise RuntimeError(f"crt train ended with {process.returncode}: {said.read_text()}")
    return used
