"""The trainer's saved states: marked whole with checksums, the last two kept, damage found."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from crt.errors import DataError
from crt.files import checked_sum, read_sealed, sha256, write_sealed
from crt.run import FILES, PROGRESS, RECORD, STATE, STEPS, Run

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
