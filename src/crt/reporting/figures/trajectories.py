"""Accuracy and length over checkpoints: in- and out-domain, several methods, bands over seeds."""

from collections.abc import Iterator, Sequence

from crt.evaluate.sets import TITLES
from crt.reporting.figure_rows import mean_and_range, with_interval
from crt.reporting.load import EvaluationGroup, ReportData, Row, RunView
from crt.reporting.style import (
    MUTED,
    VERMILLION,
    Figure,
    Spec,
    axis,
    color_and_shape,
    side_by_side,
    tooltip,
    zoom,
)

KEY, TITLE = "trajectories", "Accuracy and length over training"
PANELS = {"len": "Tokens", "acc": "Accuracy, %"}
VALIDATION = "Validation problems"


def figures(data: ReportData) -> list[Figure]:
    """One figure of all runs and series."""
    found = rows(data)
    return [Figure(KEY, TITLE, spec(found), caption(found))] if len(found) > 1 else []


def rows(data: ReportData) -> list[Row]:
    """A row per curve, data sets and step; one curve per name, whatever its seeds."""
    series = [group for group in data.groups if group.is_series]
    found = [row for group in series for row in _series_rows(group)]
    evaluated = {id(group.run) for group in series}
    for run in data.runs:
        if id(run) not in evaluated:
            found += _validation_rows(run)
    return merge_seeds(_first_of_each_seed(found))


def _first_of_each_seed(found: Sequence[Row]) -> list[Row]:
    """Two series of one run on the same sets are not two seeds: the first counts."""
    keys = ("sets", "curve", "seed", "step")
    first = {tuple(row[key] for key in keys): row for row in reversed(found)}
    return list(first.values())


def _series_rows(group: EvaluationGroup) -> Iterator[Row]:
    curve = group.run.name if group.run else group.label
    seed = group.run.config.seed if group.run else 0
    for point in group.points:
        averages = point.evaluation.figures["averages"]
        for key in [name for name in averages if name != "all"] or ["all"]:
            metrics = averages[key]
            if "acc" not in metrics or "len" not in metrics:
                continue
            few = key in ("own", "all") and len(metrics["sets"]) <= 2
            yield {
                "sets": ", ".join(metrics["sets"]) if few else TITLES[key],
                **{"curve": curve, "seed": seed, "step": point.step},
                "recommended": group.is_recommended(point),
                **_closed(with_interval("acc", metrics["acc"])),
                **_closed(with_interval("len", metrics["len"])),
            }


def _closed(row: Row) -> Row:
    """An interval that is not known is the value itself."""
    value = next(iter(row.values()))
    return {key: value if bound is None else bound for key, bound in row.items()}


def _validation_rows(run: RunView) -> Iterator[Row]:
    """From the records beside the checkpoints; step 0 is the reference on the same problems."""
    records = {step: row for step, row in run.records.items() if row.get("tokens") is not None}
    first = next(iter(records.values()), {})
    if first.get("reference_tokens") is not None:
        start = {"accuracy": first["reference_accuracy"], "tokens": first["reference_tokens"]}
        records = {0: start, **records}
    for step, record in records.items():
        acc, length = 100 * record["accuracy"], record["tokens"]
        error = 196 * (record.get("standard_error") or 0.0)
        yield {
            **{"sets": VALIDATION, "curve": run.name, "seed": run.config.seed, "step": step},
            "recommended": bool(step) and step == run.recommended,
            **{"acc": acc, "acc_low": acc - error, "acc_high": min(100.0, acc + error)},
            **{"len": length, "len_low": length, "len_high": length},
        }


def merge_seeds(found: Sequence[Row]) -> list[Row]:
    """Seeds of a curve as one row: their mean, and their range instead of the interval."""
    by_step: dict[tuple[str, str, int], list[Row]] = {}
    for row in found:
        by_step.setdefault((row["sets"], row["curve"], row["step"]), []).append(row)
    return [
        {
            **seeds[0],
            "seeds": len(seeds),
            **(mean_and_range(tuple(PANELS), seeds) if len(seeds) > 1 else {}),
        }
        for _, seeds in sorted(by_step.items(), key=lambda item: item[0])
    ]


def caption(found: Sequence[Row]) -> str:
    """What the band is."""
    seeds = max(row["seeds"] for row in found)
    end = "The dashed line is the accuracy before training."
    if any(row["recommended"] for row in found):
        end += " The ring marks the recommended checkpoint."
    if seeds > 1:
        return f"Mean over up to {seeds} seeds; the band is their range. {end}"
    if any(row["sets"] == VALIDATION for row in found):
        return (
            "The checkpoints on the validation problems of the run; step 0 is the frozen "
            f"reference. The band is ±1.96 standard errors of the gap to the reference. {end}"
        )
    return f"The band is the 95 % interval, bootstrapped over problems. {end}"


def spec(found: Sequence[Row]) -> Spec:
    """Two panels per group of data sets: tokens and accuracy."""
    curves = sorted({row["curve"] for row in found})
    return side_by_side(
        [
            _panel([row for row in found if row["sets"] == sets], name, curves, f"z{i}{name}")
            for i, sets in enumerate(dict.fromkeys(row["sets"] for row in found))
            for name in PANELS
        ]
    )


def _panel(part: list[Row], name: str, curves: list[str], key: str) -> Spec:
    y = axis(name, "", scale={"zero": name == "len"})
    fields = {"": "curve", "step": "step", "tokens": "len:.1f", "accuracy %": "acc:.1f"}
    fields |= {"from": f"{name}_low:.1f", "to": f"{name}_high:.1f"}
    marker = color_and_shape("curve", curves)
    x = axis("step", "training step", scale={"nice": False, "padding": 9})
    start = [row for row in part if row["step"] == 0][:1] if name == "acc" else []
    dashed = {"type": "rule", "color": MUTED, "strokeDash": [4, 4], "clip": True}
    across = {"x": {"value": 0}, "x2": {"value": "width"}, "color": {"value": MUTED}}
    band = {"y": {**y, "field": f"{name}_low"}, "y2": {"field": f"{name}_high"}}
    ring = {"type": "point", "filled": False, "size": 260, "strokeWidth": 2, "clip": True}
    return {
        "title": f"{PANELS[name]} · {part[0]['sets']}",
        "width": "1/2",
        "height": 220,
        "data": {"values": part},
        "encoding": {"x": x, "color": marker["color"]},
        "layer": [
            {"mark": {"type": "area", "opacity": 0.16, "clip": True}, "encoding": band},
            {"data": {"values": start}, "mark": dashed, "encoding": {"y": y, **across}},
            {"mark": {"type": "line", "strokeWidth": 2, "clip": True}, "encoding": {"y": y}},
            {
                "transform": [{"filter": "datum.recommended"}],
                "mark": ring,
                "encoding": {"y": y, "color": {"value": VERMILLION}},
            },
            {
                "params": zoom(key),
                "mark": {"type": "point", "filled": True, "size": 55, "clip": True},
                "encoding": {"y": y, "shape": marker["shape"], "tooltip": tooltip(fields)},
            },
        ],
    }
