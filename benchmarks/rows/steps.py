"""One training step: ours beside stock TRL, and what the guard adds to a plain GRPO step."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from harness.results import Row, compared
from harness.timing import Contender, Timing, Timings, interleaved
from trainers import Clocked, Size, Trainers, use_threads

from crt.grading.grader import Grader

from . import Setting

STEPS = 3  # of ours in a repeat: how many groups are silent differs from batch to batch
FRESH = (4, 8, 16)  # reference rollouts a problem, drawn anew: docs/performance.md says why few do
PLAIN, UNIT = "plain GRPO step, same engine", "s / 1,000 tokens"
SMALL = Size(problems=4, group=4, cap=64)


def rows(setting: Setting) -> Iterator[Row]:
    """Steps alternate; per thousand generated tokens, because what is sampled differs in length."""
    use_threads(setting.threads)
    size = SMALL if setting.small else Size()
    with Grader() as grader:
        timings, plain = measured(setting, Trainers(size, grader, setting.folder / "steps"))
    told = f"{size.problems}×{size.group} rollouts of the pocket model, cap {size.cap}"
    if setting.wants("step"):
        yield compared(
            "step", f"one CRT step, {told}", "stock TRL GRPOTrainer",
            timings["crt"], timings["stock"], goal=5, unit=UNIT, scale=1000,
        )  # fmt: skip
    if setting.wants("guard-cached"):
        yield compared(
            "guard-cached", f"CRT step with the reference in cache, {told}", PLAIN,
            timings["crt"], plain, goal=1.05, better="lower", unit=UNIT, scale=1000,
            note="in the same steps: all of a step, against all but looking up and deciding",
        )  # fmt: skip
    if setting.wants("guard-fresh"):
        yield fresh(timings, plain, told)


def measured(setting: Setting, trainers: Trainers) -> tuple[Timings, list[Timing]]:
    """Every contender's repeats, and our steps without the guard's part in them."""
    kept = trainers.reference(trainers.size.group, kept=True)
    kept(trainers.ids)  # fills the cache
    crt = trainers.ours(kept)
    guard = Clocked(crt, "_decide")
    steps = 1 if setting.small else STEPS
    contenders: dict[str, Contender] = {
        "crt": lambda _: sum(trainers.one_step(crt) for _ in range(steps))
    }
    if setting.wants("step"):
        stock = trainers.stock()
        contenders["stock"] = lambda _: trainers.one_step(stock)
    if setting.wants("guard-fresh"):
        for count in FRESH:
            drawn = trainers.reference(count, kept=False)
            contenders[f"fresh {count}"] = lambda _, drawn=drawn: bool(drawn(trainers.ids))
    timings = interleaved(contenders, setting.repeats)
    deciding = np.array([guard.wall, guard.cpu])[:, steps:].reshape(2, -1, steps).sum(-1)
    plain = [
        Timing(t.wall - wall, t.cpu - cpu, t.work)
        for t, wall, cpu in zip(timings["crt"], *deciding.tolist(), strict=True)
    ]
    for count in FRESH if setting.wants("guard-fresh") else ():
        drawing = timings[f"fresh {count}"]  # in every step as much
        timings[f"fresh {count}"] = [Timing(t.wall * steps, t.cpu * steps, t.work) for t in drawing]
    return timings, plain


def fresh(timings: Timings, plain: list[Timing], told: str) -> Row:
    """Plain steps and the reference's rollouts for each, against the plain steps alone."""

    def against(count: int) -> Row:
        return compared(
            "guard-fresh", f"CRT step, nothing cached, {count} reference rollouts each, {told}",
            PLAIN, _together(plain, timings[f"fresh {count}"]), plain, goal=1.3, better="lower",
            unit=UNIT, scale=1000,
        )  # fmt: skip

    few, *more = (against(count) for count in FRESH)
    others = [f"{row.ratio:.2f} with {count}" for row, count in zip(more, FRESH[1:], strict=True)]
    return replace(few, note=f"{' and '.join(others)}, the paper's number")


def _together(step: list[Timing], sampling: list[Timing]) -> list[Timing]:
    return [
        Timing(a.wall + b.wall, a.cpu + b.cpu, a.work) for a, b in zip(step, sampling, strict=True)
    ]
