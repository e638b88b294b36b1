"""A run's checkpoints on the same problems and seeds: the series that trajectories are drawn of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crt.config import ModelConfig, RunConfig
from crt.errors import DataError
from crt.evaluation.evaluation import Plan, Tell, evaluate
from crt.evaluation.manifest import short_name
from crt.evaluation.matched import length_matched
from crt.evaluation.sets import label as set_label
from crt.evaluation.store import Evaluation
from crt.evaluation.versus import TOLERANCE, all_versus
from crt.io import write_json
from crt.run import CHECKPOINTS, CONFIG, Run

SERIES = "series.json"
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
    found = [
        Point(run.checkpoint(step).name, step, str(run.checkpoint(step)))
        for step in run.checkpoints
    ]
    if not found:
        raise DataError(f"{run.path / CHECKPOINTS} has no finished checkpoint yet.")
    return [Point(BASE, 0, run.config.model.name), *found]


def evaluate_run(
    run: Path,
    plan: Plan,
    *,
    name: str | None = None,
    tolerance: float = TOLERANCE,
    tell: Callable[[str], Tell | None] = lambda _: None,
    note: Callable[[str], None] | None = None,
) -> tuple[Path, list[Evaluation]]:
    """Evaluates base and checkpoints; the series is written anew after each of them."""
    opened = Run.open(run)
    label = name or "+".join(short_name(set_label(each)) for each in plan.settings.data)
    folder = run / "evaluations" / label
    done: list[tuple[Point, Evaluation]] = []
    plain = replace(plan.prompt, budget="none", budget_tokens=None)
    every = points(opened)
    note = note and _once(note)
    for point in every:
        each = replace(plan, model=_model(point, opened.config, plan))
        if point.name == BASE:  # as it was before it learned to keep to a budget
            each = replace(each, prompt=plain, budget=None)
        told = _of_all(tell(point.name), len(every))
        found = evaluate(each, folder / point.name, name=point.name, tell=told, note=note)
        if done:
            found = replace(found, tallies=length_matched(found, done[0][1]))
        done.append((point, found))
        write_json(folder / SERIES, series(done, tolerance))
    return folder, [evaluation for _, evaluation in done]


def _once(note: Callable[[str], None]) -> Callable[[str], None]:
    """Passes a sentence on the first time; all points say the same of their problems."""
    seen: set[str] = set()

    def say(sentence: str) -> None:
        if sentence not in seen:
            seen.add(sentence)
            note(sentence)

    return say


def _of_all(tell: Tell | None, count: int) -> Tell | None:
    """Says how many responses there are over all points, not how many this one has."""
    return tell and (lambda total, done, tokens: tell(count * total, done, tokens))


def series(done: Sequence[tuple[Point, Evaluation]], tolerance: float) -> dict[str, Any]:
    """Figures of every point, and against the base; `folder` is where its responses are."""
    base = done[0][1]
    return {
        "format": 1,
        "base": done[0][0].name,
        "tolerance": tolerance,
        "data": base.manifest["data"],
        "points": [
            {
                "name": point.name,
                "step": point.step,
                "model": point.model,
                "folder": point.name,
                "sets": evaluation.figures["sets"],
                "averages": evaluation.figures["averages"],
                "warnings": list(evaluation.warnings),
                "versus": None if evaluation is base else _versus(evaluation, base, tolerance),
            }
            for point, evaluation in done
        ],
    }


def _versus(evaluation: Evaluation, base: Evaluation, tolerance: float) -> dict[str, Any]:
    found = all_versus(evaluation.tallies, base.tallies, tolerance)
    return {
        kind: {name: each.as_json() for name, each in part.items()} for kind, part in found.items()
    }


def _model(point: Point, config: RunConfig, plan: Plan) -> ModelConfig:
    """The run's settings of the model, changed where the plan says so; a revision is the base's."""
    given = {name: getattr(plan.model, name) for name in plan.model.model_fields_set}
    own = {} if point.name == BASE else {"revision": None}
    return config.model.model_copy(update={**given, **own, "name": point.model})
