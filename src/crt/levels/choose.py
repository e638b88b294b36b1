"""From a run's evaluated checkpoints to a family: certificates, choice of levels, weight hashes."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crt.algorithm.guard import EDGE
from crt.algorithm.metrics import pareto_front
from crt.algorithm.registry import name_of
from crt.algorithm.two_stage import EQUALLY_SHORT
from crt.errors import ConfigError, DataError
from crt.evaluation import tables
from crt.evaluation.datasets import folder_label, short_name
from crt.evaluation.evaluator import Plan, Tell
from crt.evaluation.metrics import LEVEL
from crt.evaluation.paired import TOLERANCE, certificate, pair
from crt.evaluation.series import BASE, SERIES, evaluate_run, points
from crt.evaluation.store import Evaluation, load
from crt.levels.family import (
    FORMAT,
    FULL,
    LEVEL_NAMES,
    MOST_LEVELS,
    Estimate,
    Example,
    Family,
    Level,
    LevelCertificate,
    Measurement,
)
from crt.run import Run, versions
from crt.sampling.models import model_folder, weights_hash

AVERAGE = "all"  # levels are judged over all data sets of the evaluation
NOTICEABLE = 1.1  # ratio of lengths below which nobody would notice another level
EXAMPLES = 12
LONGEST_QUESTION, LONGEST_ANSWER = 2000, 200
_OF_BOUND = ("difference", "lower_bound", "tolerance", "problems", "needed", "passed")
_OF_CANDIDATE = ("step", "acc", "len", "r_zip", "saved", "certificate")


@dataclass(frozen=True)
class Candidate:
    """What was measured of the base or of a checkpoint."""

    name: str
    step: int
    acc: Estimate  # in %
    len: Estimate
    r_zip: Estimate | None = None
    saved: Estimate | None = None
    certificate: LevelCertificate | None = None  # None for the base

    @property
    def certified(self) -> bool:
        return bool(self.certificate and self.certificate.passed)


# ---- the evaluation


def evaluated_series(
    run: Run,
    data: Sequence[str],
    *,
    tell: Tell | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Path:
    """The folder of the run's series on these data sets; evaluates what is not there yet."""
    names = tuple(data) or run.config.evaluation.data
    if not names:
        raise ConfigError(
            f"{run.path} names no data set to evaluate on: give --data, such as --data gsm8k"
        )
    folder = run.path / "evaluations" / folder_label(names)
    if (folder / SERIES).is_file():
        evaluated = {candidate.name for candidate in read_series(folder)}
        if evaluated.issuperset(point.name for point in points(run)):
            note(f"figures are those of {folder}")
            return folder
    note(f"{folder} has not all checkpoints yet: evaluating them on {', '.join(names)}")
    plan = Plan(
        run.config.model,
        run.config.evaluation.model_copy(update={"data": names}),
        prompt=run.config.prompt,
        truncated="grade" if run.config.grading.truncated == "grade" else "wrong",
        grading=run.config.grading,
        load={"folder": run.config.data.folder},
    )
    return evaluate_run(run.path, plan, tell=tell, note=note)[0]


def read_series(folder: Path) -> list[Candidate]:
    """Base and checkpoints of a series, the base first, not yet certified."""
    path = folder / SERIES
    if not path.is_file():
        raise DataError(
            f"{folder} is not a series: it has no {SERIES}. Make one: crt eval RUN "
            "--all-checkpoints --data NAME."
        )
    try:
        series = [_candidate(point) for point in tables.read_series(folder)]
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} is no series of this version: {reason}.") from None
    if series[0].name != BASE:
        raise DataError(f"{path} does not begin with the base.")
    return series


def _candidate(point: Mapping[str, Any]) -> Candidate:
    measured = point["averages"][AVERAGE]
    against_base = point["versus"]["averages"][AVERAGE] if point["versus"] else {}
    acc, length = _estimate(measured["acc"]), _estimate(measured["len"])
    if acc is None or length is None:
        raise ValueError(f"accuracy or length of {point['name']} is not known")
    r_zip, saved = (_estimate(x) for x in (measured.get("r_zip"), against_base.get("saved")))
    return Candidate(str(point["name"]), int(point["step"]), acc, length, r_zip, saved)


def _estimate(interval: Mapping[str, Any] | None) -> Estimate | None:
    """An interval as an evaluation writes it; an end without value is the value itself."""
    if interval is None or interval["value"] is None:
        return None
    value = interval["value"]
    low, high = (value if end is None else end for end in (interval["low"], interval["high"]))
    return Estimate(value=value, low=low, high=high, problems=interval["problems"])


def certify(
    checkpoints: Sequence[Candidate], evaluations: Mapping[str, Evaluation], tolerance: float
) -> list[Candidate]:
    """The checkpoints with certificates that are valid for all of them at once.

    The levels are chosen by the same figures, and the luckiest of many looks better than it is.
    So each of M bounds has the confidence 1 − α/M, which leaves 1 − α for whichever is chosen.
    """
    base, count = evaluations[BASE].counts, len(checkpoints)
    certified: list[Candidate] = []
    for checkpoint in checkpoints:
        own = evaluations[checkpoint.name].counts
        pairs = [pair(own[name], base[name]) for name in base if name in own]
        bound = certificate(pairs, tolerance, 1 - (1 - LEVEL) / count) if pairs else None
        if bound is None:
            raise DataError(f"{checkpoint.name} was measured on too few problems to be certified.")
        figures = {name: getattr(bound, name) for name in _OF_BOUND}
        valid_for_all = LevelCertificate(**figures, confidence=LEVEL, candidates=count)
        certified.append(replace(checkpoint, certificate=valid_for_all))
    return certified


# ---- the choice


def choose_levels(
    candidates: Sequence[Candidate],
    base_length: float,
    *,
    levels: int,
    tolerance: float,
    uncertified: bool = False,
    front_only: bool = False,
) -> list[Candidate]:
    """The checkpoints that become levels below `full`, shortest first.

    Only certified checkpoints count, unless `uncertified`. The Pareto front comes first. Places
    that it leaves go to longer checkpoints, unless `front_only`.
    """
    usable = [
        c for c in _feasible(candidates, base_length, tolerance) if uncertified or c.certified
    ]
    distinct = merge_similar(usable, tolerance)
    chosen = spread_by_length(front(distinct), levels - 1, base_length)
    if not front_only:
        chosen = spread_by_length(distinct, levels - 1, base_length, chosen)
    return chosen


def _feasible(
    candidates: Sequence[Candidate], base_length: float, tolerance: float
) -> list[Candidate]:
    """Those shorter than the base with a measured accuracy within the tolerance of its own."""
    return [
        c
        for c in candidates
        if 0 < c.len.value < base_length
        and c.certificate
        and c.certificate.difference >= -tolerance - EDGE
    ]


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other beats in accuracy and length, shortest first."""
    ordered = _shortest_first(candidates)
    on_front = pareto_front([c.len.value for c in ordered], [c.acc.value for c in ordered])
    return [c for c, kept in zip(ordered, on_front, strict=True) if kept]


def merge_similar(candidates: Sequence[Candidate], tolerance: float) -> list[Candidate]:
    """Of equally short ones the most accurate; a longer one if noticeably so or clearly better."""
    kept: list[Candidate] = []
    shortest = 0.0  # of those that the last one kept represents
    for candidate in _shortest_first(candidates):
        gain = candidate.acc.value - kept[-1].acc.value if kept else math.inf
        if kept and candidate.len.value <= (1 + EQUALLY_SHORT) * shortest:
            if gain > EDGE:
                kept[-1] = candidate
            continue
        longer = not kept or candidate.len.value >= NOTICEABLE * kept[-1].len.value
        if longer or gain > 100 * tolerance + EDGE:
            kept.append(candidate)
            shortest = candidate.len.value
    return kept


def spread_by_length(
    candidates: Sequence[Candidate],
    count: int,
    longest: float,
    chosen: Sequence[Candidate] = (),
) -> list[Candidate]:
    """At most `count`, `chosen` included; each next one is the farthest in ratio from all others.

    `longest` counts as taken, so the first one is the shortest.
    """
    picked = list(chosen)
    while len(picked) < count and (left := [c for c in candidates if c not in picked]):
        taken = [longest, *(c.len.value for c in picked)]
        picked.append(max(left, key=lambda c: min(abs(math.log(c.len.value / t)) for t in taken)))
    return sorted(picked, key=lambda c: c.len.value)


def level_names(count: int) -> list[str]:
    """Names for checkpoints, shortest first: words for up to three, numbers for more."""
    if count <= len(LEVEL_NAMES):
        return list(LEVEL_NAMES[:count])
    return [f"level-{number}" for number in range(1, count + 1)]


def _shortest_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda c: (c.len.value, -c.acc.value, c.name))


def _why_uncertified(checkpoints: Sequence[Candidate], base_length: float, tolerance: float) -> str:
    allowed = f"{100 * tolerance:g} point{'' if tolerance == 0.01 else 's'}"
    feasible = _feasible(checkpoints, base_length, tolerance)
    certificates = [c.certificate for c in feasible if c.certificate]
    if not certificates:
        return (
            f"no checkpoint that is shorter than the base was measured within {allowed} of its "
            "accuracy: allow more (--tolerance), or train longer"
        )
    problems = certificates[0].problems
    needed = min((c.needed for c in certificates if c.needed), default=None)
    if needed is None or needed <= problems:
        return f"no checkpoint is certified to {allowed}: allow more (--tolerance)"
    return (
        f"{problems} problems are too few to certify one of {len(checkpoints)} checkpoints to "
        f"{allowed}: one as good as the base needs about {needed:,} (--data NAME:COUNT); or allow "
        "more (--tolerance)"
    )


# ---- the family


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
    base, *checkpoints = read_series(folder)
    evaluations = {c.name: load(folder / c.name) for c in (base, *checkpoints)}
    checkpoints = certify(checkpoints, evaluations, tolerance)
    chosen = choose_levels(
        checkpoints,
        base.len.value,
        levels=levels,
        tolerance=tolerance,
        uncertified=uncertified,
        front_only=front_only,
    )
    if not any(candidate.certified for candidate in chosen):
        otherwise = "" if uncertified else ", or offer levels without certificate (--all)"
        note(_why_uncertified(checkpoints, base.len.value, tolerance) + otherwise)
    on_front = [*front(chosen), base]
    names = [*level_names(len(chosen)), FULL]
    return Family(
        format=FORMAT,
        name=name or short_name(run.config.name)[:64],
        method=name_of(run.config.method),
        tolerance=float(tolerance),
        candidates=len(checkpoints),
        measured=_measurement(evaluations[BASE], folder.name),
        prompt=run.config.prompt,
        levels=[
            _level(run, evaluations[c.name], file, c, level_name, c in on_front)
            for level_name, c in zip(names, [*chosen, base], strict=True)
        ],
        examples=_examples(evaluations[BASE]),
        versions=versions(),
    )


def _level(
    run: Run, evaluation: Evaluation, file: Path, candidate: Candidate, name: str, pareto: bool
) -> Level:
    """A level with its weights' hash; figures of other weights would be a false promise."""
    base = candidate.name == BASE
    where = run.config.model.name if base else str(run.checkpoint(candidate.step))
    revision = run.config.model.revision if base else None
    weights = model_folder(where, revision)
    actual_hash = weights_hash(weights)
    measured: Any = evaluation.manifest.get("model")
    if not isinstance(measured, dict) or measured.get("hash") != actual_hash:
        raise DataError(
            f"{weights} has other weights than those that were measured in {evaluation.folder}: "
            "evaluate it again, into another folder or with that one removed."
        )
    model, is_folder = stored_model(where, weights, file)
    return Level(
        name=name,
        model=model,
        folder=is_folder,
        revision=revision,
        hash=actual_hash,
        adapter=not (weights / "config.json").is_file(),
        pareto=pareto,
        **{name: getattr(candidate, name) for name in _OF_CANDIDATE},
    )


def stored_model(name: str, folder: Path, file: Path) -> tuple[str, bool]:
    """A model as `file` names it, and whether that is a folder: relative to the file.

    A `.gguf` file is named by the folder that it was converted to, which every engine can load.
    """
    if Path(name).is_dir() or name.endswith(".gguf"):
        return os.path.relpath(folder, file.parent), True
    return name, False


def _measurement(evaluation: Evaluation, series: str) -> Measurement:
    manifest: Any = evaluation.manifest
    try:
        sampling = manifest["sampling"]
        return Measurement(
            data=[{k: data[k] for k in ("name", "hash", "problems")} for data in manifest["data"]],
            rollouts=sampling["rollouts"],
            temperature=float(sampling["temperature"]),
            top_p=float(sampling["top_p"]),
            max_tokens=sampling["max_tokens"],
            evaluation=series,
            date=str(manifest.get("finished", manifest["started"]))[:10],
        )
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{evaluation.folder} has no manifest of this version.") from None


def _examples(evaluation: Evaluation) -> list[Example]:
    """Problems spread evenly over the evaluation's, those that fit on a page."""
    rows = [
        Example(question=row["question"], answer=row["answer"])
        for row in evaluation.problems()
        if len(row["question"]) <= LONGEST_QUESTION and len(row["answer"]) <= LONGEST_ANSWER
    ]
    count = min(EXAMPLES, len(rows))
    return [rows[i * len(rows) // count] for i in range(count)]
