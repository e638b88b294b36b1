"""What a report is made of, read from directories: runs, line-ups of evaluations, comparisons."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crt.config import RunConfig
from crt.errors import CrtError, DataError
from crt.evaluate.comparison import load_all
from crt.evaluate.manifest import incomparable
from crt.evaluate.matched import length_matched
from crt.evaluate.series import SERIES, is_run
from crt.evaluate.store import FIGURES, MANIFEST, Evaluation, load
from crt.evaluate.versus import all_versus
from crt.files import read_json
from crt.report import turned
from crt.run import Run

METHODS = "methods.json"  # of a comparison of methods
Row = dict[str, Any]


@dataclass(frozen=True)
class RunView:
    """A run as far as it has come."""

    path: Path
    config: RunConfig
    steps: list[Row]
    records: dict[int, Row]
    progress: Row

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def method(self) -> str:
        return str(self.config.model_dump()["method"]["type"])

    @property
    def finished(self) -> bool:
        return bool(self.progress.get("finished"))


@dataclass(frozen=True)
class Point:
    """One evaluation in a line-up, and how it stands against the line-up's base."""

    name: str
    step: int | None  # of the checkpoint, 0 for the model that training began with
    evaluation: Evaluation
    versus: Row | None  # None for the base: `all_versus` as plain values

    @property
    def figures(self) -> Row:
        """Figures of the average over all data sets, as plain values."""
        return self.evaluation.figures["averages"]["all"]


@dataclass(frozen=True)
class LineUp:
    """Evaluations on the same problems, the base first: a table's rows, the explorer's columns."""

    label: str
    points: tuple[Point, ...]
    is_series: bool
    run: RunView | None = None


@dataclass(frozen=True)
class Material:
    """Everything that was found under the given places."""

    places: tuple[Path, ...]
    runs: tuple[RunView, ...] = ()
    lineups: tuple[LineUp, ...] = ()
    methods: tuple[Row, ...] = ()  # a row for each method, seed and kind of checkpoint
    turned: tuple[Row, ...] = ()  # a row for each setting that was turned, value and seed
    notes: tuple[str, ...] = ()  # what was left out and why


def gather(places: Sequence[Path]) -> Material:
    """Reads the places; each is a run, an evaluation, a series or a comparison of methods."""
    found = Material(tuple(places))
    loose: list[Evaluation] = []
    for place in places:
        if (place / METHODS).is_file() or (place / "runs").is_dir():
            found = _with_comparison(found, place)
        elif is_run(place):
            found = _with_run(found, place)
        elif (place / SERIES).is_file():
            found = replace(found, lineups=(*found.lineups, _series(place, None)))
        elif (place / MANIFEST).is_file():
            loose.append(load(place))
        else:
            raise DataError(
                f"{place} is not a run, an evaluation, a series of evaluations or a comparison: "
                f"it has no config.json with checkpoints/, no {MANIFEST}, {SERIES} or {METHODS}."
            )
    every = (*found.lineups, *lined_up(loose, "evaluations", None))
    return replace(found, lineups=tuple(distinct(every)))


def distinct(lineups: Sequence[LineUp]) -> Iterator[LineUp]:
    """With labels of their own: two runs of one recipe are told apart by their folders."""
    labels = [lineup.label for lineup in lineups]
    for number, lineup in enumerate(lineups, start=1):
        if labels.count(lineup.label) > 1:
            where = lineup.run.path.name if lineup.run else number
            lineup = replace(lineup, label=f"{lineup.label} ({where})")
        yield lineup


def lined_up(evaluations: Sequence[Evaluation], label: str, run: RunView | None) -> list[LineUp]:
    """Evaluations that may be compared stand together, each behind the first that it fits."""
    groups: list[list[Evaluation]] = []
    for each in evaluations:
        home = next((group for group in groups if _fits(group, each)), None)
        if home is None:
            groups.append([each])
        else:
            home.append(each)
    return [LineUp(_title(label, group, groups), _points(group), False, run) for group in groups]


def step_of(evaluation: Evaluation) -> int | None:
    """The training step of the checkpoint that was evaluated, by its folder's name."""
    name = str(evaluation.manifest["model"].get("name", "")).rstrip("/").rpartition("/")[2]
    number = name.removeprefix("step-")
    return int(number) if name.startswith("step-") and number.isdigit() else None


def _with_run(found: Material, place: Path) -> Material:
    opened = Run.open(place)
    view = RunView(place, opened.config, opened.steps, opened.checkpoints, opened.progress)
    lineups, notes = _evaluations_of(view)
    return replace(
        found,
        runs=(*found.runs, view),
        lineups=(*found.lineups, *lineups),
        notes=(*found.notes, *notes),
    )


def _with_comparison(found: Material, place: Path) -> Material:
    """Its rows, and every run in it that can be read."""
    rows = read_json(place / METHODS) if (place / METHODS).is_file() else []
    if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
        raise DataError(f"{place / METHODS} is not a list of rows with `method`, `acc` and `len`.")
    settings = turned.read(place)
    rows = turned.renamed(rows, turned.labels(settings))
    found = replace(
        found,
        methods=(*found.methods, *rows),
        turned=(*found.turned, *settings),
        lineups=(*found.lineups, *_by_seed(place, preferred(rows))),
    )
    for folder in sorted((place / "runs").glob("*")):
        if is_run(folder):
            found = _with_run(found, folder)
    return found


def preferred(methods: Sequence[Row]) -> list[Row]:
    """The checkpoint that a run recommends, where the last one was evaluated too."""
    if not any(row.get("checkpoint") == "recommended" for row in methods):
        return list(methods)
    return [row for row in methods if row.get("checkpoint") != "last"]


def _by_seed(place: Path, rows: Sequence[Row]) -> Iterator[LineUp]:
    """The base and every method's checkpoint of one seed, as far as they are there."""
    for seed in dict.fromkeys(row.get("seed") for row in rows):
        folders = {"base": place / "evaluations" / f"base-seed{seed}"}
        for row in rows:
            if row.get("seed") == seed and isinstance(row.get("step"), int):
                run = place / "evaluations" / str(row.get("run", f"{row['method']}-seed{seed}"))
                folders[str(row["method"])] = run / f"step-{row['step']:04d}"
        there = {name: path for name, path in folders.items() if (path / FIGURES).is_file()}
        if "base" in there and len(there) > 1:
            evaluations = [load(path, name) for name, path in there.items()]
            yield from lined_up(evaluations, f"seed {seed}", None)


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and {"method", "acc", "len"} <= row.keys()


def _evaluations_of(run: RunView) -> tuple[list[LineUp], list[str]]:
    """A run's own evaluations, in the order of training, and its series."""
    folders = sorted(path for path in (run.path / "evaluations").glob("*") if path.is_dir())
    loose: list[Evaluation] = []
    series: list[LineUp] = []
    notes: list[str] = []
    for folder in folders:
        try:
            if (folder / SERIES).is_file():
                series.append(_series(folder, run))
            elif (folder / FIGURES).is_file():
                loose.append(load(folder))
            elif (folder / MANIFEST).is_file():
                notes.append(f"{folder} is not finished and left out.")
        except CrtError as error:
            notes.append(f"{folder} is left out: {error}")
    loose.sort(key=_in_order)
    return [*lined_up(loose, run.name, run), *series], notes


def _in_order(evaluation: Evaluation) -> tuple[bool, int, str]:
    """By the step of training; one checkpoint under several names, as it was evaluated."""
    started = str(evaluation.manifest.get("started", ""))
    return evaluation.name != "base", step_of(evaluation) or 0, started


def _series(folder: Path, run: RunView | None) -> LineUp:
    stored = read_json(folder / SERIES)
    try:
        rows = {str(row["name"]): row for row in stored["points"]}
        evaluations = load_all([str(folder)])
        points = tuple(
            Point(each.name, int(rows[each.name]["step"]), each, rows[each.name]["versus"])
            for each in evaluations
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder / SERIES} is not a series of this version: {error!r}.") from None
    label = f"{run.name}, {folder.name}" if run else folder.name
    return LineUp(label, points, True, run)


def _points(group: Sequence[Evaluation]) -> tuple[Point, ...]:
    base = group[0]
    points = [Point(base.name, 0 if base.name == "base" else step_of(base), base, None)]
    for each in group[1:]:
        found = all_versus(length_matched(each, base), base.tallies)
        plain = {kind: {n: v.as_json() for n, v in part.items()} for kind, part in found.items()}
        points.append(Point(each.name, step_of(each), each, plain))
    return tuple(points)


def _fits(group: Sequence[Evaluation], other: Evaluation) -> bool:
    """The same problems, asked and counted alike, and a name of its own."""
    differences, _ = incomparable(group[0].manifest, other.manifest)
    common = group[0].tallies.keys() == other.tallies.keys() and all(
        set(tally.ids) == set(other.tallies[name].ids) for name, tally in group[0].tallies.items()
    )
    return common and not differences and other.name not in {each.name for each in group}


def _title(label: str, group: Sequence[Evaluation], groups: Sequence[object]) -> str:
    return label if len(groups) == 1 else f"{label}, {' + '.join(group[0].tallies)}"


def unfinished(material: Material) -> Iterator[RunView]:
    """Runs that are still going on."""
    return (run for run in material.runs if not run.finished)
