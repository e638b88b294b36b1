"""The accuracy–length plane: who is ahead, with lines of equal AES and the Pareto front."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crt.core.metrics import AES1, AES2, AesWeights
from crt.report import measured
from crt.report.figures import labels, style
from crt.report.figures.vega import Spec, coloured, shaped, tooltip, x_axis, y_axis, zoom
from crt.report.palette import LIGHT
from crt.report.sources import Material, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Accuracy against length"
WEIGHTS = {"AES1": AES1, "AES2": AES2}
SCORE = "AES2"  # the stricter one: lost accuracy costs ten times what saved tokens bring
LEVELS = (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75)
CLOSE_LEVELS = tuple(round(0.1 * i - 1, 1) for i in range(20))  # where a crowd is enlarged


def rows(material: Material) -> list[Row]:
    """A row for each evaluation or method, and the base."""
    found = measured.over_seeds(material)
    if not found:
        found = [row for lineup in measured.courses(material) for row in measured.rows(lineup)]
    known = [row for row in found if row["acc"] is not None and row["len"] is not None]
    front = pareto([(row["len"], row["acc"]) for row in known])
    return [{**row, "on_front": on} for row, on in zip(known, front, strict=True)]


def pareto(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Whether no other (length, accuracy) is as short and as right, and better in one."""
    return [
        not any(
            length <= own_length and acc >= own_acc and (length, acc) != (own_length, own_acc)
            for length, acc in points
        )
        for own_length, own_acc in points
    ]


def level_line(
    score: float, lengths: Sequence[float], base: tuple[float, float], weights: AesWeights
) -> list[float]:
    """The accuracies that have this AES at these lengths; `base` is (length, accuracy)."""
    base_length, base_acc = base
    rest = score - weights.alpha * (1 - np.asarray(lengths, dtype=float) / base_length)
    gained = np.where(rest >= 0, rest / weights.beta, rest / weights.gamma)
    return (base_acc * (1 + gained)).tolist()


def window(found: Sequence[Row]) -> tuple[list[float], list[float]]:
    """The part of the plane to show: every point, the origin of length, some air."""
    lengths = [row["len"] for row in found]
    low, high = zip(*_spans(found), strict=True)
    air = max(1.0, 0.15 * (max(high) - min(low)))
    return [0.0, 1.15 * max(lengths)], [max(0.0, min(low) - air), min(101.0, max(high) + air)]


def _spans(found: Sequence[Row]) -> list[tuple[float, float]]:
    """Each accuracy's interval, or the accuracy twice where there is none."""
    names = ("acc_low", "acc_high")
    return [tuple(row["acc"] if row[n] is None else row[n] for n in names) for row in found]


def levels(
    found: Sequence[Row],
    score: str = SCORE,
    at: Sequence[float] = LEVELS,
    domain: Sequence[float] | None = None,
) -> list[Row]:
    """Lines of equal AES through the window or these lengths, as rows; none without a base."""
    base = next((row for row in found if row["is_base"]), None)
    if base is None:
        return []
    first, last = domain or window(found)[0]
    lengths = np.linspace(first, last, 41).tolist()
    origin = (base["len"], base["acc"])
    return [
        {"level": f"{level:+.2f}".replace("-", "−"), "len": length, "acc": acc}
        for level in at
        for length, acc in zip(
            lengths, level_line(level, lengths, origin, WEIGHTS[score]), strict=True
        )
    ]


def caption(found: Sequence[Row]) -> str:
    """How to read it."""
    spread = "the range over seeds" if "seeds" in found[0] else "the 95 % interval over problems"
    return (
        f"Up and left is better. Grey lines join points of equal {SCORE} against the base, the "
        f"dashed line is the Pareto front, bars are {spread}."
    )


def spec(found: Sequence[Row]) -> Spec:
    """Lines of equal AES below, the front, then points with their intervals."""
    x_domain, y_domain = window(found)
    curves = list(dict.fromkeys(row["curve"] for row in found))
    x = x_axis("len", "tokens a response", scale={"domain": x_domain, "nice": False})
    y = y_axis("acc", "accuracy, %", scale={"domain": y_domain, "nice": False}, axis={"grid": 0})
    front = sorted((row for row in found if row["on_front"]), key=lambda row: row["len"])
    return {
        "width": "1/1",
        "height": 360,
        "encoding": {"x": x, "y": y},
        "layer": [
            *_level_layers(found),
            {
                "data": {"values": front},
                "mark": {"type": "line", "strokeDash": [5, 4], "color": "@muted", "clip": True},
            },
            *_point_layers(list(found), curves),
        ],
    }


def _level_layers(found: Sequence[Row]) -> list[Spec]:
    lines = levels(found)
    ends = _ends(lines, window(found)[1])
    label = {"type": "text", "align": "left", "dx": 3, "dy": -5, "fontSize": 10, "color": "@muted"}
    return [
        {
            "data": {"values": lines},
            "mark": {"type": "line", "color": "@grey", "strokeWidth": 1, "clip": True},
            "encoding": {"detail": {"field": "level"}},
        },
        {"data": {"values": ends}, "mark": label, "encoding": {"text": {"field": "level"}}},
    ]


def _ends(lines: Sequence[Row], y_domain: list[float]) -> list[Row]:
    """Where a level's name stands: the first of its points inside the window."""
    first: dict[str, Row] = {}
    for row in lines:
        if y_domain[0] <= row["acc"] <= y_domain[1]:
            first.setdefault(row["level"], row)
    return list(first.values())


def _point_layers(found: list[Row], curves: list[str]) -> list[Spec]:
    told = {"": "name", "accuracy %": "acc:.2f", "from": "acc_low:.2f", "to": "acc_high:.2f"}
    told |= {"tokens": "len:.1f", "AES1": "aes1:+.3f", "AES2": "aes2:+.3f"}
    color = coloured("curve", curves)
    path = {"detail": {"field": "lineup"}, "order": {"field": "order"}, "color": color}
    across = {"y": {"field": "acc_low"}, "y2": {"field": "acc_high"}, "color": color}
    data = {"values": found}
    trail = [] if "seeds" in found[0] else [{"data": data, "mark": _TRAIL, "encoding": path}]
    return [
        *trail,
        {"data": data, "mark": {"type": "rule", "opacity": 0.5, "clip": True}, "encoding": across},
        {
            "data": data,
            "params": zoom("plane"),
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, "clip": True},
            "encoding": {
                "color": color,
                "shape": shaped("curve", curves),
                "tooltip": tooltip(told),
            },
        },
        *names(found),
    ]


_TRAIL = {"type": "line", "strokeWidth": 1.5, "opacity": 0.55, "clip": True}


def names(found: Sequence[Row]) -> list[Spec]:
    """Layers with the names beside the points, on paper of their own so that lines don't cross."""
    layers: list[Spec] = []
    for align, dx in (("left", 9), ("right", -9)):
        values = [row for row in named(found) if _side(row, found) == align]
        text = {"type": "text", "align": align, "dx": dx, "dy": -9, "fontSize": 12}
        halo = {**text, "stroke": "@paper", "strokeWidth": 4, "fill": "@paper"}
        for mark in (halo, {**text, "fill": "@ink"}):
            shown = {"text": {"field": "name"}, "color": {"value": "@ink"}}
            layers.append({"data": {"values": values}, "mark": mark, "encoding": shown})
    return layers


def _side(row: Row, found: Sequence[Row]) -> str:
    """Away from the point before it on its curve, and from the edge."""
    before = [r for r in found if r["lineup"] == row["lineup"] and r["order"] < row["order"]]
    at_edge = len(row["name"]) > 8 and row["len"] > 0.8 * max(r["len"] for r in found)
    return "right" if at_edge or (before and row["len"] < before[-1]["len"]) else "left"


def named(found: Sequence[Row]) -> list[Row]:
    """The points whose names are written: all if they are few, else each curve's ends."""
    last = {row["lineup"]: row for row in found}
    few = len(found) <= 8
    wanted = [row for row in found if few or row["is_base"] or row is last[row["lineup"]]]
    return [row for i, row in enumerate(wanted) if not _crowded(row, wanted[:i], found)]


def _crowded(row: Row, others: Sequence[Row], found: Sequence[Row]) -> bool:
    """Whether another name is already written there; hovering tells it then."""
    ends = [each.get(end) for each in found for end in ("acc_low", "acc_high")]
    heights = [*map(_height, found), *(end for end in ends if end is not None)]
    wide, high = max(each["len"] for each in found), max(1e-9, max(heights) - min(heights))
    return any(
        abs(row["len"] - each["len"]) < 0.08 * wide
        and abs(_height(row) - _height(each)) < 0.06 * high
        for each in others
    )


def _height(row: Row) -> float:
    """What goes up the side: accuracy here, R_zip in another figure."""
    return row["acc"] if "acc" in row else row["value"]


@style.in_print
def drawn(found: Sequence[Row]) -> "Figure":
    """The same, for print; a crowd of methods is enlarged at the side."""
    if "seeds" in found[0]:
        return _methods(found)
    curves = {row["curve"] for row in found}
    told = {row["curve"] for row in named(found)} == curves
    size = (style.COLUMN * 1.25, 3.0) if told else (style.PAGE, max(3.0, 0.3 + 0.18 * len(curves)))
    figure, ((axis,),) = style.axes(1, 1, *size)
    _panel(axis, found, found, window(found))
    for row in named(found):
        side = _side(row, found)
        spot = (row["len"], row["acc"])
        axis.annotate(row["name"], spot, (5 if side == "left" else -5, 4), ha=side, **_NOTE)
    if not told:  # names that would stand on each other are left out: nobody can hover over paper
        figure.legend(loc="outside right center", labelspacing=0.7)
    return figure


_NOTE = {"textcoords": "offset points", "fontsize": labels.SIZE}


def _methods(found: Sequence[Row]) -> "Figure":
    """A point a method. On paper nobody can hover: every name is written somewhere."""
    from matplotlib.patches import Rectangle

    spots = {row["name"]: (row["len"], row["acc"]) for row in found}
    (first, last), (low, high) = whole = window(found)
    crowded = labels.crowd(spots, (0.05 * (last - first), 0.06 * (high - low)))
    near = [row for row in found if row["name"] in crowded]
    size = (style.PAGE, 3.4) if near else (style.COLUMN * 1.25, 3.0)
    figure, (axes,) = style.axes(1, 2 if near else 1, *size, width_ratios=[1.5, 1] if near else [1])
    _panel(axes[0], found, found, whole)
    if near:
        inside = close_up(near)
        _panel(axes[1], found, near, inside, CLOSE_LEVELS)
        axes[1].set(ylabel=None, title="the crowd, enlarged")
        (x, right), (y, top) = inside
        box = {"fill": False, "edgecolor": LIGHT["muted"], "linewidth": 0.7, "zorder": 4}
        axes[0].add_patch(Rectangle((x, y), right - x, top - y, **box))
        ink = style.ink_of([row["curve"] for row in found])
        colours = {row["name"]: ink[row["curve"]][0] for row in near}
        labels.column(axes[1], {name: spots[name] for name in crowded}, colours)
    figure.draw_without_rendering()  # where things are is known afterwards
    apart = {name: spot for name, spot in spots.items() if name not in crowded}
    if labels.beside(axes[0], apart, list(spots.values())):
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return figure


def close_up(near: Sequence[Row]) -> tuple[list[float], list[float]]:
    """The part of the plane with these points and their intervals."""
    lengths = [row["len"] for row in near]
    low, high = zip(*_spans(near), strict=True)
    wide, tall = max(lengths) - min(lengths), max(high) - min(low)
    x_air, y_air = max(0.15 * wide, 0.5), max(0.08 * tall, 0.2)
    return [min(lengths) - x_air, max(lengths) + x_air], [min(low) - y_air, max(high) + y_air]


def _panel(
    axis: Any,
    found: Sequence[Row],
    shown: Sequence[Row],
    bounds: tuple[list[float], list[float]],
    scores: Sequence[float] = LEVELS,
) -> None:
    """Lines of equal AES, the front, and the points that are shown, within the bounds."""
    x_domain, y_domain = bounds
    lines = levels(found, at=scores, domain=x_domain)
    for level in dict.fromkeys(row["level"] for row in lines):
        part = [row for row in lines if row["level"] == level]
        xs, ys = [row["len"] for row in part], [row["acc"] for row in part]
        axis.plot(xs, ys, color=LIGHT["grey"], linewidth=0.7, zorder=1)
    for row in _ends(lines, y_domain):
        spot = (row["len"], row["acc"])
        axis.annotate(row["level"], spot, (2, 2), **_NOTE, color=LIGHT["muted"])
    front = sorted((r["len"], r["acc"]) for r in found if r["on_front"])
    axis.plot(*zip(*front, strict=True), "--", color=LIGHT["muted"], linewidth=1, zorder=2)
    _draw_points(axis, shown, style.ink_of([row["curve"] for row in found]))
    axis.set(xlim=x_domain, ylim=y_domain, xlabel="tokens a response", ylabel="accuracy, %")
    axis.grid(visible=False)


def _draw_points(axis: Any, found: Sequence[Row], ink: dict[str, tuple[str, str]]) -> None:
    seen: set[str] = set()
    for lineup in dict.fromkeys(row["lineup"] for row in found):
        part = [row for row in found if row["lineup"] == lineup]
        curve = part[0]["curve"]
        colour, marker = ink[curve]
        label = None if curve in seen else curve  # lines of one curve have one name
        seen.add(curve)
        xs, ys = [row["len"] for row in part], [row["acc"] for row in part]
        low, high = np.array(_spans(part)).T
        below, above = np.maximum(ys - low, 0), np.maximum(high - ys, 0)  # a mean may be off by ε
        joined = "-" if "seeds" not in found[0] else ""
        axis.errorbar(
            xs, ys, np.array([below, above]), fmt=marker, linestyle=joined, color=colour,
            elinewidth=0.7, linewidth=0.9, zorder=3, label=label,
        )  # fmt: skip
