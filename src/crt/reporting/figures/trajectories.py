"""Accuracy and length over checkpoints: in- and out-domain, several methods, bands over seeds."""

from collections.abc import Iterator, Sequence

from crt.evaluation.datasets import TITLES
from crt.reporting import style
from crt.reporting.load import (
    EvaluationGroup,
    ReportData,
    Row,
    RunView,
    group_by,
    mean_and_range,
    with_interval,
)
from crt.reporting.style import Figure, Spec, axis, layer, mark, tooltip

PANELS = {"len": "Tokens", "acc": "Accuracy, %"}
VALIDATION = "Validation problems"


def figures(data: ReportData) -> list[Figure]:
    """One figure of all runs and series."""
    rows = make_rows(data)
    if len(rows) < 2:
        return []
    return [Figure("trajectories", "Accuracy and length over training", spec(rows), caption(rows))]


def make_rows(data: ReportData) -> list[Row]:
    """A row per curve, data sets and step; one curve per name, whatever its seeds."""
    series = [group for group in data.groups if group.is_series]
    rows = [row for group in series for row in _series_rows(group)]
    evaluated = {id(group.run) for group in series}
    rows += [r for run in data.runs if id(run) not in evaluated for r in _validation_rows(run)]
    # a second series of a seed is not a second seed
    first = [same[0] for same in group_by(rows, "sets", "curve", "step", "seed").values()]
    return merge_seeds(first)


def _series_rows(group: EvaluationGroup) -> Iterator[Row]:
    seed = group.run.config.seed if group.run else 0
    for point in group.points:
        for key in [name for name in point.averages if name != "all"] or ["all"]:
            metrics = point.averages[key]
            if "acc" not in metrics or "len" not in metrics:
                continue
            few = key in ("own", "all") and len(metrics["sets"]) <= 2
            row = {
                "sets": ", ".join(metrics["sets"]) if few else TITLES[key],
                **{"curve": group.curve, "seed": seed, "step": point.step},
                "recommended": group.is_recommended(point),
            }
            for name in PANELS:  # an interval that is not known is the value itself
                bounds = with_interval(name, metrics[name])
                row |= {k: bounds[name] if v is None else v for k, v in bounds.items()}
            yield row


def _validation_rows(run: RunView) -> Iterator[Row]:
    """From the records beside the checkpoints; step 0 is the reference on the same problems."""
    records = run.records
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


def merge_seeds(rows: Sequence[Row]) -> list[Row]:
    """Seeds of a curve as one row: their mean, and their range instead of the interval."""
    return [
        {**seeds[0], "seeds": len(seeds)}
        | (mean_and_range(PANELS, seeds) if len(seeds) > 1 else {})
        for _, seeds in sorted(group_by(rows, "sets", "curve", "step").items())
    ]


def caption(rows: Sequence[Row]) -> str:
    """What the band is."""
    seeds = max(row["seeds"] for row in rows)
    end = "The dashed line is the accuracy before training."
    if any(row["recommended"] for row in rows):
        end += " The ring marks the recommended checkpoint."
    if seeds > 1:
        return f"Mean over up to {seeds} seeds; the band is their range. {end}"
    if any(row["sets"] == VALIDATION for row in rows):
        return (
            "The checkpoints on the validation problems of the run; step 0 is the frozen "
            f"reference. The band is ±1.96 standard errors of the gap to the reference. {end}"
        )
    return f"The band is the 95 % interval, bootstrapped over problems. {end}"


def spec(rows: Sequence[Row]) -> Spec:
    """Two panels per group of data sets: tokens and accuracy."""
    color, shape = style.color_and_shape("curve", {row["curve"] for row in rows})
    x = axis("step", "training step", nice=False, padding=9)
    panels: list[Spec] = []
    for (sets,), part in group_by(rows, "sets").items():
        for name, title in PANELS.items():
            y = axis(name, zero=name == "len")
            layers = _layers(part, name, shape, f"zoom{len(panels)}")
            panel = style.panel(220, layers, part, x=x, y=y, color=color)
            panels.append({"title": f"{title} · {sets}", **panel})
    return style.side_by_side(panels)


def _layers(part: Sequence[Row], name: str, shape: Spec, zoom: str) -> list[Spec]:
    """The band, the value before training, the line, the recommended checkpoint, the points."""
    fields = {"": "curve", "step": "step", "tokens": "len:.1f", "accuracy %": "acc:.1f"}
    fields |= {"from": f"{name}_low:.1f", "to": f"{name}_high:.1f"}
    start = [row for row in part if row["step"] == 0][:1] if name == "acc" else []
    recommended = [row for row in part if row["recommended"]]
    ring = mark("point", size=260, **style.RING)
    dots = layer(mark("point", filled=True, size=55), shape=shape, tooltip=tooltip(fields))
    return [
        layer(mark("area", opacity=0.16), y=f"{name}_low", y2=f"{name}_high"),
        style.across(name, data=start),
        layer(mark("line", strokeWidth=2)),
        layer(ring, recommended, color={"value": style.VERMILLION}),
        style.zoomable(zoom, dots),
    ]
