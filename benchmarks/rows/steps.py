"""One training step: ours beside stock TRL, and what the guard adds to a plain GRPO step."""

from collections.abc import Iterator
from dataclasses import replace

from harness.results import Row, compared
from harness.timing import Timing, Timings, interleaved
from trainers import Clocked, Size, Trainers, use_threads

from crt.tasks.grade import Grader

from . import Setting

FEW = 4  # reference rollouts a problem that are drawn anew: docs/performance.md says why
SMALL = Size(problems=4, group=4, cap=64)


def rows(setting: Setting) -> Iterator[Row]:
    """Steps alternate; per thousand generated tokens, because what is sampled differs in length."""
    use_threads(setting.threads)
    size = SMALL if setting.small else Size()
    with Grader() as grader:
        trainers = Trainers(size, grader, setting.folder / "steps")
        yield from _rows(setting, size, trainers)


def _rows(setting: Setting, size: Size, trainers: Trainers) -> Iterator[Row]:
    kept = trainers.reference(size.group, kept=True)
    kept(trainers.ids)  # fills the cache
    crt = trainers.ours(kept)
    guard = Clocked(crt, "_decide")
    few, full = (trainers.reference(count, kept=False) for count in (FEW, size.group))
    contenders = {"crt": lambda _: trainers.one_step(crt)}
    if setting.wants("guard-fresh"):
        contenders["few"] = lambda _: bool(few(trainers.ids))
        contenders["full"] = lambda _: bool(full(trainers.ids))
    if setting.wants("step"):
        stock = trainers.stock()
        contenders["stock"] = lambda _: trainers.one_step(stock)
    timings = interleaved(contenders, setting.repeats)
    told = f"{size.problems}×{size.group} rollouts of the pocket model, cap {size.cap}"
    if setting.wants("step"):
        yield compared(
            "step", f"one CRT step, {told}", "stock TRL GRPOTrainer",
            timings["crt"], timings["stock"], goal=5, unit="s / 1,000 tokens", scale=1000,
        )  # fmt: skip
    plain = [
        Timing(t.wall - wall, t.cpu - cpu, t.work)
        for t, wall, cpu in zip(timings["crt"], guard.wall[1:], guard.cpu[1:], strict=True)
    ]
    if setting.wants("guard-cached"):
        yield compared(
            "guard-cached", f"CRT step with the reference in cache, {told}",
            "plain GRPO step, same engine", timings["crt"], plain, goal=1.05, better="lower",
            unit="s / 1,000 tokens", scale=1000,
            note="in the same steps: all of a step, against all but looking up and deciding",
        )  # fmt: skip
    if setting.wants("guard-fresh"):
        yield _fresh(timings, plain, size, told)


def _fresh(timings: Timings, plain: list[Timing], size: Size, told: str) -> Row:
    """A plain step and the reference's rollouts after it, against the plain step alone."""
    few, full = (_together(plain, timings[name]) for name in ("few", "full"))
    row = compared(
        "guard-fresh", f"CRT step, nothing cached, {FEW} reference rollouts a problem, {told}",
        "plain GRPO step, same engine", few, plain, goal=1.3, better="lower",
        unit="s / 1,000 tokens", scale=1000,
    )  # fmt: skip
    paper = compared("", "", "", full, plain, goal=None, better="lower")
    note = f"with {size.group} fresh reference rollouts, as in the paper, {paper.ratio:.2f} times"
    return replace(row, note=note)


def _together(step: list[Timing], sampling: list[Timing]) -> list[Timing]:
    return [
        Timing(a.wall + b.wall, a.cpu + b.cpu, a.work) for a, b in zip(step, sampling, strict=True)
    ]
