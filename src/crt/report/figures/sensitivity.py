"""Sensitivity: accuracy, tokens and AES2 for every value of every setting that was turned."""

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from crt.report import turned
from crt.report.figures import style
from crt.report.figures.vega import Spec, tooltip
from crt.report.palette import LIGHT
from crt.report.sources import Material, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "What each setting does"
PANELS = {"acc": "accuracy, %", "len": "tokens", "aes2": "AES2"}
LOOKS = {False: ("blue", "circle", "o"), True: ("vermillion", "diamond", "D")}  # the recipe's own
NAMES = {False: "another value", True: "the recipe's own"}


def rows(material: Material) -> list[Row]:
    """A row for each setting and value; long words are broken into lines."""
    found = turned.over_seeds(material.turned)
    return [{**row, "shown": fill(row["value"].replace("_", " "), 10)} for row in found]


def caption(found: Sequence[Row]) -> str:
    """How to read it."""
    seeds = max(row["seeds"] for row in found)
    return (
        f"One setting at a time, the others as the recipe has them. Points are means over up to "
        f"{seeds} seeds, bars their range; the scale of a measure is the same for all settings. "
        "A diamond is the recipe's own value. The dashed line is the base's accuracy, and its "
        "AES2, which is 0."
    )


def domain(found: Sequence[Row], name: str) -> list[float]:
    """From the lowest to the highest of all settings, with air, and the line that is compared."""
    ends = [row[f"{name}{end}"] for row in found for end in ("_low", "_high")]
    known = [value for value in [*ends, *_compared(found, name)] if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    air = 0.08 * (high - low) or 0.5
    return [low - air, high + air]


def _compared(found: Sequence[Row], name: str) -> list[float]:
    """What the dashed line shows: the base, where it is near enough to be on the scale."""
    if name == "aes2":
        return [0.0]
    known = [row["base_acc"] for row in found if row["base_acc"] is not None]
    return [sum(known) / len(known)] if name == "acc" and known else []


def settings(found: Sequence[Row]) -> dict[str, list[Row]]:
    """Setting → its rows."""
    parts: dict[str, list[Row]] = {}
    for row in found:
        parts.setdefault(row["setting"], []).append(row)
    return parts


def spec(found: Sequence[Row]) -> Spec:
    """A line of three panels for each setting."""
    scales = {name: (domain(found, name), _compared(found, name)) for name in PANELS}
    views = [
        _view(part, name, *scales[name]) for part in settings(found).values() for name in PANELS
    ]
    spacing = {"row": 78, "column": 76}  # with room for axes, which flush bounds do not count
    return {"concat": views, "columns": len(PANELS), "bounds": "flush", "spacing": spacing}


def _view(part: list[Row], name: str, across: list[float], compared: list[float]) -> Spec:
    values = [row["shown"] for row in part]
    axis = {"labelAngle": 0, "grid": False, "labelExpr": "split(datum.label, '\\n')"}
    x = {"field": "shown", "type": "nominal", "sort": values, "title": None, "axis": axis}
    scale = {"domain": across, "nice": False, "zero": False}
    y = {"field": name, "type": "quantitative", "title": None, "scale": scale}
    told = {"": "value", "accuracy %": "acc:.2f", "tokens": "len:.1f", "AES2": "aes2:+.3f"}
    told |= {"from": f"{name}_low:.3f", "to": f"{name}_high:.3f", "seeds": "seeds"}
    told |= {"kept the guard": "feasible"}
    line = {"type": "line", "color": "@grey", "strokeWidth": 1.5}
    point = {"type": "point", "filled": True, "size": 90, "opacity": 1}
    return {
        "title": f"{part[0]['title']} · {PANELS[name]}",
        "width": f"1/{len(PANELS)}",
        "height": 150,
        "data": {"values": part},
        "encoding": {"x": x},
        "layer": [
            *_dashed(compared, y),
            *([{"mark": line, "encoding": {"y": y}}] if _ordered(part) else []),
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {
                    "y": {**y, "field": f"{name}_low"},
                    "y2": {"field": f"{name}_high"},
                    **_looks("color"),
                },
            },
            {
                "mark": point,
                "encoding": {"y": y, **_looks("color", "shape"), "tooltip": tooltip(told)},
            },
        ],
    }


def _dashed(compared: list[float], y: Spec) -> list[Spec]:
    rule = {"type": "rule", "color": "@muted", "strokeDash": [4, 4]}
    across = {"x": {"value": 0}, "x2": {"value": "width"}, "y": {**y, "field": "at"}}
    return [{"data": {"values": [{"at": v}]}, "mark": rule, "encoding": across} for v in compared]


def _ordered(part: Sequence[Row]) -> bool:
    """Whether a line from value to value means something."""
    return all(row["numeric"] for row in part)


def _looks(*channels: str) -> Spec:
    """Colour and shape of the recipe's own value and of the others."""
    ranges = {"color": [f"@{colour}" for colour, _, _ in LOOKS.values()]}
    ranges |= {"shape": [shape for _, shape, _ in LOOKS.values()]}
    plain = {"field": "own", "type": "nominal", "legend": None}
    return {
        channel: {**plain, "scale": {"domain": list(LOOKS), "range": ranges[channel]}}
        for channel in channels
    }


@style.in_print
def drawn(found: Sequence[Row]) -> "Figure":
    """The same, for print: a line of panels for each setting."""
    parts = settings(found)
    figure, axes = style.axes(len(parts), 3, style.PAGE, 0.4 + 1.25 * len(parts), sharey="col")
    for line, part in zip(axes, parts.values(), strict=True):
        for axis, name in zip(line, PANELS, strict=True):
            _draw_panel(axis, part, name)
            axis.set_ylim(domain(found, name))
            for value in _compared(found, name):
                axis.axhline(value, color=LIGHT["muted"], linestyle="--", linewidth=0.8, zorder=1)
        line[0].set_title(part[0]["title"])
    for axis, told in zip(axes[0], PANELS.values(), strict=True):
        axis.set_title(told, loc="right", fontweight="normal")
    style.legend_above(figure, axes[0][0])
    return figure


def _draw_panel(axis: Any, part: Sequence[Row], name: str) -> None:
    places = range(len(part))
    if _ordered(part):
        axis.plot(places, [row[name] for row in part], color=LIGHT["grey"], linewidth=1, zorder=2)
    for own, (colour, _, marker) in LOOKS.items():
        some = [(p, r) for p, r in enumerate(part) if r["own"] == own and r[name] is not None]
        xs, ys = [place for place, _ in some], [row[name] for _, row in some]
        below = [max(0.0, row[name] - row[f"{name}_low"]) for _, row in some]
        above = [max(0.0, row[f"{name}_high"] - row[name]) for _, row in some]
        style_of = {"color": LIGHT[colour], "linestyle": "", "elinewidth": 1, "zorder": 3}
        axis.errorbar(xs, ys, [below, above], fmt=marker, label=NAMES[own], **style_of)
    axis.set_xticks(places, [row["shown"] for row in part])
    axis.set_xlim(-0.5, len(part) - 0.5)
