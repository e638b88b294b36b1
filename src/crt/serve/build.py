"""From a run's evaluated checkpoints to a family: levels are chosen, weights are hashed."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crt.algorithm.registry import name_of
from crt.errors import ConfigError, DataError
from crt.evaluate.evaluation import Plan, Tell
from crt.evaluate.manifest import short_name, versions
from crt.evaluate.series import BASE, SERIES, evaluate_run, points
from crt.evaluate.sets import label as set_label
from crt.evaluate.store import PROBLEMS
from crt.evaluate.versus import TOLERANCE
from crt.files import read_rows
from crt.run import Run
from crt.sampling.models import model_folder, weights_hash
from crt.serve.family import FORMAT, Certified, Example, Family, Level
from crt.serve.front import FULL, MOST_LEVELS, Measured, choose, pareto_front
from crt.serve.points import Point, certificates, measurement, series, weights_measured

EXAMPLES = 12
OR_WITHOUT = ", or offer levels without certificate (--all)"
LONGEST_QUESTION, LONGEST_ANSWER = 2000, 200


def evaluated(
    run: Run,
    data: Sequence[str],
    *,
    tell: Callable[[str], Tell | None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> Path:
    """The folder of the run's series on these data sets; evaluates what is not there yet."""
    names = tuple(data) or run.config.evaluation.data
    if not names:
        raise ConfigError(
            f"{run.path} says no data set to evaluate on: give --data, such as --data gsm8k"
        )
    label = "+".join(short_name(set_label(each)) for each in names)
    folder = run.path / "evaluations" / label
    if complete(folder, run):
        note(f"figures are those of {folder}")
        return folder
    note(f"{folder} has not all checkpoints yet: evaluating them on {', '.join(names)}")
    settings = run.config.evaluation.model_copy(update={"data": names})
    truncated = "grade" if run.config.grading.truncated == "grade" else "wrong"
    load = {"folder": run.config.data.folder}
    plan = Plan(
        run.config.model, settings, prompt=run.config.prompt, truncated=truncated, load=load
    )
    return evaluate_run(run.path, plan, tell=tell, note=note)[0]


def complete(folder: Path, run: Run) -> bool:
    """Whether the series is there with every finished checkpoint of the run."""
    if not (folder / SERIES).is_file():
        return False
    return {point.name for point in points(run)} <= {point.name for point in series(folder)}


def family_of(
    run: Run,
    folder: Path,
    file: Path,
    *,
    name: str | None = None,
    levels: int = 4,
    tolerance: float = TOLERANCE,
    uncertified: bool = False,
    strict: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> Family:
    """The family for `file`, from the series in `folder`."""
    if not 2 <= levels <= MOST_LEVELS:
        raise ConfigError(f"--levels {levels}: from 2 (one below full) to {MOST_LEVELS}")
    if not 0 <= tolerance <= 1:
        raise ConfigError(f"--tolerance {tolerance}: from 0 to 1; 0.01 is one point of accuracy")
    base, *others = found = series(folder)
    by_name = {point.name: point for point in others}
    held = certificates(folder, found, tolerance)
    measured = [point.measured(held[point.name]) for point in others]
    chosen = choose(
        measured,
        base.figure("len").value,
        levels=levels,
        tolerance=tolerance,
        uncertified=uncertified,
        strict=strict,
    )
    front = {point.name for point in pareto_front([point for _, point in chosen])}
    made = [
        _level(run, folder, file, by_name[m.name], word, held[m.name], m.name in front)
        for word, m in chosen
    ]
    if not any(held[m.name].held for _, m in chosen):
        note(none_passed(measured, held, base, tolerance) + ("" if uncertified else OR_WITHOUT))
    return Family(
        format=FORMAT,
        name=name or short_name(run.config.name)[:64],
        method=name_of(run.config.method),
        tolerance=float(tolerance),
        candidates=len(others),
        measured=measurement(folder, base),
        prompt=_plain(asdict(run.config.prompt)),
        levels=[*made, _level(run, folder, file, base, FULL)],
        examples=examples(folder / base.folder / PROBLEMS),
        versions=versions(),
    )


def none_passed(
    measured: Sequence[Measured], held: Mapping[str, Certified], base: Point, tolerance: float
) -> str:
    """Why no checkpoint is certified, and what would help."""
    points = f"{100 * tolerance:g} point{'' if tolerance == 0.01 else 's'}"
    length = base.figure("len").value
    near = [held[m.name] for m in measured if 0 < m.length < length and m.feasible(tolerance)]
    if not near:
        return (
            f"no checkpoint that is shorter than the base was measured within {points} of its "
            "accuracy: allow more (--tolerance), or train longer"
        )
    needed = min((each.needed for each in near if each.needed), default=None)
    if needed is None or needed <= near[0].problems:
        return f"no checkpoint is certified to {points}: allow more (--tolerance)"
    return (
        f"{near[0].problems} problems are too few to certify one of {len(measured)} checkpoints to "
        f"{points}: one as good as the base needs about {needed:,} (--data NAME:COUNT); or allow "
        "more (--tolerance)"
    )


def examples(file: Path, count: int = EXAMPLES) -> list[Example]:
    """Problems spread evenly over the evaluation's, those that fit on a page."""
    rows = [
        Example(question=row["question"], answer=row["answer"])
        for row in read_rows(file)
        if len(row["question"]) <= LONGEST_QUESTION and len(row["answer"]) <= LONGEST_ANSWER
    ]
    if len(rows) <= count:
        return rows
    return [rows[i * len(rows) // count] for i in range(count)]


def _level(
    run: Run,
    folder: Path,
    file: Path,
    point: Point,
    name: str,
    held: Certified | None = None,
    front: bool = True,
) -> Level:
    base = point.name == BASE
    where = run.config.model.name if base else str(run.checkpoint(point.step))
    revision = run.config.model.revision if base else None
    at = model_folder(where, revision)
    here = Path(where).is_dir()
    return Level(
        name=name,
        step=point.step,
        model=os.path.relpath(where, file.parent) if here else where,
        folder=here,
        revision=revision,
        hash=_same_weights(at, folder / point.folder),
        adapter=not (at / "config.json").is_file(),
        front=front,
        acc=point.figure("acc"),
        len=point.figure("len"),
        r_zip=point.figure_or_none("r_zip"),
        saved=point.saved,
        certificate=held,
    )


def _same_weights(model: Path, evaluation: Path) -> str:
    """Their hash; figures of other weights than these would be a false promise."""
    found = weights_hash(model)
    if weights_measured(evaluation) != found:
        raise DataError(
            f"{model} has other weights than those that were measured in {evaluation}: evaluate "
            "it again, into another folder or with that one removed."
        )
    return found


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "few_shot": [list(pair) for pair in value["few_shot"]]}
