"""A run's checkpoints on the same problems and seeds: the series that trajectories are drawn of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crt.config import ModelConfig, RunConfig
from crt.errors import DataError
from crt.evaluation.datasets import folder_label
from crt.evaluation.evaluator import Note, Plan, Tell, evaluate
from crt.evaluation.metrics import nested_json
from crt.evaluation.paired import TOLERANCE, compare_all, length_matched
from crt.evaluation.store import SERIES, Evaluation
from crt.io import write_json
from crt.run import CHECKPOINTS, CONFIG, Run

BASE = "base"


@dataclass(frozen=True)
class Point:
    """One model of a series: the base at step 0, or a checkpoint."""

    name: str
    step: int
    model: str


def is_run(folder: Path) -> bool:
    """Whether a folder is a training run."""
    return (folder / CONFIG).is_file() and (folder / CHECKPOINTS).is_dir()


def run_of(model: Path) -> Path | None:
    """The run that a checkpoint belongs to."""
    run = model.resolve().parent.parent
    return run if model.resolve().parent.name == CHECKPOINTS and is_run(run) else None


def points(run: Run) -> list[Point]:
    """The base model and every finished checkpoint, by step."""
    folders = {step: run.checkpoint(step) for step in run.checkpoints}
    if not folders:
        raise DataError(f"{run.path / CHECKPOINTS} has no finished checkpoint yet.")
    base = Point(BASE, 0, run.config.model.name)
    return [base, *(Point(folder.name, step, str(folder)) for step, folder in folders.items())]


def evaluate_run(
    run: Path,
    plan: Plan,
    *,
    name: str | None = None,
    models: Sequence[Point] | None = None,
    tell: Tell | None = None,
    note: Note | None = None,
) -> tuple[Path, list[Evaluation]]:
    """Evaluates base and checkpoints, or the base and what else `models` names.

    The series is written anew after each of them. `tell` gets the responses that there are over
    all points, not those of one.
    """
    opened = Run.open(run)
    folder = run / "evaluations" / (name or folder_label(plan.settings.data))
    done: list[tuple[Point, Evaluation]] = []
    every = points(opened) if models is None else models
    noted: set[str] = set()

    def note_once(sentence: str) -> None:  # all points say the same of their problems
        if note and sentence not in noted:
            noted.add(sentence)
            note(sentence)

    def tell_of_all(total: int, responses: int, tokens: int) -> None:
        if tell:
            tell(len(every) * total, responses, tokens)

    for point in every:
        own = replace(plan, model=_model(point, opened.config, plan))
        if point.name == BASE:  # as it was before it learned to keep to a budget
            prompt = replace(plan.prompt, budget="none", budget_tokens=None)
            own = replace(own, prompt=prompt, budget=None)
        evaluation = evaluate(
            own, folder / point.name, name=point.name, tell=tell_of_all, note=note_once
        )
        if done:
            evaluation = replace(evaluation, counts=length_matched(evaluation, done[0][1]))
        done.append((point, evaluation))
        write_json(folder / SERIES, series(done))
    return folder, [evaluation for _, evaluation in done]


def series(done: Sequence[tuple[Point, Evaluation]]) -> dict[str, Any]:
    """Metrics of every point, and against the base; `folder` is where its responses are."""
    base = done[0][1]
    return {
        "format": 1,
        "base": done[0][0].name,
        "tolerance": TOLERANCE,
        "data": base.manifest["data"],
        "points": [
            {
                "name": point.name,
                "step": point.step,
                "model": point.model,
                "folder": point.name,
                "sets": evaluation.metrics["sets"],
                "averages": evaluation.metrics["averages"],
                "warnings": list(evaluation.warnings),
                "versus": None
                if evaluation is base
                else nested_json(compare_all(evaluation.counts, base.counts)),
            }
            for point, evaluation in done
        ],
    }


def _model(point: Point, config: RunConfig, plan: Plan) -> ModelConfig:
    """The run's settings of the model, changed where the plan says so; a revision is the base's."""
    given = {name: getattr(plan.model, name) for name in plan.model.model_fields_set}
    own = {} if point.name == BASE else {"revision": None}
    return config.model.model_copy(update={**given, **own, "name": point.model})
