"""`crt train` in a process of its own, which may be ended at a named moment as `kill -9` would.

The processes are forked from one that has the libraries loaded already, so that a run costs what
training costs and not what importing torch costs.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from crt.run import Run
from tests.support.tiny_model import BOXES, WORDS

LOADED = [
    "crt.commands.train",
    "crt.training.train",
    "crt.training.trl.fit",
    "crt.sampling.vllm",
    "peft",
    "trl",
]


@dataclass(frozen=True)
class Done:
    """How it ended, and what it said."""

    returncode: int | None
    stdout: str
    stderr: str


def rows(run: Path) -> list[dict[str, Any]]:
    """The run's steps without the time they took, which is all that may differ."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in Run.open(run).steps]


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    [file] = Run.open(run).checkpoint(step).glob("*model.safetensors")
    return load_file(file)


def same(path: Path, other: Path) -> None:
    """Rows, progress, records, rollouts and weights are equal."""
    ours, theirs = Run.open(path), Run.open(other)
    assert rows(path) == rows(other)
    assert ours.progress == theirs.progress and ours.progress["finished"]
    assert ours.checkpoints == theirs.checkpoints
    for step in ours.checkpoints:
        one, two = weights(path, step), weights(other, step)
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)
    for step in range(1, len(rows(path)) + 1):
        assert ours.rollouts(step) == theirs.rollouts(step)


def train(
    folder: Path, run: Path, moment: str = "never", step: int = 0, recipe: str = "recipe.toml",
    words: tuple[str, ...] = (),
) -> Done:  # fmt: skip
    """A new run, or on with one that is there."""
    start = ["--resume", str(run)] if run.exists() else [str(folder / recipe), "--out", str(run)]
    return forked(["train", *start, *words], moment, step, run.with_suffix(".said"))


def forked(words: list[str], moment: str, step: int, said: Path) -> Done:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    said.mkdir(parents=True, exist_ok=True)
    process = context.Process(target=carry_out, args=(words, moment, step, str(said)))
    process.start()
    process.join(timeout=300)
    return Done(process.exitcode, *((said / name).read_text() for name in ("out", "err")))


def carry_out(words: list[str], moment: str, step: int, said: str) -> None:
    """In the new process."""
    for number, name in ((1, "out"), (2, "err")):
        sys.stdout.flush() if number == 1 else sys.stderr.flush()
        os.dup2(os.open(f"{said}/{name}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
    torch.set_num_threads(1)
    os.environ["CRT_PROCESSES"] = "1"  # a moment is arranged in this process alone
    MOMENTS[moment](step)
    from crt.cli import main

    code = main(words)
    sys.stdout.flush()
    os._exit(code)  # what a forked process would tidy up belongs to its parent


def kill() -> None:
    os.kill(os.getpid(), 9)


def before_method(name: str) -> Callable[[int], None]:
    """The recorder's method does not come to run at the chosen step."""

    def arrange(step: int) -> None:
        from crt.training import recorder

        original = getattr(recorder.Recorder, name)

        def method(self: Any, args: Any, state: Any, *rest: Any, **named: Any) -> Any:
            if self.stage.first + state.global_step == step:
                kill()
            return original(self, args, state, *rest, **named)

        setattr(recorder.Recorder, name, method)

    return arrange


def terminated(step: int) -> None:
    """SIGTERM while the step is under way."""
    from crt.training import recorder

    original = recorder.Recorder.on_graded

    def on_graded(self: Any, graded: Any) -> None:
        if self.stage.first + self.trainer.state.global_step + 1 == step:
            os.kill(os.getpid(), 15)
        original(self, graded)

    recorder.Recorder.on_graded = on_graded  # type: ignore[method-assign]


def after_update(change: Callable[[torch.Tensor], None]) -> Callable[[int], None]:
    """The weights of the words are changed once the update of the step is done."""

    def arrange(step: int) -> None:
        from crt.training import recorder

        original = recorder.Recorder.on_step_end

        def on_step_end(self: Any, args: Any, state: Any, control: Any, **named: Any) -> None:
            if self.stage.first + state.global_step == step:
                change(named["model"].lm_head.weight.data)
            original(self, args, state, control, **named)

        recorder.Recorder.on_step_end = on_step_end  # type: ignore[method-assign]

    return arrange


def broken(weight: torch.Tensor) -> None:
    """As an overflow would."""
    weight[3, 5] = float("nan")


def jumped(weight: torch.Tensor) -> None:
    """What one word was likely to be said, another is now."""
    one, other = WORDS.index(BOXES[0]), WORDS.index("hmm")
    weight[[one, other]] = weight[[other, one]]


def bare(weight: torch.Tensor) -> None:
    """A boxed answer or the end, whatever was asked."""
    for word in (BOXES[0], "<eos>"):
        weight[WORDS.index(word), 0] = 10.0


def before_record(module_name: str, final: bool) -> Callable[[int], None]:
    """A checkpoint's files are there, its record is not written."""

    def arrange(step: int) -> None:
        import importlib

        module = importlib.import_module(module_name)
        original = module.write_sealed

        def write_sealed(path: Path, value: Any) -> None:
            if path.name == "record.json" and value["step"] == step and ("final" in value) == final:
                kill()
            original(path, value)

        setattr(module, "write_sealed", write_sealed)  # noqa: B010

    return arrange


def before_progress(step: int) -> None:
    """A stage is over and its checkpoint chosen, but that is not yet written down."""
    original = Run.set_progress

    def set_progress(self: Any, **values: Any) -> None:
        if "stage_one_ended" in values:
            kill()
        original(self, **values)

    Run.set_progress = set_progress  # type: ignore[method-assign]


def between_old_and_mean(step: int) -> None:
    """The checkpoint that a mean takes the place of is aside, the mean not yet there."""
    original = Path.rename

    def rename(self: Path, target: Path) -> Path:
        old = self.with_name(f".replaced-step-{step:04d}")
        if self.name == f".unfinished-step-{step:04d}" and old.exists():
            kill()
        return original(self, target)

    Path.rename = rename  # type: ignore[method-assign]


MOMENTS: dict[str, Callable[[int], None]] = {
    "never": lambda step: None,
    "terminate": terminated,
    "weights break after the update": after_update(broken),
    "weights jump after the update": after_update(jumped),
    "answers turn bare after the update": after_update(bare),
    "before the row": before_method("on_log"),
    "before the checkpoint": before_method("on_save"),
    "in the middle of a checkpoint": before_record("crt.training.checkpoints", final=False),
    "before the second measurement is written": before_record(
        "crt.training.validation", final=True
    ),
    "between the old checkpoint and the mean": between_old_and_mean,
    "between the stages": before_progress,
}
