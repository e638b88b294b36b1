"""Evaluations as rows of plain numbers: what the table and the figures are made of."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crt.algorithm.batch import Array
from crt.reporting.load import (
    SENSITIVITY_METRICS,
    EvaluationGroup,
    EvaluationPoint,
    ProblemKey,
    ReportData,
    Row,
    setting_title,
    without_last,
)

METRICS = ("acc", "len", "r_zip", "r_zip_correct", "r_zip_wrong", "truncated")
VERSUS_BASE = ("saved", "aes1", "aes2", "r_zip_matched", "r_zip_matched_base", "ad", "ap", "ai")
METHOD_METRICS = ("acc", "len", "r_zip", "aes1", "aes2", "ad", "ap", "ai")


def main_groups(data: ReportData) -> list[EvaluationGroup]:
    """Per run or label the group with most problems: what the table and the sentences rest on."""
    return _first_per_run(data, lambda group: (-group.num_problems, group.is_series))


def checkpoint_groups(data: ReportData) -> list[EvaluationGroup]:
    """Per run or label the group with every checkpoint, if there is one."""
    return _first_per_run(data, lambda group: (not group.is_series, -group.num_problems))


def _first_per_run(
    data: ReportData, key: Callable[[EvaluationGroup], tuple[Any, Any]]
) -> list[EvaluationGroup]:
    compared = [group for group in data.groups if len(group.points) > 1] or list(data.groups)
    chosen: dict[object, EvaluationGroup] = {}
    for group in sorted(compared, key=key):
        chosen.setdefault(id(group.run) if group.run else group.label, group)
    return sorted(chosen.values(), key=data.groups.index)


def group_rows(group: EvaluationGroup) -> list[Row]:
    """A row per evaluation, the base first."""
    curve = group.run.name if group.run else group.label  # runs of several seeds are one curve
    return [
        {
            **{"curve": curve, "group": group.label, "order": order, "is_base": order == 0},
            **{"is_result": point is group.result, "recommended": group.is_recommended(point)},
            **_point_row(point),
        }
        for order, point in enumerate(group.points)
    ]


def _point_row(point: EvaluationPoint) -> Row:
    metrics, versus = point.metrics, point.versus_base
    transitions = versus.get("transitions") or {}
    row: Row = {
        **{"name": point.name, "step": point.step},
        **{"problems": metrics["problems"], "rollouts": metrics["rollouts"]},
        "shortened": sum(transitions.values()) if transitions else None,
        "certificate": versus.get("certificate"),
    }
    for name in METRICS:
        row |= with_interval(name, metrics.get(name))
    for name in VERSUS_BASE:
        row |= with_interval(name, versus.get(name))
    return row


def with_interval(name: str, metric: Row | None) -> Row:
    """A metric and its interval under three names; None is unknown."""
    value = metric or {}
    return {
        name: value.get("value"),
        f"{name}_low": value.get("low"),
        f"{name}_high": value.get("high"),
    }


def method_rows(data: ReportData) -> list[Row]:
    """A row per method of a comparison, the base first: means over seeds with their range."""
    by_method: dict[str, list[Row]] = {}
    for row in without_last(data.methods):
        by_method.setdefault(str(row["method"]), []).append(row)
    bases = {
        row.get("seed"): {
            k.removeprefix("base_"): v for k, v in row.items() if k.startswith("base_")
        }
        for row in data.methods
        if "base_acc" in row
    }
    if bases:
        by_method = {"base": list(bases.values()), **by_method}
    return [
        {
            **{"name": method, "curve": method, "group": method, "step": None, "order": order},
            **{"seeds": len(seeds), "is_base": method == "base", "recommended": False},
            **mean_and_range(METHOD_METRICS, seeds),
        }
        for order, (method, seeds) in enumerate(by_method.items())
    ]


def sensitivity_rows(sensitivity: Sequence[Row]) -> list[Row]:
    """A row per setting and value: means over seeds with their range."""
    by_value: dict[tuple[str, str], list[Row]] = {}
    for row in sensitivity:
        by_value.setdefault((row["setting"], str(row["value"])), []).append(row)
    return [
        {
            **{"setting": setting, "title": setting_title(setting), "value": value},
            **{"own": seeds[0]["own"], "seeds": len(seeds)},
            "numeric": isinstance(seeds[0]["value"], int | float),
            "feasible": f"{sum(bool(row.get('feasible')) for row in seeds)} of {len(seeds)}",
            **mean_and_range((*SENSITIVITY_METRICS, "base_acc"), seeds),
        }
        for (setting, value), seeds in by_value.items()
    ]


def mean_and_range(names: Iterable[str], rows: Sequence[Row]) -> Row:
    """Per metric the mean over rows, and their range; None is unknown."""
    result: Row = {}
    for name in names:
        values = [row[name] for row in rows if isinstance(row.get(name), int | float)]
        mean = float(np.mean(values)) if values else None
        result |= {
            name: mean,
            f"{name}_low": min(values, default=None),
            f"{name}_high": max(values, default=None),
        }
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
    base = group.points[0].evaluation.counts
    keys = tuple((name, problem_id) for name, tally in base.items() for problem_id in tally.ids)
    accuracy, length = [], []
    for point in group.points:
        parts = [point.evaluation.counts[name].select(tally.ids) for name, tally in base.items()]
        right = [np.where(p.graded > 0, p.correct / np.maximum(p.graded, 1), np.nan) for p in parts]
        accuracy.append(np.concatenate(right))
        length.append(np.concatenate([part.tokens / part.rollouts for part in parts]))
    columns = tuple(
        str(point.step) if group.is_series and point.step else point.name for point in group.points
    )
    return ProblemTrajectories(columns, keys, np.array(accuracy), np.array(length))
