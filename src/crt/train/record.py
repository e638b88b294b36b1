"""What every engine leaves in a run's directory, and when it must stop for it."""

import math
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crt.engines.deciding import Step
from crt.errors import EngineError
from crt.files import read_json, sha256, write_json, write_sealed
from crt.run import FILES, RECORD, Run


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
    shutil.rmtree(target, ignore_errors=True)
    aside = target.with_name(f".unfinished-{target.name}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    listed: dict[str, str] = {}
    for file in files:
        if file.name == "config.json" and dtype is not None:
            write_json(aside / file.name, read_json(file) | {"dtype": dtype})
            listed[file.name] = sha256(aside / file.name)
        else:
            os.link(file, aside / file.name)  # no second copy on disk
            listed[file.name] = (sums or {}).get(file.name) or sha256(file)
    write_sealed(aside / RECORD, {"step": step, **found, FILES: listed})
    aside.replace(target)


def limit_ungraded(run: Run, step: Step, number: int) -> None:
    """Stops a run whose grader does not work: its figures would be of the rest alone."""
    counted = 0 if step.signal is None else int(step.signal.decision.reward.shape[0])
    share = len(step.left_out) / max(1, len(step.left_out) + counted)
    limit = run.config.grading.ungraded_limit
    if share > limit and len(step.left_out) > 1:
        raise EngineError(
            f"training was stopped: {share:.0%} of the problems of step {number} "
            f"could not be graded, for example {step.left_out[0]!r}; the limit is {limit:.0%}. "
            f"Look at the answers in the data and at {run.rollouts_file(number)}, give "
            f"the grader more time, or raise grading.ungraded_limit. {last_good(run)}"
        )


def last_good(run: Run) -> str:
    """The last checkpoint that kept the guard, for whoever reads why a run was stopped."""
    good = [step for step, record in run.checkpoints.items() if record.get("feasible")]
    if not good:
        return "No checkpoint was feasible before that."
    return f"The last feasible checkpoint is {run.checkpoint(good[-1])}."


def finite(value: float | None) -> float | None:
    """JSON has no NaN, and TRL makes None of some: absent is not 0."""
    return value if value is not None and math.isfinite(value) else None
