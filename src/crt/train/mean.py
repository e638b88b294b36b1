"""The mean of a run's last checkpoints: one more candidate, often steadier than any of them.

With small batches the weights wander about what they have learnt, and accuracy with them; their
mean does not. What the mean is worth is measured, as with any other checkpoint.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from crt.files import UNFINISHED
from crt.run import RECORD, Run
from crt.train.choice import is_sound, measured_from_disk
from crt.train.measure import Floor, figures
from crt.train.record import keep_checkpoint
from crt.train.workshop import Workshop

WEIGHTS = "*.safetensors"


def add_mean(run: Run, workshop: Workshop, floor: Floor) -> None:
    """The mean of the last `validation.mean_of` checkpoints, measured, under the next number."""
    settings, line = run.config.validation, line_of(run)
    last = line[-settings.mean_of :] if settings.mean_of else []
    steps = [step for step in last if is_sound(run, workshop, step)]
    if len(steps) < 2:
        return
    step, made = line[-1] + 1, run.checkpoint(0).with_name(f"{UNFINISHED}mean")
    if workshop.ranks.writes:
        write_mean([run.checkpoint(each) for each in steps], made)
    workshop.ranks.wait()
    name = f"the mean of steps {', '.join(map(str, steps))}"
    batch = measured_from_disk(workshop, made, name, settings.rollouts, step)
    if workshop.ranks.writes:
        stage = run.checkpoints[steps[-1]]["stage"]
        files = sorted(made.iterdir())
        keep_checkpoint(
            run, step, files, {"stage": stage, "mean_of": steps} | figures(*batch, floor)
        )
        shutil.rmtree(made)
    workshop.ranks.wait()


def line_of(run: Run) -> list[int]:
    """The checkpoints that led to the last one: Stage II may start before the end of Stage I."""
    ended = run.progress.get("stage_one_ended", 0)
    start = run.progress.get("stage_two_from", 0)
    trained = [step for step, record in run.checkpoints.items() if "mean_of" not in record]
    return [step for step in trained if step <= start or step > ended]


def write_mean(folders: Sequence[Path], made: Path) -> None:
    """A model's folder with the mean of these folders' weights; all else is the last one's."""
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(folders[-1], made, ignore=shutil.ignore_patterns(RECORD, WEIGHTS))
    for file in sorted(folders[-1].glob(WEIGHTS)):
        mean = mean_of([folder / file.name for folder in folders])
        save_file(mean, made / file.name, metadata={"format": "pt"})


def mean_of(files: Sequence[Path]) -> dict[str, torch.Tensor]:
    """Tensor by tensor, summed in float32 or finer in the order of the files."""
    total: dict[str, torch.Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for file in files:
        with safe_open(file, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (it is no dict)
                value = weights.get_tensor(name)
                kinds[name] = value.dtype
                value = value.to(torch.promote_types(value.dtype, torch.float32))
                total[name] = total[name] + value if name in total else value
    return {name: (value / len(files)).to(kinds[name]) for name, value in total.items()}
