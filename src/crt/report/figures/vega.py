"""Pieces of Vega-Lite that the page's figures share; the page puts in widths and colours.

A width is a share of the figure's place ("1/2"), a colour is a name of the palette ("@blue").
"""

from collections.abc import Mapping, Sequence
from typing import Any

from crt.report.palette import SHAPES, looks

Spec = dict[str, Any]
ZOOM = "wheel![event.ctrlKey || event.metaKey]"  # the bare wheel scrolls the page


def zoom(name: str) -> list[Spec]:
    """Pinch or Ctrl + wheel zooms, dragging pans, a double click resets."""
    return [{"name": name, "select": {"type": "interval", "zoom": ZOOM}, "bind": "scales"}]


def x_axis(field: str, title: str, **more: Any) -> Spec:
    """A number along the bottom, without lines."""
    scale = {"zero": False, "nice": True, **more.pop("scale", {})}
    axis = {"grid": False, **more.pop("axis", {})}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def y_axis(field: str, title: str, **more: Any) -> Spec:
    """A number up the side; not from 0 unless said so."""
    scale = {"zero": False, "nice": True, **more.pop("scale", {})}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, **more}


def coloured(field: str, names: Sequence[str], legend: bool = True) -> Spec:
    """The palette's colours."""
    found = looks(names)
    scale = {"domain": list(found), "range": [f"@{look.colour}" for look in found.values()]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": _legend(names, legend)}


def _legend(names: Sequence[str], wanted: bool = True) -> Spec | None:
    plain = {"orient": "top", "title": None, "columns": 6, "symbolOpacity": 1}
    return plain if wanted and len(names) > 1 else None


def shaped(field: str, names: Sequence[str]) -> Spec:
    """A shape for each name, so that nothing depends on colour alone."""
    found = looks(names)
    scale = {"domain": list(found), "range": [SHAPES[look.shape] for look in found.values()]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": _legend(names)}


def tooltip(fields: Mapping[str, str]) -> list[Spec]:
    """Title → field, with a format after a colon: `len:.1f`."""
    found: list[Spec] = []
    for title, field in fields.items():
        name, _, form = field.partition(":")
        kind = {"type": "quantitative", "format": form} if form else {"type": "nominal"}
        found.append({"field": name, "title": title, **kind})
    return found


def side_by_side(views: Sequence[Spec], columns: int = 2) -> Spec:
    """Views in a grid; on a narrow screen the page puts them under each other."""
    spacing = {"row": 84, "column": 76}  # with room for axes, which flush bounds do not count
    return {"concat": list(views), "columns": columns, "bounds": "flush", "spacing": spacing}
