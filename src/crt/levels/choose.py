"""From a run's evaluated checkpoints to a family: certificates, choice of levels, weight hashes."""

import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crt.algorithm.guard import EDGE
from crt.algorithm.metrics import pareto_front
from crt.algorithm.registry import name_of
from crt.algorithm.two_stage import EQUALLY_SHORT
from crt.data.datasets import parse
from crt.errors import ConfigError, DataError
from crt.evaluation import tables
from crt.evaluation.datasets import folder_label, label, short_name
from crt.evaluation.evaluator import Plan, Tell
from crt.evaluation.metrics import LEVEL
from crt.evaluation.paired import TOLERANCE, certificate, pair
from crt.evaluation.series import BASE, SERIES, Point, evaluate_run, points
from crt.evaluation.store import Evaluation, load
from crt.evaluation.typical import typical_responses
from crt.levels.blend import (
    BLENDS,
    blend_folder,
    candidate_folder,
    check_shares,
    share_of,
    write_blend,
)
from crt.levels.family import (
    FORMAT,
    FULL,
    LEVEL_NAMES,
    MOST_LEVELS,
    NAME,
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
NOTICEABLE = 1.15  # ratio of lengths below which nobody would notice another level
MARGIN = 1.02  # ratios that other problems will not shrink below NOTICEABLE
OUT_OF_PLACE = 0.03  # by which a level may be from its even place for one more point of accuracy
FILLED = 0.01  # how near to its place a candidate fills it, as a logarithm
SHARES = (0.25, 0.5, 0.75, 1.25, 1.5)  # of the way from the base to the checkpoint in use
CERTIFIED = "levels"  # series of the levels on problems that had no part in their choice
EXAMPLES = 12
LONGEST_QUESTION, LONGEST_ANSWER = 2000, 200
_OF_BOUND = ("difference", "lower_bound", "tolerance", "problems", "needed", "passed")
_OF_CANDIDATE = ("step", "acc", "len", "r_zip", "saved", "certificate")


@dataclass(frozen=True)
class Candidate:
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


@dataclass(frozen=True)
class FamilySettings:
    """How levels are chosen; what no family can be made with is refused."""

    levels: int = 6  # at most, the base included
    tolerance: float = TOLERANCE
    uncertified: bool = False  # levels without a passed certificate, too
    front_only: bool = False
    name: str | None = None  # what clients call the family; None for the run's name

    def __post_init__(self) -> None:
        if not 2 <= self.levels <= MOST_LEVELS:
            raise ConfigError(f"--levels {self.levels}: from 2 (one below full) to {MOST_LEVELS}")
        if not 0 <= self.tolerance <= 1:
            raise ConfigError(
                f"--tolerance {self.tolerance}: from 0 to 1; 0.01 is one point of accuracy"
            )
        if self.name is not None and not re.fullmatch(NAME, self.name):
            raise ConfigError(
                f"--name {self.name!r:.80}: up to 64 letters, digits, dots, hyphens and "
                "underscores, the first a letter or a digit"
            )


# ---- the evaluation


def measure_levels(
    run: Run,
    data: Sequence[str],
    choose_on: Sequence[str],
    shares: Sequence[float],
    settings: FamilySettings,
    *,
    tell: Tell | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Path:
    """The series by which levels are certified: the base, and levels chosen on other problems.

    Without `choose_on` all candidates are in it, to be chosen and certified by the same figures.
    """
    names = tuple(data) or run.config.evaluation.data
    if not names:
        raise ConfigError(
            f"{run.path} names no data set to evaluate on: give --data, such as --data gsm8k"
        )
    if shared := sorted(set(map(_problems_of, choose_on)) & set(map(_problems_of, names))):
        raise ConfigError(
            f"{shared[0]} cannot both choose the levels and certify them: give other problems "
            "(--choose-on), or choose and certify by the same (--choose-on none)"
        )
    check_shares(shares)
    models = points(run)
    step = run.progress.get("recommended", models[-1].step)
    models += blend_points(run, step, shares)
    if not choose_on:
        write_blends(run, models)
        return evaluated_series(run, names, models, tell=tell, note=note)
    before = set((run.path / BLENDS).glob("*"))
    tolerance, apart = settings.tolerance, MARGIN * NOTICEABLE
    settings = replace(settings, uncertified=True)
    longest, measured = _measured(run, choose_on, models, tolerance, tell)
    chosen = choose_levels(measured, longest, settings, apart)
    if shares and chosen:  # more blends, for the places that no usable candidate fills
        own = {c: share_of(c.name) for c in measured if c.step == step}
        lengths = {1.0 if share is None else share: c.len.value for c, share in own.items()}
        usable = _feasible(measured, longest, tolerance)
        ends = (chosen[0].len.value, longest)
        more = shares_between(*ends, settings.levels - 1, usable, lengths | {0.0: longest})
        models += blend_points(run, step, more)
        longest, measured = _measured(run, choose_on, models, tolerance, tell)
        chosen = choose_levels(measured, longest, settings, apart)
    note(f"{len(chosen)} levels are chosen from {len(measured)} candidates")
    kept = {BASE, *(c.name for c in chosen)}
    final = [point for point in models if point.name in kept]
    write_blends(run, final)
    for folder in set((run.path / BLENDS).glob("*")) - before:
        if folder.name not in kept:  # a copy of the model that was measured and is no level
            shutil.rmtree(folder)
    series = f"{CERTIFIED}-{folder_label(names)}"
    return evaluated_series(run, names, final, series, tell=tell, note=note)


def _measured(
    run: Run, names: Sequence[str], models: Sequence[Point], tolerance: float, tell: Tell | None
) -> tuple[float, list[Candidate]]:
    """The base's length, and the candidates with their differences from the base."""
    folder = evaluated_series(run, names, models, with_others=True, tell=tell)
    wanted = {point.name for point in models}
    base, *others = (c for c in read_series(folder) if c.name in wanted)
    evaluations = {c.name: load(folder / c.name) for c in (base, *others)}
    return base.len.value, certify(others, evaluations, tolerance)


def _problems_of(name: str) -> str:
    """A data set's name and split, without levels and count; a file however it is named."""
    selection = parse(name)
    file = Path(selection.name)
    return f"{file.resolve() if file.is_file() else selection.name}/{selection.split}"


def blend_points(run: Run, step: int, shares: Sequence[float]) -> list[Point]:
    """Blends of the base and a step's checkpoint."""
    folders = [blend_folder(run, step, share) for share in shares]
    return [Point(folder.name, step, str(folder)) for folder in folders]


def validation_data(run: Run) -> tuple[str, ...]:
    """The run's validation problems by name; none if they were taken out of the training data."""
    validation = run.config.validation
    counted = [(name, parse(name).count) for name in validation.data]
    return tuple(name if count else f"{name}:{validation.problems}" for name, count in counted)


def evaluated_series(
    run: Run,
    names: Sequence[str],
    models: Sequence[Point],
    name: str | None = None,
    *,
    with_others: bool = False,
    tell: Tell | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Path:
    """The folder of a series of these models on these data sets; evaluates what is not there.

    One that has others, too, is taken as it is if `with_others`.
    """
    folder = run.path / "evaluations" / (name or folder_label(names))
    wanted = {point.name for point in models}
    if (folder / SERIES).is_file():
        evaluated = {candidate.name for candidate in read_series(folder)}
        if evaluated == wanted or (with_others and evaluated > wanted):
            note(f"figures are those of {folder}")
            return folder
    write_blends(run, models)
    note(f"{folder} has not all models yet: evaluating them on {', '.join(names)}")
    plan = Plan(
        run.config.model,
        run.config.evaluation.model_copy(update={"data": tuple(names)}),
        prompt=run.config.prompt,
        truncated="grade" if run.config.grading.truncated == "grade" else "wrong",
        grading=run.config.grading,
        load={"folder": run.config.data.folder},
    )
    return evaluate_run(run.path, plan, name=folder.name, models=models, tell=tell, note=note)[0]


def write_blends(run: Run, models: Sequence[Point]) -> None:
    for point in models:
        if (share := share_of(point.name)) is not None:
            write_blend(run, point.step, share)


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
    settings: FamilySettings,
    apart: float = NOTICEABLE,
) -> list[Candidate]:
    """The candidates that become levels below `full`, shortest first.

    Only certified ones count, unless `uncertified`, and only the Pareto front, if `front_only`.
    """
    feasible = _feasible(candidates, base_length, settings.tolerance)
    usable = [c for c in feasible if settings.uncertified or c.certified]
    usable = front(usable) if settings.front_only else usable
    return spread_by_length(usable, settings.levels - 1, base_length, apart)


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


def spread_by_length(
    candidates: Sequence[Candidate], count: int, longest: float, apart: float = NOTICEABLE
) -> list[Candidate]:
    """As many as there can be up to `count`, with even ratios of length up to `longest`.

    The first is the shortest or as good as that, and all ratios are at least `apart`. A level may
    be out of its even place by 3 % for one more point of accuracy.
    """
    ordered = _shortest_first(candidates)
    # chains[i]: by its number of levels, the best chain from candidate i on, and its cost
    chains: list[dict[int, tuple[float, list[Candidate]]]] = [{} for _ in ordered]
    for i, own in reversed([*enumerate(ordered)]):
        rest: list[tuple[float, float, list[Candidate]]] = [(longest, 0.0, [])]
        for j in range(i + 1, len(ordered)):
            rest += [(ordered[j].len.value, *chain) for chain in chains[j].values()]
        for length, cost, chain in rest:
            ratio = length / own.len.value
            if ratio < apart or len(chain) >= count:
                continue
            total = cost + math.log(ratio) ** 2 - 2 * OUT_OF_PLACE**2 * own.acc.value
            best = chains[i].get(len(chain) + 1)
            if best is None or total < best[0]:
                chains[i][len(chain) + 1] = (total, [own, *chain])
    first = [
        chains[i]
        for i, candidate in enumerate(ordered)
        if candidate.len.value <= (1 + EQUALLY_SHORT) * ordered[0].len.value
    ]
    most = max((size for chain in first for size in chain), default=0)
    ends = [chain[most] for chain in first if most in chain]
    return min(ends, key=lambda end: end[0])[1] if ends else []


def shares_between(
    shortest: float,
    longest: float,
    count: int,
    candidates: Sequence[Candidate],
    lengths: Mapping[float, float],
) -> list[float]:
    """Shares of blends that should fill the even places of `count` levels which have no candidate.

    `lengths` are the measured ones by their share; 0 is the base, 1 the checkpoint.
    """
    ratio = longest / shortest
    count = min(count, int(math.log(ratio) / math.log(MARGIN * NOTICEABLE)))
    places = [shortest * ratio ** (i / count) for i in range(1, count)]
    empty = [
        place
        for place in places
        if not any(abs(math.log(c.len.value / place)) <= FILLED for c in candidates)
    ]
    known = sorted((length, share) for share, length in lengths.items())
    shares = np.interp(empty, [length for length, _ in known], [share for _, share in known])
    return sorted({round(float(share), 2) for share in shares} - set(lengths))


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


def name_of_family(run_name: str) -> str:
    """A run's name as clients can use it."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", run_name).lstrip("._-")
    return plain[:64] or "family"


def build_family(
    run: Run,
    folder: Path,
    file: Path,
    settings: FamilySettings,
    *,
    chosen_on: Sequence[str] = (),
    note: Callable[[str], None] = lambda _: None,
) -> Family:
    """The family for `file`, from the series in `folder`."""
    base, *checkpoints = read_series(folder)
    evaluations = {c.name: load(folder / c.name) for c in (base, *checkpoints)}
    checkpoints = certify(checkpoints, evaluations, settings.tolerance)
    chosen = choose_levels(checkpoints, base.len.value, settings)
    if not any(candidate.certified for candidate in chosen):
        otherwise = "" if settings.uncertified else ", or offer levels without certificate (--all)"
        note(_why_uncertified(checkpoints, base.len.value, settings.tolerance) + otherwise)
    on_front = [*front(chosen), base]
    names = [*level_names(len(chosen)), FULL]
    chosen = [*chosen, base]
    return Family(
        format=FORMAT,
        name=settings.name or name_of_family(short_name(run.config.name)),
        method=name_of(run.config.method),
        tolerance=float(settings.tolerance),
        candidates=len(checkpoints),
        measured=_measurement(evaluations[BASE], folder.name, chosen_on),
        prompt=run.config.prompt,
        levels=[
            _level(run, evaluations[c.name], file, c, level_name, c in on_front)
            for level_name, c in zip(names, chosen, strict=True)
        ],
        examples=_examples([evaluations[c.name] for c in chosen], [c.len.value for c in chosen]),
        versions=versions(),
    )


def _level(
    run: Run, evaluation: Evaluation, file: Path, candidate: Candidate, name: str, pareto: bool
) -> Level:
    """A level with its weights' hash; figures of other weights would be a false promise."""
    base = candidate.name == BASE
    where = run.config.model.name if base else str(candidate_folder(run, candidate.name))
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
        share=share_of(candidate.name),
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


def _measurement(evaluation: Evaluation, series: str, chosen_on: Sequence[str]) -> Measurement:
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
            chosen_on=", ".join(map(label, chosen_on)) or None,
        )
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{evaluation.folder} has no manifest of this version.") from None


def _examples(evaluations: Sequence[Evaluation], means: Sequence[float]) -> list[Example]:
    """The problem that shows best what the levels are, and others spread over the evaluation's."""
    rows = [
        row
        for row in evaluations[-1].problems()
        if len(row["question"]) <= LONGEST_QUESTION and len(row["answer"]) <= LONGEST_ANSWER
    ]
    typical = typical_responses([evaluation.rollouts() for evaluation in evaluations], means)
    keys = {(rollout.dataset, rollout.problem_id) for rollout in typical or ()}
    first = [row for row in rows if (row["data"], row["id"]) in keys]
    rest = [row for row in rows if row not in first]
    count = min(EXAMPLES - len(first), len(rest))
    spread = [rest[i * len(rest) // count] for i in range(count)]
    return [Example(question=row["question"], answer=row["answer"]) for row in (*first, *spread)]
