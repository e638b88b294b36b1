"""What is saved: checkpoints of the run and states of the trainer; what a full disk means."""

import contextlib
import errno
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from crt.errors import CrtError, DataError
from crt.io import checked_sum, read_json, read_sealed, sha256, write_json, write_sealed
from crt.run import CHECKPOINTS, CONFIG, FILES, PROGRESS, RECORD, STATE, STEPS, Run


def keep_checkpoint(
    run: Run,
    step: int,
    files: Iterable[Path],
    found: Mapping[str, Any],
    sums: Mapping[str, str] | None = None,
    dtype: str | None = None,
) -> None:
    """A model's files under the run's own name, with a record; whole or absent.

    `sums` are checksums by name, where they are known already. Weights are kept as they were
    trained, in float32; `dtype` is the one in which whoever loads them will use them.
    """
    target = run.checkpoint(step)
    aside = target.with_name(f".unfinished-{target.name}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    listed: dict[str, str] = {}
    readable = (run.path / CONFIG).stat().st_mode & 0o777
    for file in files:
        if file.name == "config.json" and dtype is not None:
            write_json(aside / file.name, read_json(file) | {"dtype": dtype})
            listed[file.name] = sha256(aside / file.name)
        else:
            os.link(file, aside / file.name)  # no second copy on disk
            (aside / file.name).chmod(readable)  # safetensors gives 0600, whatever the umask
            listed[file.name] = (sums or {}).get(file.name) or sha256(file)
    write_sealed(aside / RECORD, {"step": step, **found, FILES: listed})
    old = target.with_name(REPLACED + target.name)
    if target.exists():
        target.rename(old)
    aside.rename(target)
    shutil.rmtree(old, ignore_errors=True)


REPLACED = ".replaced-"  # before the name of a checkpoint that a newer one takes the place of


def restore_replaced(run: Run) -> None:
    """A kill came after a checkpoint went aside and before the new one was there: it comes back."""
    for old in (run.path / CHECKPOINTS).glob(f"{REPLACED}*"):
        target = old.with_name(old.name.removeprefix(REPLACED))
        if target.exists():
            shutil.rmtree(old)
        else:
            old.rename(target)


def averaged_checkpoint(run: Run, steps: Sequence[int]) -> Path:
    """A folder with the mean weights of these checkpoints; the rest is that of the last one."""
    from safetensors.torch import load_file, save_file

    folders = [run.checkpoint(step) for step in steps]
    aside = folders[-1].with_name(f".unfinished-mean-{steps[-1]}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for file in sorted(folders[-1].iterdir()):
        if file.suffix != ".safetensors":
            if file.name != RECORD:
                os.link(file, aside / file.name)
            continue
        last = load_file(file)
        total = {name: weight.float() for name, weight in last.items()}
        for folder in folders[:-1]:
            for name, weight in load_file(folder / file.name).items():
                total[name] = total[name] + weight
        mean = {n: (total[n] / len(folders)).to(weight.dtype) for n, weight in last.items()}
        save_file(mean, aside / file.name, metadata={"format": "pt"})
        (aside / file.name).chmod(file.stat().st_mode & 0o777)
    return aside


def finite(value: float | None) -> float | None:
    """JSON has no NaN, and TRL makes None of some: absent is not 0."""
    return value if value is not None and math.isfinite(value) else None


FINISHED = "finished"  # the trainer's own files carry no sign that they are all there
KEPT = 2

Say = Callable[[str], None]


def on_stderr(sentence: str) -> None:
    """For whoever reads the log of a run that was resumed."""
    print(sentence, file=sys.stderr)


def step_of(path: Path) -> int:
    """The number in a state's name."""
    return int(path.name.rpartition("-")[2])


def sums_of(folder: Path) -> dict[str, str]:
    """Checksums of all that is in a folder, by path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def finish(state: Path, step: int, sums: dict[str, str]) -> None:
    """From now on a resumed run may start from here; older states than the last two go.

    The trainer would choose by the time of the files, which a clock that was put back makes wrong.
    """
    write_sealed(state / FINISHED, {"step": step, FILES: sums})
    for old in states(state.parent)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def states(folder: Path) -> list[Path]:
    """The saved states of a stage, oldest first, whole or not."""
    return sorted(folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"), key=step_of)


def last_whole(folder: Path, say: Say = on_stderr) -> Path | None:
    """The newest state in which every file is as it was written; what is after it is removed."""
    for state in reversed(states(folder)):
        if (state / FINISHED).is_file():
            try:
                check(state, state / FINISHED)
                return state
            except DataError as error:
                say(f"{error} Training goes on from the state before it.")
        shutil.rmtree(state)  # it was cut off while it was written, or it is damaged
    return None


def check(folder: Path, listing: Path) -> None:
    """Raises DataError unless the files are those of the listing; older ones list none."""
    sums = read_sealed(listing).get(FILES, {})
    for name in sums:
        checked_sum(folder / name, sums, folder)


def set_aside(run: Run, step: int, error: DataError, say: Say = on_stderr) -> None:
    """A damaged checkpoint leaves the run's choice; it is kept for whoever wants to look."""
    folder = run.checkpoint(step)
    aside = folder.with_name(f"damaged-{folder.name}")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    say(f"{error} It was moved to {aside} and is not used.")


def check_rows(run: Run, step: int) -> None:
    """Raises DataError unless every step up to this one has its row: decisions rest on them."""
    there = [row["step"] for row in run.steps]
    if there != list(range(1, step + 1)):
        raise DataError(
            f"{run.path / STEPS} has {len(there)} rows and the saved state is of step {step}: rows "
            "are missing. Put the file back, or begin a new run."
        )


def forget_later(folder: Path) -> None:
    """Takes back the states of stages after this one: they are of a run that went another way."""
    for other in folder.parent.glob("stage*"):
        if other.name > folder.name:
            shutil.rmtree(other)


def mend(run: Run, say: Say = on_stderr) -> None:
    """What a resumed run needs and can make again is made again, and said.

    Without its progress a run finds in its states where it was. Where the checkpoint that Stage II
    started from is damaged, Stage I makes it again.
    """
    restore_replaced(run)
    try:
        step = run.progress.get("stage_two_from")
    except DataError as error:
        path = run.path / PROGRESS
        path.rename(path.with_name(f"damaged-{path.name}"))
        say(f"{error} It was moved aside: the run goes on from the last state of Stage I.")
        return
    if step is None or run.progress.get("finished"):
        return
    folder = run.checkpoint(step)
    try:
        check(folder, folder / RECORD)
    except DataError as error:
        if folder.is_dir():
            set_aside(run, step, error, say)
        say(f"Stage II started from {folder}: Stage I makes it again from the state before it.")
        shutil.rmtree(run.path / STATE / "stage2", ignore_errors=True)
        for state in states(run.path / STATE / "stage1"):
            if step_of(state) >= step:
                shutil.rmtree(state)
        run.forget_progress("stage_one_ended", "stage_two_from")


FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
# What torch, safetensors and tokenizers say of it, the last as a bare Exception; torch writes
# through C++ streams, which forget the reason.
WORDS = ("No space left", "Read-only file", "Disk quota", "os error", "PytorchStreamWriter failed",
         "inline_container", "iostream error")  # fmt: skip


@contextlib.contextmanager
def disk_told(folder: Path) -> Iterator[None]:
    """Libraries that save weights have errors of their own for what the disk refuses."""
    try:
        yield
    except CrtError:
        raise
    except Exception as error:
        told = disk_fault(error)
        if told is None:
            raise
        raise DataError(
            f"{folder} cannot be written: {told}. What is saved is whole: when there is room, go "
            f"on with `crt train --resume {folder}`."
        ) from error


def disk_fault(error: BaseException | None) -> str | None:
    """What the disk said, if it is behind this error, or behind what that came from."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FAULTS:
            return os.strerror(error.errno)
        if any(word in str(error) for word in WORDS):
            return str(error).splitlines()[0][:200]
        error = error.__cause__ or error.__context__
    return None
