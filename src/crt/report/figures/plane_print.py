"""The accuracy–length plane on paper, where nobody can hover: every name is written somewhere."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crt.report.figures import labels, style
from crt.report.figures.plane_rows import LEVELS, ends, levels, named, side, spans, window
from crt.report.palette import LIGHT
from crt.report.sources import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLOSE_LEVELS = tuple(round(0.1 * i - 1, 1) for i in range(20))  # where a crowd is enlarged
_NOTE = {"textcoords": "offset points", "fontsize": labels.SIZE}


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
        beside = side(row, found)
        spot = (row["len"], row["acc"])
        axis.annotate(row["name"], spot, (5 if beside == "left" else -5, 4), ha=beside, **_NOTE)
    if not told:  # names that would stand on each other are left out: nobody can hover over paper
        figure.legend(loc="outside right center", labelspacing=0.7)
    return figure


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
    low, high = zip(*spans(near), strict=True)
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
    for row in ends(lines, y_domain):
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
        low, high = np.array(spans(part)).T
        below, above = np.maximum(ys - low, 0), np.maximum(high - ys, 0)  # a mean may be off by ε
        joined = "-" if "seeds" not in found[0] else ""
        axis.errorbar(
            xs, ys, np.array([below, above]), fmt=marker, linestyle=joined, color=colour,
            elinewidth=0.7, linewidth=0.9, zorder=3, label=label,
        )  # fmt: skip
