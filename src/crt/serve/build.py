"""From a run's evaluated checkpoints to a family: the series is read, weights are hashed."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from crt.core.methods import name_of
from crt.engines.models import model_folder, weights_hash
from crt.errors import ConfigError, DataError
from crt.evaluate.evaluation import Plan, Tell
from crt.evaluate.manifest import short_name, versions
from crt.evaluate.series import BASE, SERIES, evaluate_run, points
from crt.evaluate.sets import label as set_label
from crt.evaluate.store import MANIFEST, PROBLEMS
from crt.evaluate.versus import TOLERANCE
from crt.files import read_json, read_rows
from crt.run import Run
from crt.serve.family import FORMAT, Example, Family, Figure, Level, Measurement
from crt.serve.front import FULL, MOST_LEVELS, Measured, choose, pareto_front

AVERAGE = "all"  # levels are judged over all data sets of the evaluation
EXAMPLES = 12
LONGEST_QUESTION, LONGEST_ANSWER = 2000, 200


class Point(BaseModel):
    """What is read of a point of a series."""

    model_config = ConfigDict(frozen=True)

    name: str
    step: int
    folder: str
    averages: dict[str, dict[str, Any]]
    versus: dict[str, dict[str, dict[str, Any]]] | None


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


def series(folder: Path) -> list[Point]:
    """The points of a series, the base first."""
    if not (folder / SERIES).is_file():
        raise DataError(
            f"{folder} is not a series: it has no {SERIES}. Make one: crt eval RUN "
            "--all-checkpoints --data NAME."
        )
    told = read_json(folder / SERIES)
    try:
        found = [Point.model_validate(point) for point in told["points"]]
    except (ValidationError, KeyError, TypeError):
        raise DataError(f"{folder / SERIES} is not a series of this version.") from None
    if not found or found[0].name != BASE or any(Path(p.folder).name != p.folder for p in found):
        raise DataError(f"{folder / SERIES} does not begin with the base, or leaves its folder.")
    return found


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
) -> Family:
    """The family for `file`, from the series in `folder`."""
    if not 2 <= levels <= MOST_LEVELS:
        raise ConfigError(f"--levels {levels}: from 2 (one below full) to {MOST_LEVELS}")
    if not 0 <= tolerance <= 1:
        raise ConfigError(f"--tolerance {tolerance}: from 0 to 1; 0.01 is one point of accuracy")
    base, *others = series(folder)
    by_name = {point.name: point for point in others}
    chosen = choose(
        [measured(point) for point in others],
        _figure(base, "len").value,
        levels=levels,
        tolerance=tolerance,
        uncertified=uncertified,
        strict=strict,
    )
    front = {point.name for point in pareto_front([point for _, point in chosen])}
    made = [
        _level(run, folder, file, by_name[m.name], word, tolerance, m.name in front)
        for word, m in chosen
    ]
    return Family(
        format=FORMAT,
        name=name or short_name(run.config.name)[:64],
        method=name_of(run.config.method),
        tolerance=float(tolerance),
        candidates=len(others),
        measured=_measurement(folder, base),
        prompt=_plain(asdict(run.config.prompt)),
        levels=[*made, _level(run, folder, file, base, FULL, tolerance)],
        examples=examples(folder / base.folder / PROBLEMS),
        versions=versions(),
    )


def measured(point: Point) -> Measured:
    """What the choice of levels looks at."""
    held = _certificate(point)
    return Measured(
        point.name,
        _figure(point, "acc").value / 100,
        _figure(point, "len").value,
        held["difference"],
        held["lower_bound"],
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
    tolerance: float,
    front: bool = True,
) -> Level:
    where = run.config.model.name if point.name == BASE else str(run.checkpoint(point.step))
    revision = run.config.model.revision if point.name == BASE else None
    at = model_folder(where, revision)
    found = weights_hash(at)
    _same_weights(folder / point.folder, found, where)
    here = Path(where).is_dir()
    saved = None if point.versus is None else point.versus["averages"][AVERAGE].get("saved")
    return Level(
        name=name,
        step=point.step,
        model=os.path.relpath(where, file.parent) if here else where,
        folder=here,
        revision=revision,
        hash=found,
        adapter=(at / "adapter_config.json").is_file() and not (at / "config.json").is_file(),
        front=front,
        acc=_figure(point, "acc"),
        len=_figure(point, "len"),
        r_zip=_figure_or_none(point.averages[AVERAGE].get("r_zip")),
        saved=_figure_or_none(saved),
        certificate=None if point.name == BASE else _certified(point, tolerance),
    )


def _same_weights(evaluation: Path, found: str, where: str) -> None:
    """Figures of other weights than these would be a false promise."""
    known = read_json(evaluation / MANIFEST).get("model", {}).get("hash")
    if known != found:
        raise DataError(
            f"{where} has other weights than those that were measured in {evaluation}: evaluate "
            "it again, into another folder or with that one removed."
        )


def _measurement(folder: Path, base: Point) -> Measurement:
    manifest = read_json(folder / base.folder / MANIFEST)
    how = manifest["sampling"]
    return Measurement(
        data=[{k: each[k] for k in ("name", "hash", "problems")} for each in manifest["data"]],
        rollouts=how["rollouts"],
        temperature=float(how["temperature"]),
        top_p=float(how["top_p"]),
        max_tokens=how["max_tokens"],
        evaluation=folder.name,
        date=str(manifest.get("finished", manifest["started"]))[:10],
    )


def _figure(point: Point, name: str) -> Figure:
    found = _figure_or_none(point.averages.get(AVERAGE, {}).get(name))
    if found is None:
        raise DataError(f"{point.name} has no {name} in the evaluation: it cannot be a level.")
    return found


def _figure_or_none(value: Mapping[str, Any] | None) -> Figure | None:
    if value is None or value.get("value") is None:
        return None
    low, high = (value["value"] if value[end] is None else value[end] for end in ("low", "high"))
    return Figure(
        value=float(value["value"]), low=float(low), high=float(high), problems=value["problems"]
    )


def _certificate(point: Point) -> Mapping[str, Any]:
    held = (point.versus or {}).get("averages", {}).get(AVERAGE, {}).get("certificate")
    if held is None:
        raise DataError(f"{point.name} was measured on too few problems for a certificate.")
    return held


def _certified(point: Point, tolerance: float) -> Any:
    from crt.core.intervals import Certificate

    held = _certificate(point)
    known = Certificate(
        **{k: held[k] for k in ("difference", "lower_bound", "level", "problems")},
        tolerance=float(tolerance),
    )
    return {**asdict(known), "held": known.held}


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "few_shot": [list(pair) for pair in value["few_shot"]]}
