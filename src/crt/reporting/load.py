"""What a report is made of: directories are read into runs and groups of evaluations, then rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crt.algorithm.batch import Array
from crt.config import RunConfig
from crt.errors import CrtError, DataError
from crt.evaluation.contract import LineResult, certify
from crt.evaluation.metrics import nested_json
from crt.evaluation.paired import compare_all, length_matched
from crt.evaluation.series import SERIES, is_run
from crt.evaluation.store import FIGURES, MANIFEST, Evaluation, incomparable, load
from crt.evaluation.tables import read_series
from crt.io import read_json
from crt.run import Run

METHODS = "methods.json"  # of a comparison of methods
METHOD_METRICS = ("acc", "len", "r_zip", "aes1", "aes2", "ad", "ap", "ai")
METRICS = ("acc", "len", "thinking", "answer", "r_zip", "r_zip_correct", "r_zip_wrong", "truncated")
VERSUS_BASE = ("saved", "aes1", "aes2", "r_zip_matched", "r_zip_matched_base", "ad", "ap", "ai")
Row = dict[str, Any]
ProblemKey = tuple[str, str]  # data set and problem


@dataclass(frozen=True)
class RunView:
    path: Path
    config: RunConfig
    steps: list[Row]
    records: dict[int, Row]  # step → record of a checkpoint that was measured on validation
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
        return self.progress.get("recommended")


@dataclass(frozen=True)
class EvaluationPoint:
    """One evaluation of a group, and how it compares with the group's base."""

    name: str
    step: int | None  # of the checkpoint, 0 for the model that training began with
    evaluation: Evaluation
    versus: Row | None  # None for the base: `compare_all` as plain values

    @property
    def averages(self) -> Row:
        """Group of data sets → metrics as plain values."""
        return self.evaluation.metrics["averages"]

    @property
    def metrics(self) -> Row:
        """Averages over all data sets."""
        return self.averages["all"]

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
    def curve(self) -> str:
        """The name of its curve; runs of several seeds are one curve."""
        return self.run.name if self.run else self.label

    @property
    def datasets(self) -> list[str]:
        return list(self.points[0].evaluation.counts)

    @property
    def num_problems(self) -> int:
        return sum(len(counts.ids) for counts in self.points[0].evaluation.counts.values())

    @property
    def data_label(self) -> str:
        """The problems, in words: `400 problems of pocket/test:400`."""
        plural = "" if self.num_problems == 1 else "s"
        return f"{self.num_problems:,} problem{plural} of {', '.join(self.datasets)}"

    @property
    def result(self) -> EvaluationPoint | None:
        """The point to judge by: the run's recommended checkpoint, else the last."""
        others = self.points[1:]
        step = self.run and self.run.recommended
        recommended = [point for point in others if step and point.step == step]
        return (recommended or others or (None,))[-1]

    @cached_property
    def contract(self) -> list[LineResult]:
        """The lines of the run's contract, of the point to judge by; none without a contract."""
        if self.run is None or self.result is None or not self.run.config.contract.lines:
            return []
        contract, base = self.run.config.contract, self.points[0].evaluation
        # The run may be somebody else's, and a metric may name a file of it.
        return certify(contract, self.result.evaluation, base, run_functions=False)

    def is_recommended(self, point: EvaluationPoint) -> bool:
        step = self.run and self.run.recommended
        return point is self.result and bool(step) and point.step == step

    def problems(self) -> dict[ProblemKey, Row]:
        rows = self.points[0].evaluation.problems()
        return {(str(row["data"]), str(row["id"])): row for row in rows}


@dataclass(frozen=True)
class ReportData:
    paths: tuple[Path, ...]
    runs: tuple[RunView, ...] = ()
    groups: tuple[EvaluationGroup, ...] = ()
    methods: tuple[Row, ...] = ()  # a row per method, seed and kind of checkpoint
    notes: tuple[str, ...] = ()  # what was left out and why


# Directories → data


def load_report_data(paths: Sequence[Path]) -> ReportData:
    """Reads the paths; each is a run, an evaluation, a series or a comparison of methods."""
    parts: list[ReportData] = []
    single: list[Evaluation] = []
    for path in paths:
        runs = [folder for folder in sorted((path / "runs").glob("*")) if is_run(folder)]
        if runs or (path / METHODS).is_file():
            parts += [_read_comparison(path, runs), *map(_read_run, runs)]
        elif is_run(path):
            parts.append(_read_run(path))
        elif (path / SERIES).is_file():
            parts.append(ReportData((path,), groups=(_read_series(path, None),)))
        elif (path / MANIFEST).is_file():
            single.append(load(path))
        else:
            raise DataError(
                f"{path} is not a run, an evaluation, a series of evaluations or a comparison: it "
                f"has no config.json with checkpoints/, no {MANIFEST}, {SERIES} or {METHODS}, and "
                "no run in runs/."
            )
    parts.append(ReportData((), groups=tuple(group_comparable(single, "evaluations", None))))
    return ReportData(
        paths=tuple(paths),
        runs=tuple(run for part in parts for run in part.runs),
        groups=_with_unique_labels([group for part in parts for group in part.groups]),
        methods=tuple(row for part in parts for row in part.methods),
        notes=tuple(note for part in parts for note in part.notes),
    )


def _with_unique_labels(groups: Sequence[EvaluationGroup]) -> tuple[EvaluationGroup, ...]:
    """The groups, with the folder in the label where two runs of one recipe share it."""
    labels = [group.label for group in groups]
    return tuple(
        group
        if labels.count(group.label) == 1
        else replace(group, label=f"{group.label} ({group.run.path.name if group.run else number})")
        for number, group in enumerate(groups, start=1)
    )


def _read_run(path: Path) -> ReportData:
    """A run, its own evaluations in the order of training, its series, and what was left out."""
    opened = Run.open(path)
    records = {k: row for k, row in opened.checkpoints.items() if row.get("tokens") is not None}
    run = RunView(path, opened.config, opened.steps, records, opened.progress)
    single: list[Evaluation] = []
    series: list[EvaluationGroup] = []
    notes: list[str] = []
    for folder in sorted(path for path in (path / "evaluations").glob("*") if path.is_dir()):
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
    groups = (*group_comparable(single, run.name, run), *series)
    return ReportData((path,), runs=(run,), groups=groups, notes=tuple(notes))


def _training_order(evaluation: Evaluation) -> tuple[bool, int, str]:
    """By the step of training; one checkpoint under several names as it was evaluated."""
    started = str(evaluation.manifest.get("started", ""))
    return evaluation.name != "base", step_of(evaluation) or 0, started


def step_of(evaluation: Evaluation) -> int | None:
    """The training step of the checkpoint that was evaluated, by its folder's name."""
    name = Path(str(evaluation.manifest["model"].get("name", ""))).name
    number = name.removeprefix("step-")
    return int(number) if name.startswith("step-") and number.isdigit() else None


def _read_series(folder: Path, run: RunView | None) -> EvaluationGroup:
    """Steps are those of the base and of checkpoints; with a level in between it is no series."""
    points: list[EvaluationPoint] = []
    for row in read_series(folder):
        evaluation = load(folder / row["name"])
        of_training = evaluation.name == "base" or step_of(evaluation) == row["step"]
        step = row["step"] if of_training else None
        points.append(EvaluationPoint(row["name"], step, evaluation, row.get("versus")))
    label = f"{run.name}, {folder.name}" if run else folder.name
    is_series = all(point.step is not None for point in points)
    return EvaluationGroup(label, tuple(points), is_series, run)


def group_comparable(
    evaluations: Sequence[Evaluation], label: str, run: RunView | None
) -> list[EvaluationGroup]:
    """Puts each evaluation behind the first one that it may be compared with."""
    groups: list[list[Evaluation]] = []
    for evaluation in evaluations:
        home = next((group for group in groups if _fits(group, evaluation)), None)
        if home is None:
            groups.append(home := [])
        home.append(evaluation)
    labels = [
        label if len(groups) == 1 else f"{label}, {' + '.join(group[0].counts)}" for group in groups
    ]
    return [
        EvaluationGroup(label, _compare_with_first(group), False, run)
        for label, group in zip(labels, groups, strict=True)
    ]


def _fits(group: Sequence[Evaluation], other: Evaluation) -> bool:
    """The same problems, prompted and counted alike, and a name of its own."""
    differences, _ = incomparable(group[0], other)
    same_sets = group[0].counts.keys() == other.counts.keys()
    return same_sets and not differences and other.name not in {e.name for e in group}


def _compare_with_first(group: Sequence[Evaluation]) -> tuple[EvaluationPoint, ...]:
    base = group[0]
    points = [EvaluationPoint(base.name, 0 if base.name == "base" else step_of(base), base, None)]
    for evaluation in group[1:]:
        versus = nested_json(compare_all(length_matched(evaluation, base), base.counts))
        points.append(EvaluationPoint(evaluation.name, step_of(evaluation), evaluation, versus))
    return tuple(points)


def _read_comparison(path: Path, runs: Sequence[Path]) -> ReportData:
    """The rows of a comparison of methods, and the evaluations that they rest on."""
    rows: Any = read_json(path / METHODS) if (path / METHODS).is_file() else []
    keys = {"acc", "len", "method"}
    are_rows = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    if not are_rows or any(keys - row.keys() for row in rows):
        raise DataError(f"{path / METHODS} is not a list of rows with acc, len, method.")
    if not rows and not runs:
        raise DataError(f"{path} has no result yet: {METHODS} is empty, and runs/ has no run.")
    groups = tuple(_groups_by_seed(path, without_last(rows)))
    return ReportData((path,), (), groups, tuple(rows))


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


# Data → rows of plain numbers, which the table and the figures are made of


def main_groups(data: ReportData) -> list[EvaluationGroup]:
    """Per run or label the group with most problems: what the table and the sentences rest on."""
    return _first_per_run(data, lambda group: (-group.num_problems, group.is_series))


def checkpoint_groups(data: ReportData) -> list[EvaluationGroup]:
    """Per run or label the group with every checkpoint, if there is one."""
    return _first_per_run(data, lambda group: (not group.is_series, -group.num_problems))


def _first_per_run(
    data: ReportData, key: Callable[[EvaluationGroup], tuple[Any, Any]]
) -> list[EvaluationGroup]:
    compared = [group for group in data.groups if len(group.points) > 1] or data.groups
    chosen: dict[object, EvaluationGroup] = {}
    for group in sorted(compared, key=key):
        chosen.setdefault(id(group.run) if group.run else group.label, group)
    return sorted(chosen.values(), key=data.groups.index)


def table_rows(data: ReportData) -> list[Row]:
    """A row per method or evaluation; with several runs each has its run's name before it."""
    groups = main_groups(data)
    rows = method_rows(data) or [row for group in groups for row in group_rows(group)]
    if data.methods or len(groups) == 1:
        return rows
    return [{**row, "name": f"{row['group']} · {row['name']}"} for row in rows]


def group_rows(group: EvaluationGroup) -> list[Row]:
    rows: list[Row] = []
    for order, point in enumerate(group.points):
        versus = point.versus_base
        row: Row = {
            **{"name": point.name, "curve": group.curve, "group": group.label},
            **{"step": point.step, "order": order, "is_base": order == 0},
            "is_result": point is group.result,
            "recommended": group.is_recommended(point),
            **{name: point.metrics[name] for name in ("problems", "rollouts")},
            "shortened": sum((versus.get("transitions") or {}).values()) or None,
            "certificate": versus.get("certificate"),
        }
        for name in (*METRICS, *VERSUS_BASE):
            row |= with_interval(name, (point.metrics if name in METRICS else versus).get(name))
        rows.append(row)
    return rows


def with_interval(name: str, metric: Row | None) -> Row:
    """A metric and its interval under three names; None is unknown."""
    ends = {name: "value", f"{name}_low": "low", f"{name}_high": "high"}
    return {key: (metric or {}).get(end) for key, end in ends.items()}


def method_rows(data: ReportData) -> list[Row]:
    """A row per method of a comparison, the base first: means over seeds with their range."""
    bases = {
        row.get("seed"): {"method": "base"}
        | {k.removeprefix("base_"): v for k, v in row.items() if k.startswith("base_")}
        for row in data.methods
        if "base_acc" in row
    }
    by_method = group_by([*bases.values(), *without_last(data.methods)], "method")
    return [
        {
            **{"name": method, "curve": method, "group": method, "step": None, "order": order},
            **{"seeds": len(seeds), "is_base": method == "base", "recommended": False},
            **mean_and_range(METHOD_METRICS, seeds),
        }
        for order, ((method,), seeds) in enumerate(by_method.items())
    ]


def without_last(methods: Sequence[Row]) -> list[Row]:
    """Rows of the recommended checkpoints, where the last ones were evaluated too."""
    if not any(row.get("checkpoint") == "recommended" for row in methods):
        return list(methods)
    return [row for row in methods if row.get("checkpoint") != "last"]


def group_by(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Values of the keys → the rows that have them, in the order of their first."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def mean_and_range(names: Iterable[str], rows: Sequence[Row]) -> Row:
    """Per metric the mean over rows, and their range; None is unknown."""
    result: Row = {}
    for name in names:
        values = [row[name] for row in rows if isinstance(row.get(name), int | float)]
        result[name] = float(np.mean(values)) if values else None
        result[f"{name}_low"] = min(values, default=None)
        result[f"{name}_high"] = max(values, default=None)
    return result


@dataclass(frozen=True)
class ProblemTrajectories:
    """Every problem over the points of a group: (C, P) arrays, NaN where it is not known."""

    columns: tuple[str, ...]
    keys: tuple[ProblemKey, ...]
    accuracy: Array  # in [0, 1]
    length: Array  # tokens


def problem_trajectories(group: EvaluationGroup) -> ProblemTrajectories:
    """All data sets one after the other, the problems in the base's order."""
    counts = [part for point in group.points for part in point.evaluation.counts.values()]
    keys = dict.fromkeys((part.name, problem_id) for part in counts for problem_id in part.ids)
    numbers = {key: number for number, key in enumerate(keys)}
    accuracy, length = np.full((2, len(group.points), len(keys)), np.nan)
    for row, point in enumerate(group.points):
        for part in point.evaluation.counts.values():
            places = [numbers[part.name, problem_id] for problem_id in part.ids]
            right = part.correct / np.maximum(part.graded, 1)
            accuracy[row, places] = np.where(part.graded > 0, right, np.nan)
            length[row, places] = part.tokens / part.rollouts
    columns = tuple(
        str(point.step) if group.is_series and point.step else point.name for point in group.points
    )
    return ProblemTrajectories(columns, tuple(keys), accuracy, length)
