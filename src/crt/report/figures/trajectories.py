"""Accuracy and length over checkpoints: in- and out-domain, several methods, bands over seeds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crt.evaluate.sets import TITLES
from crt.report.figures import style
from crt.report.figures.vega import (
    Spec,
    coloured,
    shaped,
    side_by_side,
    tooltip,
    x_axis,
    y_axis,
    zoom,
)
from crt.report.sources import LineUp, Material, Row, RunView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Accuracy and length over training"
PANELS = {"len": "Tokens", "acc": "Accuracy, %"}
VALIDATION = "Validation problems"


def rows(material: Material) -> list[Row]:
    """A row for each curve, group of data sets and step; one curve a name, whatever its seeds."""
    found = [row for lineup in material.lineups if lineup.is_series for row in _series(lineup)]
    measured = {id(lineup.run) for lineup in material.lineups if lineup.is_series and lineup.run}
    for run in material.runs:
        if id(run) not in measured:
            found += _validation(run)
    return banded(_once(found))


def _once(found: Sequence[Row]) -> list[Row]:
    """Two series of one run on the same sets are not two seeds: the first counts."""
    keys = ("group", "curve", "seed", "step")
    first = {tuple(row[key] for key in keys): row for row in reversed(found)}
    return list(first.values())


def _series(lineup: LineUp) -> Iterator[Row]:
    curve = lineup.run.name if lineup.run else lineup.label
    seed = lineup.run.config.seed if lineup.run else 0
    for point in lineup.points:
        averages = point.evaluation.figures["averages"]
        groups = [name for name in averages if name != "all"] or ["all"]
        for group in groups:
            figures = averages[group]
            if "acc" in figures and "len" in figures:
                names = {
                    "group": _title(group, figures),
                    "curve": curve,
                    "seed": seed,
                    "step": point.step,
                }
                yield {**names, **_with_bounds("acc", figures), **_with_bounds("len", figures)}


def _title(group: str, figures: Mapping[str, Any]) -> str:
    """The paper's groups by their name, one's own sets by theirs if they are few."""
    sets = figures["sets"]
    return ", ".join(sets) if group in ("own", "all") and len(sets) <= 2 else TITLES[group]


def _with_bounds(name: str, figures: Mapping[str, Any]) -> Row:
    found = figures[name]
    low = found["value"] if found["low"] is None else found["low"]
    high = found["value"] if found["high"] is None else found["high"]
    return {name: found["value"], f"{name}_low": low, f"{name}_high": high}


def _validation(run: RunView) -> Iterator[Row]:
    """From the records beside the checkpoints; step 0 is the reference on the same problems."""
    known = {step: row for step, row in run.records.items() if row.get("tokens") is not None}
    first = next(iter(known.values()), {})
    if first.get("reference_tokens") is not None:
        start = {"accuracy": first["reference_accuracy"], "tokens": first["reference_tokens"]}
        known = {0: start, **known}
    for step, row in known.items():
        acc, length = 100 * row["accuracy"], row["tokens"]
        error = 196 * (row.get("standard_error") or 0.0)
        yield {
            "group": VALIDATION,
            "curve": run.name,
            "seed": run.config.seed,
            "step": step,
            **{"acc": acc, "acc_low": acc - error, "acc_high": min(100.0, acc + error)},
            **{"len": length, "len_low": length, "len_high": length},
        }


def banded(found: Sequence[Row]) -> list[Row]:
    """Seeds of a curve as one row: their mean, and their range instead of the interval."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in found:
        groups.setdefault((row["group"], row["curve"], row["step"]), []).append(row)
    return [_merged(group) for _, group in sorted(groups.items(), key=lambda item: item[0])]


def _merged(group: Sequence[Row]) -> Row:
    merged = {**group[0], "seeds": len(group)}
    for name in PANELS if len(group) > 1 else ():
        values = [row[name] for row in group]
        merged |= {name: float(np.mean(values))}
        merged |= {f"{name}_low": min(values), f"{name}_high": max(values)}
    return merged


def caption(found: Sequence[Row]) -> str:
    """What the band is."""
    seeds = max(row["seeds"] for row in found)
    start = "The dashed line is the accuracy before training."
    if seeds > 1:
        return f"Mean over up to {seeds} seeds; the band is their range. {start}"
    if any(row["group"] == VALIDATION for row in found):
        return (
            "The checkpoints on the validation problems of the run; step 0 is the frozen "
            f"reference. The band is ±1.96 standard errors of the gap to the reference. {start}"
        )
    return f"The band is the 95 % interval, bootstrapped over problems. {start}"


def spec(found: Sequence[Row]) -> Spec:
    """Two panels for each group of data sets: tokens and accuracy."""
    groups = list(dict.fromkeys(row["group"] for row in found))
    curves = sorted({row["curve"] for row in found})
    views = [
        _view([row for row in found if row["group"] == group], name, group, curves, f"z{i}{name}")
        for i, group in enumerate(groups)
        for name in PANELS
    ]
    return side_by_side(views)


def _view(part: list[Row], name: str, group: str, curves: list[str], key: str) -> Spec:
    y = y_axis(name, "", scale={"zero": name == "len"})
    told = {"": "curve", "step": "step", "tokens": "len:.1f", "accuracy %": "acc:.1f"}
    bounds = {"from": f"{name}_low:.1f", "to": f"{name}_high:.1f"}
    color = coloured("curve", curves)
    return {
        "title": f"{PANELS[name]} · {group}",
        "width": "1/2",
        "height": 220,
        "data": {"values": part},
        "encoding": {
            "x": x_axis("step", "training step", scale={"nice": False, "padding": 9}),
            "color": color,
        },
        "layer": [
            {
                "mark": {"type": "area", "opacity": 0.16, "clip": True},
                "encoding": {
                    "y": {**y, "field": f"{name}_low"},
                    "y2": {"field": f"{name}_high"},
                },
            },
            *([_start(part, y)] if name == "acc" else []),
            {"mark": {"type": "line", "strokeWidth": 2, "clip": True}, "encoding": {"y": y}},
            {
                "params": zoom(key),
                "mark": {"type": "point", "filled": True, "size": 55, "clip": True},
                "encoding": {
                    "y": y,
                    "shape": shaped("curve", curves),
                    "tooltip": tooltip(told | bounds),
                },
            },
        ],
    }


def _start(part: list[Row], y: Spec) -> Spec:
    """Where accuracy began: what is to be kept."""
    values = [row for row in part if row["step"] == 0][:1]
    rule = {"type": "rule", "color": "@muted", "strokeDash": [4, 4], "clip": True}
    across = {"x": {"value": 0}, "x2": {"value": "width"}, "color": {"value": "@muted"}}
    return {"data": {"values": values}, "mark": rule, "encoding": {"y": y, **across}}


@style.in_print
def drawn(found: Sequence[Row]) -> "Figure":
    """The same, for print: a row of panels for each group of data sets."""
    groups = list(dict.fromkeys(row["group"] for row in found))
    curves = sorted({row["curve"] for row in found})
    figure, axes = style.axes(len(groups), 2, style.PAGE, 0.3 + 1.9 * len(groups), sharex=True)
    for line, group in zip(axes, groups, strict=True):
        for axis, name in zip(line, PANELS, strict=True):
            for curve, (colour, marker) in style.ink_of(curves).items():
                part = [r for r in found if r["group"] == group and r["curve"] == curve]
                steps, low, high = ([r[k] for r in part] for k in _columns(name))
                axis.plot(steps, [r[name] for r in part], color=colour, marker=marker, label=curve)
                axis.fill_between(steps, low, high, color=colour, alpha=0.16, linewidth=0)
            start = [r["acc"] for r in found if r["group"] == group and r["step"] == 0][:1]
            if name == "acc" and start:
                axis.axhline(start[0], color=style.LIGHT["muted"], linestyle="--", linewidth=0.8)
            axis.set_title(f"{PANELS[name]} · {group}")
            axis.set_ylim(bottom=0 if name == "len" else None)
    for axis in axes[-1]:
        axis.set_xlabel("training step")
    style.legend_above(figure, axes[0][0])
    return figure


def _columns(name: str) -> tuple[str, str, str]:
    return "step", f"{name}_low", f"{name}_high"
