"""From a run's evaluated checkpoints to a family: certificates, choice of levels, weight hashes."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from crt.algorithm.registry import name_of
from crt.errors import ConfigError, DataError
from crt.evaluation.datasets import folder_label, short_name
from crt.evaluation.evaluator import Plan, Tell
from crt.evaluation.paired import LEVEL, TOLERANCE, certificate, pair
from crt.evaluation.series import BASE, SERIES, evaluate_run, points
from crt.evaluation.store import MANIFEST, PROBLEMS, load, versions
from crt.io import read_json, read_rows
from crt.levels.choose import (
    FULL,
    MOST_LEVELS,
    Candidate,
    choose_levels,
    pareto_front,
)
from crt.levels.family import (
    FORMAT,
    Estimate,
    Example,
    Family,
    Level,
    LevelCertificate,
    Measurement,
)
from crt.run import Run
from crt.sampling.models import model_folder, weights_hash

AVERAGE = "all"  # levels are judged over all data sets of the evaluation
EXAMPLES = 12
LONGEST_QUESTION, LONGEST_ANSWER = 2000, 200


def evaluated_series(
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
            f"{run.path} names no data set to evaluate on: give --data, such as --data gsm8k"
        )
    label = folder_label(names)
    folder = run.path / "evaluations" / label
    if _is_complete(folder, run):
        note(f"figures are those of {folder}")
        return folder
    note(f"{folder} has not all checkpoints yet: evaluating them on {', '.join(names)}")
    settings = run.config.evaluation.model_copy(update={"data": names})
    truncated = "grade" if run.config.grading.truncated == "grade" else "wrong"
    plan = Plan(
        run.config.model,
        settings,
        prompt=run.config.prompt,
        truncated=truncated,
        load={"folder": run.config.data.folder},
    )
    return evaluate_run(run.path, plan, tell=tell, note=note)[0]


def build_family(
    run: Run,
    folder: Path,
    file: Path,
    *,
    name: str | None = None,
    levels: int = 4,
    tolerance: float = TOLERANCE,
    uncertified: bool = False,
    front_only: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> Family:
    """The family for `file`, from the series in `folder`."""
    if not 2 <= levels <= MOST_LEVELS:
        raise ConfigError(f"--levels {levels}: from 2 (one below full) to {MOST_LEVELS}")
    if not 0 <= tolerance <= 1:
        raise ConfigError(f"--tolerance {tolerance}: from 0 to 1; 0.01 is one point of accuracy")
    base, *others = series = read_series(folder)
    by_name = {point.name: point for point in others}
    certificates = certify(folder, series, tolerance)
    candidates = [
        Candidate(p.name, p.acc.value / 100, p.len.value, c.difference, c.lower_bound)
        for p, c in ((point, certificates[point.name]) for point in others)
    ]
    chosen = choose_levels(
        candidates,
        base.len.value,
        levels=levels,
        tolerance=tolerance,
        uncertified=uncertified,
        front_only=front_only,
    )
    front = {candidate.name for candidate in pareto_front([candidate for _, candidate in chosen])}
    below = [
        _level(run, folder, file, by_name[c.name], word, certificates[c.name], c.name in front)
        for word, c in chosen
    ]
    if not any(level.certified for level in below):
        otherwise = "" if uncertified else ", or offer levels without certificate (--all)"
        note(_why_uncertified(candidates, certificates, base, tolerance) + otherwise)
    return Family(
        format=FORMAT,
        name=name or short_name(run.config.name)[:64],
        method=name_of(run.config.method),
        tolerance=float(tolerance),
        candidates=len(others),
        measured=read_measurement(folder, base),
        prompt=_plain_prompt(run),
        levels=[*below, _level(run, folder, file, base, FULL)],
        examples=read_examples(folder / base.folder / PROBLEMS),
        versions=versions(),
    )


@dataclass(frozen=True)
class SeriesPoint:
    """What a series says of the base or of a checkpoint."""

    name: str
    step: int
    folder: str
    acc: Estimate  # in %
    len: Estimate
    r_zip: Estimate | None
    saved: Estimate | None  # % of the base's tokens; None for the base


def read_series(folder: Path) -> list[SeriesPoint]:
    """The points of a series, the base first."""
    path = folder / SERIES
    if not path.is_file():
        raise DataError(
            f"{folder} is not a series: it has no {SERIES}. Make one: crt eval RUN "
            "--all-checkpoints --data NAME."
        )
    content: Any = read_json(path)
    try:
        series = [_point(plain) for plain in content["points"]]
    except (ValidationError, KeyError, TypeError, AttributeError):
        raise DataError(f"{path} is not a series of this version.") from None
    outside = [point for point in series if Path(point.folder).name != point.folder]
    if not series or series[0].name != BASE or outside:
        raise DataError(f"{path} does not begin with the base, or leaves its folder.")
    return series


def certify(
    folder: Path, series: Sequence[SeriesPoint], tolerance: float
) -> dict[str, LevelCertificate]:
    """Name → certificate of every checkpoint, valid for all of them at once.

    The levels are chosen by the same figures, and the luckiest of many looks better than it is.
    So each of M bounds has the confidence 1 − α/M, which leaves 1 − α for whichever is chosen.
    """
    base, *others = series
    reference = load(folder / base.folder).counts
    confidence = 1 - (1 - LEVEL) / max(1, len(others))
    certificates: dict[str, LevelCertificate] = {}
    for point in others:
        counts = load(folder / point.folder).counts
        pairs = [pair(counts[name], reference[name]) for name in reference if name in counts]
        result = certificate(pairs, tolerance, confidence) if pairs else None
        if result is None:
            raise DataError(f"{point.name} was measured on too few problems for a certificate.")
        certificates[point.name] = LevelCertificate(
            difference=result.difference,
            lower_bound=result.lower_bound,
            tolerance=float(tolerance),
            confidence=LEVEL,
            candidates=len(others),
            problems=result.problems,
            needed=result.needed,
            passed=result.passed,
        )
    return certificates


def read_measurement(folder: Path, base: SeriesPoint) -> Measurement:
    """How the series was measured."""
    path = folder / base.folder / MANIFEST
    manifest: Any = read_json(path)
    try:
        sampling = manifest["sampling"]
        return Measurement(
            data=[{k: data[k] for k in ("name", "hash", "problems")} for data in manifest["data"]],
            rollouts=sampling["rollouts"],
            temperature=float(sampling["temperature"]),
            top_p=float(sampling["top_p"]),
            max_tokens=sampling["max_tokens"],
            evaluation=folder.name,
            date=str(manifest.get("finished", manifest["started"]))[:10],
        )
    except (ValidationError, KeyError, TypeError, ValueError):
        raise DataError(f"{path} is not a manifest of this version.") from None


def read_examples(file: Path, count: int = EXAMPLES) -> list[Example]:
    """Problems spread evenly over the evaluation's, those that fit on a page."""
    rows = [
        Example(question=row["question"], answer=row["answer"])
        for row in read_rows(file)
        if len(row["question"]) <= LONGEST_QUESTION and len(row["answer"]) <= LONGEST_ANSWER
    ]
    if len(rows) <= count:
        return rows
    return [rows[i * len(rows) // count] for i in range(count)]


def _is_complete(folder: Path, run: Run) -> bool:
    """Whether the series is there with every finished checkpoint of the run."""
    if not (folder / SERIES).is_file():
        return False
    return {point.name for point in points(run)} <= {point.name for point in read_series(folder)}


def _point(plain: Mapping[str, Any]) -> SeriesPoint:
    metrics = plain["averages"].get(AVERAGE) or {}
    against_base = ((plain["versus"] or {}).get("averages") or {}).get(AVERAGE) or {}
    name = str(plain["name"])
    return SeriesPoint(
        name=name,
        step=int(plain["step"]),
        folder=str(plain["folder"]),
        acc=_required(metrics, "acc", name),
        len=_required(metrics, "len", name),
        r_zip=_estimate(metrics.get("r_zip")),
        saved=_estimate(against_base.get("saved")),
    )


def _required(metrics: Mapping[str, Any], metric: str, name: str) -> Estimate:
    estimate = _estimate(metrics.get(metric))
    if estimate is None:
        raise DataError(f"{name} has no {metric} in the evaluation: it cannot be a level.")
    return estimate


def _estimate(plain: Mapping[str, Any] | None) -> Estimate | None:
    """An interval as an evaluation writes it; an end that is not known is the value itself."""
    if plain is None or plain["value"] is None:
        return None
    value = float(plain["value"])
    low, high = (value if plain[end] is None else float(plain[end]) for end in ("low", "high"))
    return Estimate(value=value, low=low, high=high, problems=plain["problems"])


def _level(
    run: Run,
    folder: Path,
    file: Path,
    point: SeriesPoint,
    name: str,
    certificate: LevelCertificate | None = None,
    pareto: bool = True,
) -> Level:
    base = point.name == BASE
    where = run.config.model.name if base else str(run.checkpoint(point.step))
    revision = run.config.model.revision if base else None
    at = model_folder(where, revision)
    model, is_folder = stored_model(where, at, file)
    return Level(
        name=name,
        step=point.step,
        model=model,
        folder=is_folder,
        revision=revision,
        hash=_measured_hash(at, folder / point.folder),
        adapter=not (at / "config.json").is_file(),
        pareto=pareto,
        acc=point.acc,
        len=point.len,
        r_zip=point.r_zip,
        saved=point.saved,
        certificate=certificate,
    )


def stored_model(name: str, folder: Path, file: Path) -> tuple[str, bool]:
    """A model as `file` names it, and whether that is a folder: relative to the file.

    A `.gguf` file is named by the folder that it was converted to, which every engine can load.
    """
    if Path(name).is_dir() or name.endswith(".gguf"):
        return os.path.relpath(folder, file.parent), True
    return name, False


def _measured_hash(model: Path, evaluation: Path) -> str:
    """The weights' hash; figures of other weights than these would be a false promise."""
    actual = weights_hash(model)
    manifest: Any = read_json(evaluation / MANIFEST)
    measured = manifest.get("model") if isinstance(manifest, dict) else None
    if not isinstance(measured, dict) or measured.get("hash") != actual:
        raise DataError(
            f"{model} has other weights than those that were measured in {evaluation}: evaluate "
            "it again, into another folder or with that one removed."
        )
    return actual


def _why_uncertified(
    candidates: Sequence[Candidate],
    certificates: Mapping[str, LevelCertificate],
    base: SeriesPoint,
    tolerance: float,
) -> str:
    """Why no checkpoint is certified, and what would help."""
    allowed = f"{100 * tolerance:g} point{'' if tolerance == 0.01 else 's'}"
    near = [
        certificates[c.name]
        for c in candidates
        if 0 < c.length < base.len.value and c.feasible(tolerance)
    ]
    if not near:
        return (
            f"no checkpoint that is shorter than the base was measured within {allowed} of its "
            "accuracy: allow more (--tolerance), or train longer"
        )
    problems = near[0].problems
    needed = min((each.needed for each in near if each.needed), default=None)
    if needed is None or needed <= problems:
        return f"no checkpoint is certified to {allowed}: allow more (--tolerance)"
    return (
        f"{problems} problems are too few to certify one of {len(candidates)} checkpoints to "
        f"{allowed}: one as good as the base needs about {needed:,} (--data NAME:COUNT); or allow "
        "more (--tolerance)"
    )


def _plain_prompt(run: Run) -> dict[str, Any]:
    settings = asdict(run.config.prompt)
    return {**settings, "few_shot": [list(pair) for pair in settings["few_shot"]]}
