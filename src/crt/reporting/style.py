"""The look of every figure and their one renderer.

A figure is a plain Vega-Lite specification with placeholders. Colours are variables of the
palette (`var(--blue)`): the page's style sheet defines them for light and dark. A width may be a
share of the figure's place ("1/2"); a legend has "2 or 6" columns, the fewer where it is narrow.
charts.js fills in the latter two on the page; `resolve` fills in all three for print.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

Spec = dict[str, Any]
Data = Sequence[Mapping[str, Any]]

# Variables of page.css: Okabe and Ito's colours, which differ with any kind of colour vision.
CURVES = BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = (
    *("var(--blue)", "var(--vermillion)", "var(--green)"),
    *("var(--purple)", "var(--orange)", "var(--sky)"),
)
INK, MUTED, GREY, GRID, PAPER = (f"var(--{n})" for n in ("ink", "muted", "grey", "grid", "paper"))
ON_COLOR = "var(--on-color)"  # text on a coloured bar
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
LENGTHS = "cividis"  # dark is short, bright is long; even in grey
SCREEN_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
PRINT_FONT = "Liberation Sans"  # vl-convert brings it: no font need be installed

COLUMN_INCHES, PAGE_INCHES = 3.35, 6.9  # of a two-column paper
PIXELS_PER_INCH = 108  # in print: letters of 12 pixels are 8 points high
PNG_PIXELS_PER_INCH = 300
NARROW = 640  # pixels under which panels stand below each other; charts.js has the same
VEGA_LITE = "6.4"  # of those in vl-convert the nearest to the page's
ZOOM = "wheel![event.ctrlKey || event.metaKey]"  # the bare wheel scrolls the page
LEGEND = {"orient": "top", "title": None, "symbolOpacity": 1, "columns": "2 or 6"}
LONG = 18  # letters of a name, so that a legend has fewer columns
RING = {"strokeWidth": 2, "opacity": 1, "color": VERMILLION}  # around the recommended checkpoint

LETTER, LINE = 6.3, 13  # pixels that text of 12 pixels takes
PANEL = 300  # pixels of a panel where it is narrowest, on a phone
LABEL_PLACES = (  # align, baseline, dx, dy
    *(("left", "bottom", 8, -3), ("right", "bottom", -8, -3), ("left", "top", 8, 3)),
    *(("right", "top", -8, 3), ("center", "bottom", 0, -8), ("center", "top", 0, 8)),
)
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


@dataclass(frozen=True)
class Figure:
    """One figure of a report; several with the same key are choices in one place."""

    key: str  # the anchor on the page, the file's name in print
    title: str
    spec: Spec
    caption: str
    label: str = ""  # its name among the choices
    inches: float = PAGE_INCHES  # its width in print


def config(font: str) -> Spec:
    """The Vega-Lite configuration that all figures share."""
    fonts = {"labelFont": font, "titleFont": font, "labelFontSize": 12, "titleColor": MUTED}
    lines = {"gridColor": GRID, "domainColor": GREY, "tickColor": GREY, "tickCount": 6}
    title = {"titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 8}
    return {
        "font": font,
        "view": {"stroke": None},
        "axis": {**fonts, **lines, **title, "labelColor": MUTED},
        "axisX": {"grid": False},
        "legend": {**fonts, "labelColor": INK, "symbolSize": 90, "labelLimit": 240},
        "title": {"font": font, "color": INK, "fontSize": 14, "anchor": "start", "offset": 10},
    }


def asset(name: str) -> str:
    """A file that the page is made of."""
    return (resources.files("crt") / "assets" / "report" / name).read_text(encoding="utf-8")


@cache
def palette() -> dict[str, str]:
    """Variable → colour of the light page, which print has too."""
    light, _, _ = asset("page.css").partition("}")
    return {f"var(--{name})": color for name, color in re.findall(r"--([\w-]+): (#\w+);", light)}


def render(figure: Figure, format: str) -> bytes:
    """The figure as svg, pdf or png, at its size in print."""
    import vl_convert

    spec = resolve(figure.spec, round(figure.inches * PIXELS_PER_INCH))
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[])
    svg = _renumber_ids(svg)
    if format == "svg":
        return _in_points(svg, "pt").encode()
    if format == "pdf":
        return vl_convert.svg_to_pdf(_in_points(svg))
    return vl_convert.svg_to_png(_in_points(svg), ppi=PNG_PIXELS_PER_INCH)


def _renumber_ids(svg: str) -> str:
    """Ids by their order: Vega counts on from picture to picture, but equal ones shall be equal."""
    numbers: dict[str, int] = {}

    def renumber(match: re.Match[str]) -> str:
        return f"{match[1]}{match[2]}{numbers.setdefault(match[2] + match[3], len(numbers))}"

    return re.sub(r'(id="|url\(#)(clip|gradient_)(\d+)', renumber, svg)


def _in_points(svg: str, unit: str = "") -> str:
    """The same picture with its size in points, 72 to the inch."""

    def scale(match: re.Match[str]) -> str:
        width, height = (float(pixels) * 72 / PIXELS_PER_INCH for pixels in match.groups())
        return f'width="{width:.2f}{unit}" height="{height:.2f}{unit}"'

    return re.sub(r'width="([\d.]+)" height="([\d.]+)"', scale, svg, count=1)


def resolve(spec: Spec, width: int) -> Spec:
    """The specification for print at a width in pixels; charts.js does the same for the page."""

    def visit(value: Any, key: str = "") -> Any:
        if key == "data":
            return value
        if isinstance(value, dict):
            return {k: visit(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [visit(v) for v in value]
        if isinstance(value, str) and value.startswith("var(--"):
            return palette().get(value, value)
        if key == "width" and isinstance(value, str) and "/" in value:
            return panel_width(spec, value, width)
        if key == "columns" and isinstance(value, str):
            return int(value.split(" or ")[width >= NARROW])
        return value

    shared = {**config(PRINT_FONT), **spec.get("config", {})}
    resolved = visit({**spec, "config": shared, "background": PAPER})
    if "concat" in spec and width < NARROW:
        resolved["columns"] = 1
    if isinstance(resolved.get("width"), int):
        resolved["autosize"] = {"type": "fit-x", "contains": "padding"}
    return resolved


def panel_width(spec: Spec, share: str, width: int) -> int:
    """Pixels of a panel that takes this share of the width, beside its axes."""
    part, parts = map(int, share.split("/"))
    if "concat" not in spec:
        return width - 66 if "vconcat" in spec else width
    if width < NARROW:
        return max(160, width - 44)
    return max(160, (width - 76 * (spec["columns"] - 1) - 44) * part // parts)


def markers(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Name → colour and shape: the base first in ink, then CRT's methods, then others by name.

    The same names look the same in every figure. Each time that the colours begin anew the shapes
    are shifted by one, so that nothing depends on colour alone.
    """
    unique = set(names)
    others = sorted(unique - {"base"}, key=lambda name: (not name.startswith("crt"), name))
    base = {"base": (INK, SHAPES[0])} if "base" in unique else {}
    return base | {
        name: (CURVES[i % len(CURVES)], SHAPES[(i + i // len(CURVES)) % len(SHAPES)])
        for i, name in enumerate(others)
    }


def color_and_shape(field: str, names: Iterable[str], legend: bool = True) -> tuple[Spec, Spec]:
    """Two encodings of a name, which look the same in every figure."""
    by_name = markers(names)
    shown = LEGEND if legend and len(by_name) > 1 else None
    if shown and max(map(len, by_name)) > LONG:
        shown = {**shown, "columns": "1 or 3"}
    colors, shapes = zip(*by_name.values(), strict=True)
    return nominal(field, by_name, colors, shown), nominal(field, by_name, shapes, shown)


def nominal(field: str, names: Iterable[str], values: Iterable[Any], legend: Spec | None) -> Spec:
    """An encoding of names by these values."""
    scale = {"domain": list(names), "range": list(values)}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}


def axis(field: str, title: str | None = None, **scale: Any) -> Spec:
    """A quantitative axis, which need not begin at 0."""
    scale = {"zero": False, "nice": "domain" not in scale, **scale}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale}


def mark(type: str, **properties: Any) -> Spec:
    """A mark that ends where its panel ends."""
    return {"type": type, "clip": True, **properties}


def layer(mark: Spec, data: Data | None = None, **channels: Any) -> Spec:
    """A mark with its encodings, each a definition or a field's name."""
    encoding = {k: {"field": v} if isinstance(v, str) else v for k, v in channels.items()}
    own = {} if data is None else {"data": {"values": list(data)}}
    return {**own, "mark": mark, "encoding": encoding}


def panel(height: Any, layers: Sequence[Spec], data: Data = (), **channels: Any) -> Spec:
    """Layers on common axes, as wide as their place."""
    own = {"data": {"values": list(data)}} if data else {}
    return {"width": "1/1", "height": height, **own, "encoding": channels, "layer": list(layers)}


def across(y: Spec | str, dash: Sequence[int] = (4, 4), data: Data | None = None) -> Spec:
    """A horizontal line over the whole panel."""
    ends = {"x": {"value": 0}, "x2": {"value": "width"}, "color": {"value": MUTED}}
    return layer(mark("rule", color=MUTED, strokeDash=list(dash)), data, y=y, **ends)


def zoomable(name: str, points: Spec) -> Spec:
    """Pinch or Ctrl + wheel zooms, dragging pans, a double click resets."""
    select = {"type": "interval", "zoom": ZOOM}
    return {**points, "params": [{"name": name, "select": select, "bind": "scales"}]}


def tooltip(fields: Mapping[str, str]) -> list[Spec]:
    """Title → field, with a number's format after a colon: `len:.1f`."""
    entries: list[Spec] = []
    for title, field in fields.items():
        name, _, format = field.partition(":")
        kind = {"type": "quantitative", "format": format} if format else {"type": "nominal"}
        entries.append({"field": name, "title": title, **kind})
    return entries


def side_by_side(panels: Sequence[Spec], columns: int = 2) -> Spec:
    """Panels in a grid; where it is narrow they stand below each other."""
    return {
        "concat": [{**panel, "width": f"1/{columns}"} for panel in panels],
        "columns": columns,
        "bounds": "flush",  # does not count axes: the spacing has room for them
        "spacing": {"row": 84, "column": 76},
        "config": {"axisY": {"labelFlush": True}},  # a label above a panel would move its title
    }


def place_labels(named: Data, points: Data, x: Spec, y: Spec, height: float) -> list[Spec]:
    """Labels that cover no point and no other label; a name without such a place is left out.

    `x` and `y` are the axes, whose domains are fixed; the panel's height is in pixels.
    """

    def pixels(row: Mapping[str, Any]) -> tuple[float, float]:
        (left, right), (low, high) = x["scale"]["domain"], y["scale"]["domain"]
        up = (row[y["field"]] - low) / (high - low)
        return PANEL * (row[x["field"]] - left) / (right - left), (1 - up) * height

    taken: list[Box] = [(a - 5, b - 5, a + 5, b + 5) for a, b in map(pixels, points)]
    labels: list[Spec] = []
    for row in named:
        away = 1.7 if row.get("recommended") else 1.0  # from the ring around the point
        before = [p for p in points if p["group"] == row["group"] and p["order"] < row["order"]]
        from_right = bool(before) and before[-1]["len"] > row["len"]  # a line comes from there
        for align, baseline, dx, dy in sorted(LABEL_PLACES, key=lambda p: from_right and p[2] > 0):
            left, top = pixels(row)
            width = LETTER * len(row["label"])
            left += away * dx - {"left": 0, "center": width / 2, "right": width}[align]
            top += away * dy - (LINE if baseline == "bottom" else 0)
            box = (left, top, left + width, top + LINE)
            inside = left >= 0 and top >= 0 and box[2] <= PANEL and box[3] <= height
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                place = {"align": align, "baseline": baseline, "dx": away * dx, "dy": away * dy}
                labels.append({**row, **place})
                break
    return labels


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def label_layers(labels: Data) -> list[Spec]:
    """Layers with the labels, each on a patch of paper so that no line crosses it."""
    place = {name: {"expr": f"datum.{name}"} for name in ("align", "baseline", "dx", "dy")}
    text = {"type": "text", "fontSize": 12, **place}
    halo = {**text, "stroke": PAPER, "strokeWidth": 4, "fill": PAPER}
    return [
        layer(mark, labels, text="label", color={"value": INK})
        for mark in (halo, {**text, "fill": INK})
    ]
