"""One training step: ours beside stock TRL, and what the guard adds to a plain GRPO step."""

from collections.abc import Iterator
from dataclasses import replace

from harness.results import Row, compared
from harness.timing import Contender, Timing, Timings, interleaved
from trainers import Clocked, Size, Trainers, use_threads

from crt.tasks.grade import Grader

from . import Setting

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
    contenders: dict[str, Contender] = {"crt": lambda _: trainers.one_step(crt)}
    if setting.wants("step"):
        stock = trainers.stock()
        contenders["stock"] = lambda _: trainers.one_step(stock)
    if setting.wants("guard-fresh"):
        for count in FRESH:
            drawn = trainers.reference(count, kept=False)
            contenders[f"fresh {count}"] = lambda _, drawn=drawn: bool(drawn(trainers.ids))
    timings = interleaved(contenders, setting.repeats)
    plain = [
        Timing(t.wall - wall, t.cpu - cpu, t.work)
        for t, wall, cpu in zip(timings["crt"], guard.wall[1:], guard.cpu[1:], strict=True)
    ]
    return timings, plain


def fresh(timings: Timings, plain: list[Timing], told: str) -> Row:
    """A plain step and the reference's rollouts after it, against the plain step alone."""

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
