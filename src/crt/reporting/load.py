"""What a report is made of, read from directories: runs, groups of evaluations, comparisons."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crt.config import RunConfig
from crt.errors import CrtError, DataError
from crt.evaluation.paired import compare_all, length_matched
from crt.evaluation.series import SERIES, is_run
from crt.evaluation.store import FIGURES, MANIFEST, Evaluation, incomparable, load
from crt.evaluation.tables import load_all
from crt.io import read_json
from crt.run import Run

METHODS = "methods.json"  # of a comparison of methods
SENSITIVITY = "sensitivity.json"  # beside it, if settings were varied
SENSITIVITY_METRICS = ("acc", "len", "aes2")
SETTING_TITLES = {  # by the last part of a setting's name
    "tolerance": "tolerance ε",
    "slack": "slack η",
    "problems_per_step": "problems per step",
    "length_on": "length counted on",
    "mode": "reference",
}
Row = dict[str, Any]
ProblemKey = tuple[str, str]  # data set and problem


@dataclass(frozen=True)
class RunView:
    """A run as far as it has come."""

    path: Path
    config: RunConfig
    steps: list[Row]
    records: dict[int, Row]  # of the checkpoints, by step
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

    @property
    def recommended(self) -> int | None:
        """The step of the checkpoint that the run recommends."""
        return self.progress.get("recommended")

    @property
    def measured_records(self) -> dict[int, Row]:
        """Records of the checkpoints that were measured on the validation problems."""
        return {step: row for step, row in self.records.items() if row.get("tokens") is not None}


@dataclass(frozen=True)
class EvaluationPoint:
    """One evaluation of a group, and how it compares with the group's base."""

    name: str
    step: int | None  # of the checkpoint, 0 for the model that training began with
    evaluation: Evaluation
    versus: Row | None  # None for the base: `compare_all` as plain values

    @property
    def metrics(self) -> Row:
        """Averages over all data sets, as plain values."""
        return self.evaluation.metrics["averages"]["all"]

    @property
    def versus_base(self) -> Row:
        """The comparison over all data sets; empty for the base."""
        return self.versus["averages"]["all"] if self.versus else {}


@dataclass(frozen=True)
class EvaluationGroup:
    """Evaluations on the same problems, the base first: rows of a table, columns of answers."""

    label: str
    points: tuple[EvaluationPoint, ...]
    is_series: bool
    run: RunView | None = None

    @property
    def num_problems(self) -> int:
        return sum(len(tally.ids) for tally in self.points[0].evaluation.counts.values())

    @property
    def data_label(self) -> str:
        """The problems, in words: `400 problems of pocket/test:400`."""
        names = ", ".join(self.points[0].evaluation.counts)
        plural = "" if self.num_problems == 1 else "s"
        return f"{self.num_problems:,} problem{plural} of {names}"

    @property
    def result(self) -> EvaluationPoint | None:
        """The point to judge by: the run's recommended checkpoint, else the last."""
        others = self.points[1:]
        wanted = self.run.recommended if self.run else None
        recommended = (p for p in reversed(others) if wanted and p.step == wanted)
        return next(recommended, others[-1] if others else None)

    def is_recommended(self, point: EvaluationPoint) -> bool:
        """Whether it is the checkpoint that the run recommends."""
        wanted = self.run.recommended if self.run else None
        return bool(wanted) and point.step == wanted and point is self.result

    def problems(self) -> dict[ProblemKey, Row]:
        """The questions and their answers."""
        rows = self.points[0].evaluation.problems()
        return {(str(row["data"]), str(row["id"])): row for row in rows}


@dataclass(frozen=True)
class ReportData:
    """Everything that was read from the given paths."""

    paths: tuple[Path, ...]
    runs: tuple[RunView, ...] = ()
    groups: tuple[EvaluationGroup, ...] = ()
    methods: tuple[Row, ...] = ()  # a row per method, seed and kind of checkpoint
    sensitivity: tuple[Row, ...] = ()  # a row per setting, value and seed
    notes: tuple[str, ...] = ()  # what was left out and why


def load_report_data(paths: Sequence[Path]) -> ReportData:
    """Reads the paths; each is a run, an evaluation, a series or a comparison of methods."""
    data = ReportData(tuple(paths))
    single: list[Evaluation] = []
    for path in paths:
        runs = [folder for folder in sorted((path / "runs").glob("*")) if is_run(folder)]
        if runs or (path / METHODS).is_file():
            data = _add_comparison(data, path, runs)
        elif is_run(path):
            data = _add_run(data, path)
        elif (path / SERIES).is_file():
            data = replace(data, groups=(*data.groups, _read_series(path, None)))
        elif (path / MANIFEST).is_file():
            single.append(load(path))
        else:
            raise DataError(
                f"{path} is not a run, an evaluation, a series of evaluations or a comparison: it "
                f"has no config.json with checkpoints/, no {MANIFEST}, {SERIES} or {METHODS}, and "
                "no run in runs/."
            )
    groups = [*data.groups, *group_comparable(single, "evaluations", None)]
    return replace(data, groups=tuple(_with_unique_labels(groups)))


def _with_unique_labels(groups: Sequence[EvaluationGroup]) -> Iterator[EvaluationGroup]:
    """Two runs of one recipe are told apart by their folders."""
    labels = [group.label for group in groups]
    for number, group in enumerate(groups, start=1):
        if labels.count(group.label) > 1:
            where = group.run.path.name if group.run else number
            group = replace(group, label=f"{group.label} ({where})")
        yield group


def _add_run(data: ReportData, path: Path) -> ReportData:
    opened = Run.open(path)
    run = RunView(path, opened.config, opened.steps, opened.checkpoints, opened.progress)
    groups, notes = _evaluations_of(run)
    return replace(
        data,
        runs=(*data.runs, run),
        groups=(*data.groups, *groups),
        notes=(*data.notes, *notes),
    )


def _add_comparison(data: ReportData, path: Path, runs: Sequence[Path]) -> ReportData:
    """Its rows, and every run in it."""
    rows = _read_rows(path / METHODS, {"method", "acc", "len"})
    needed = {"setting", "value", "method", "own", *SENSITIVITY_METRICS}
    sensitivity = _read_rows(path / SENSITIVITY, needed)
    if not rows and not runs:
        raise DataError(f"{path} has no result yet: {METHODS} is empty, and runs/ has no run.")
    names = variant_names(sensitivity)
    rows = [{**row, "method": names.get(row["method"], row["method"])} for row in rows]
    data = replace(
        data,
        methods=(*data.methods, *rows),
        sensitivity=(*data.sensitivity, *sensitivity),
        groups=(*data.groups, *_groups_by_seed(path, without_last(rows))),
    )
    for run in runs:
        data = _add_run(data, run)
    return data


def _read_rows(path: Path, needed: set[str]) -> list[Row]:
    """A list of objects that have these keys; none where there is no file."""
    rows = read_json(path) if path.is_file() else []
    if isinstance(rows, list) and all(isinstance(r, dict) and needed <= r.keys() for r in rows):
        return rows
    raise DataError(f"{path} is not a list of rows with {', '.join(sorted(needed))}.")


def setting_title(setting: str) -> str:
    """A setting's name for readers."""
    last = setting.rpartition(".")[2]
    return SETTING_TITLES.get(last, last.replace("_", " "))


def variant_names(sensitivity: Sequence[Row]) -> Mapping[str, str]:
    """Method → the setting that differs in it."""
    return {
        row["method"]: "as in the recipe"
        if row["own"]
        else f"{setting_title(row['setting'])} = {row['value']}"
        for row in sensitivity
    }


def without_last(methods: Sequence[Row]) -> list[Row]:
    """Rows of the recommended checkpoints, where the last ones were evaluated too."""
    if not any(row.get("checkpoint") == "recommended" for row in methods):
        return list(methods)
    return [row for row in methods if row.get("checkpoint") != "last"]


def _groups_by_seed(path: Path, rows: Sequence[Row]) -> Iterator[EvaluationGroup]:
    """The base and every method's checkpoint of one seed, as far as they are there."""
    for seed in dict.fromkeys(row.get("seed") for row in rows):
        folders = {"base": path / "evaluations" / f"base-seed{seed}"}
        for row in rows:
            if row.get("seed") == seed and isinstance(row.get("step"), int):
                run = path / "evaluations" / str(row.get("run", f"{row['method']}-seed{seed}"))
                folders[str(row["method"])] = run / f"step-{row['step']:04d}"
        complete = {name: path for name, path in folders.items() if (path / FIGURES).is_file()}
        if "base" in complete and len(complete) > 1:
            evaluations = [load(path, name) for name, path in complete.items()]
            yield from group_comparable(evaluations, f"seed {seed}", None)


def _evaluations_of(run: RunView) -> tuple[list[EvaluationGroup], list[str]]:
    """A run's own evaluations in the order of training, its series, and what was left out."""
    single: list[Evaluation] = []
    series: list[EvaluationGroup] = []
    notes: list[str] = []
    for folder in sorted(path for path in (run.path / "evaluations").glob("*") if path.is_dir()):
        try:
            if (folder / SERIES).is_file():
                series.append(_read_series(folder, run))
            elif (folder / FIGURES).is_file():
                single.append(load(folder))
            elif (folder / MANIFEST).is_file():
                notes.append(f"{folder} is not finished and left out.")
        except CrtError as error:
            notes.append(f"{folder} is left out: {error}")
    single.sort(key=_training_order)
    return [*group_comparable(single, run.name, run), *series], notes


def _training_order(evaluation: Evaluation) -> tuple[bool, int, str]:
    """By the step of training; one checkpoint under several names as it was evaluated."""
    started = str(evaluation.manifest.get("started", ""))
    return evaluation.name != "base", step_of(evaluation) or 0, started


def _read_series(folder: Path, run: RunView | None) -> EvaluationGroup:
    stored = read_json(folder / SERIES)
    try:
        rows = {str(row["name"]): row for row in stored["points"]}
        points = tuple(
            EvaluationPoint(e.name, int(rows[e.name]["step"]), e, rows[e.name]["versus"])
            for e in load_all([str(folder)])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder / SERIES} is not a series of this version: {error!r}.") from None
    label = f"{run.name}, {folder.name}" if run else folder.name
    return EvaluationGroup(label, points, True, run)


def group_comparable(
    evaluations: Sequence[Evaluation], label: str, run: RunView | None
) -> list[EvaluationGroup]:
    """Puts each evaluation behind the first one that it may be compared with."""
    groups: list[list[Evaluation]] = []
    for evaluation in evaluations:
        home = next((group for group in groups if _fits(group, evaluation)), None)
        if home is None:
            groups.append([evaluation])
        else:
            home.append(evaluation)
    labels = [f"{label}, {' + '.join(group[0].counts)}" for group in groups]
    return [
        EvaluationGroup(label if len(groups) == 1 else own, _points(group), False, run)
        for own, group in zip(labels, groups, strict=True)
    ]


def _fits(group: Sequence[Evaluation], other: Evaluation) -> bool:
    """The same problems, prompted and counted alike, and a name of its own."""
    differences, _ = incomparable(group[0].manifest, other.manifest)
    same_problems = group[0].counts.keys() == other.counts.keys() and all(
        set(tally.ids) == set(other.counts[name].ids) for name, tally in group[0].counts.items()
    )
    return same_problems and not differences and other.name not in {e.name for e in group}


def _points(group: Sequence[Evaluation]) -> tuple[EvaluationPoint, ...]:
    base = group[0]
    points = [EvaluationPoint(base.name, 0 if base.name == "base" else step_of(base), base, None)]
    for evaluation in group[1:]:
        versus = compare_all(length_matched(evaluation, base), base.counts)
        plain = {kind: {n: v.as_json() for n, v in part.items()} for kind, part in versus.items()}
        points.append(EvaluationPoint(evaluation.name, step_of(evaluation), evaluation, plain))
    return tuple(points)


def step_of(evaluation: Evaluation) -> int | None:
    """The training step of the checkpoint that was evaluated, by its folder's name."""
    name = str(evaluation.manifest["model"].get("name", "")).rstrip("/").rpartition("/")[2]
    number = name.removeprefix("step-")
    return int(number) if name.startswith("step-") and number.isdigit() else None
