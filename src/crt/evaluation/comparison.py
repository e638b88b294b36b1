"""Compare: evaluations that may be compared, the base among them, and their tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crt.errors import ConfigError, DataError, did_you_mean
from crt.evaluation.columns import Entry
from crt.evaluation.manifest import incomparable
from crt.evaluation.matched import length_matched
from crt.evaluation.series import SERIES
from crt.evaluation.store import Evaluation, load
from crt.evaluation.tables import Table, paper_tables
from crt.evaluation.versus import TOLERANCE
from crt.io import read_json


@dataclass(frozen=True)
class Comparison:
    """The tables, and what makes them doubtful."""

    tables: tuple[Table, ...]
    warnings: tuple[str, ...]


def compare(
    evaluations: Sequence[Evaluation],
    *,
    base: str | None = None,
    anyway: bool = False,
    tolerance: float = TOLERANCE,
) -> Comparison:
    """The paper's tables; the base is the first unless another is named.

    Evaluations that were made differently are refused, or with `anyway` compared with a warning.
    """
    ordered = _ordered(evaluations, base)
    first = ordered[0]
    doubts: list[str] = []
    for other in ordered[1:]:
        doubts += _doubts(first, other, anyway)
    common = [n for n in first.tallies if all(n in each.tallies for each in ordered)]
    if not common:
        raise DataError("the evaluations have no data set in common")
    entries = [
        Entry(
            each.name,
            first.tallies if each is first else length_matched(each, first),
            first.tallies,
            tolerance,
        )
        for each in ordered
    ]
    own = [f"{each.name}: {warning}" for each in ordered for warning in each.warnings]
    return Comparison(tuple(paper_tables(entries)), (*doubts, *own))


def load_all(places: Sequence[str]) -> list[Evaluation]:
    """Evaluations by folder, `NAME=FOLDER`, or a series' folder, which is all of its points."""
    found: list[Evaluation] = []
    for place in places:
        name, equals, path = place.partition("=")
        if not equals or Path(place).is_dir():
            name, path = "", place
        folder = Path(path)
        if (folder / SERIES).is_file():
            found += _points(folder, f"{name} " if name else "")
        elif not (folder / "manifest.json").is_file():
            raise DataError(f"{folder} is not an evaluation: it has no manifest.json.")
        else:
            found.append(load(folder, name or None))
    return found


def _points(folder: Path, prefix: str) -> list[Evaluation]:
    """The evaluations of a series, the base first."""
    try:
        names = [str(point["name"]) for point in read_json(folder / SERIES)["points"]]
    except (KeyError, TypeError):
        raise DataError(f"{folder / SERIES} is not a series of this version.") from None
    if any(Path(name).name != name for name in names):
        raise DataError(f"{folder / SERIES} names a point outside of its folder.")
    return [load(folder / name, f"{prefix}{name}") for name in names]


def _ordered(evaluations: Sequence[Evaluation], base: str | None) -> list[Evaluation]:
    names = [each.name for each in evaluations]
    if len(evaluations) < 2:
        raise ConfigError("a comparison needs two evaluations or more; the first is the base")
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise ConfigError(f"two evaluations are called {double!r}: give names, NAME=FOLDER")
    if base is None:
        return list(evaluations)
    if base not in names:
        raise ConfigError(f"--base {base!r} is not among them. {did_you_mean(base, names)}")
    first = evaluations[names.index(base)]
    return [first, *(each for each in evaluations if each is not first)]


def _doubts(first: Evaluation, other: Evaluation, anyway: bool) -> list[str]:
    differences, unknown = incomparable(first.manifest, other.manifest)
    differences += _answered(first, other)
    pair = f"{first.name} and {other.name}"
    if differences and not anyway:
        raise DataError(
            f"{pair} cannot be compared, they differ in {'; in '.join(differences)}. "
            "Evaluate them alike, or compare them all the same with --anyway."
        )
    found = [f"{pair} differ in {'; in '.join(differences)}"] if differences else []
    if unknown:
        found.append(f"{pair} may differ in what is not known of them: {', '.join(unknown)}")
    return found


def _answered(first: Evaluation, other: Evaluation) -> list[str]:
    """Sets of which not the same problems were answered, as happens with somebody's completions."""
    both = [(name, first.tallies[name], other.tallies.get(name)) for name in first.tallies]
    return [
        f"the problems of {name} that were answered: {len(ours.ids)} and {len(theirs.ids)}"
        for name, ours, theirs in both
        if theirs is not None and set(ours.ids) != set(theirs.ids)
    ]
