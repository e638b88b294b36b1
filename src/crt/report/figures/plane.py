"""The accuracy–length plane: who is ahead, with lines of equal AES and the Pareto front."""

from collections.abc import Sequence

from crt.report.figures.plane_print import drawn
from crt.report.figures.plane_rows import SCORE, ends, levels, named, rows, side, window
from crt.report.figures.vega import Spec, coloured, shaped, tooltip, x_axis, y_axis, zoom
from crt.report.sources import Row

__all__ = ["TITLE", "caption", "drawn", "names", "rows", "spec"]

TITLE = "Accuracy against length"


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
    named_at = ends(lines, window(found)[1])
    label = {"type": "text", "align": "left", "dx": 3, "dy": -5, "fontSize": 10, "color": "@muted"}
    return [
        {
            "data": {"values": lines},
            "mark": {"type": "line", "color": "@grey", "strokeWidth": 1, "clip": True},
            "encoding": {"detail": {"field": "level"}},
        },
        {"data": {"values": named_at}, "mark": label, "encoding": {"text": {"field": "level"}}},
    ]


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
        *names(found),  # below the points: no name may hide one
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
    ]


_TRAIL = {"type": "line", "strokeWidth": 1.5, "opacity": 0.55, "clip": True}


def names(found: Sequence[Row]) -> list[Spec]:
    """Layers with the names beside the points, on paper of their own so that lines don't cross."""
    layers: list[Spec] = []
    for align, dx in (("left", 9), ("right", -9)):
        values = [row for row in named(found) if side(row, found) == align]
        text = {"type": "text", "align": align, "dx": dx, "dy": -9, "fontSize": 12}
        halo = {**text, "stroke": "@paper", "strokeWidth": 4, "fill": "@paper"}
        for mark in (halo, {**text, "fill": "@ink"}):
            shown = {"text": {"field": "name"}, "color": {"value": "@ink"}}
            layers.append({"data": {"values": values}, "mark": mark, "encoding": shown})
    return layers
