"""The look of every figure and their one renderer.

A figure is a plain Vega-Lite specification with two placeholders. Colours are variables of the
palette (`var(--blue)`): the page's style sheet defines them for light and dark. A width may be a
share of the figure's place ("1/2"). charts.js fills in widths on the page; `resolve` fills in both
for print.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Spec = dict[str, Any]

# Okabe and Ito's colours, which differ with any kind of colour vision.
LIGHT = {
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "ink": "#1B2127",
    "muted": "#5F6973",
    "grey": "#B8C0C8",
    "grid": "#E4E8EC",
    "paper": "#FFFFFF",
    "on-color": "#FFFFFF",  # text on a coloured bar
}
DARK = {
    **LIGHT,
    "blue": "#4BA3E3",
    "vermillion": "#F0803C",
    "green": "#2FBF94",
    "purple": "#DB94BD",
    "ink": "#E8ECEF",
    "muted": "#9AA5AF",
    "grey": "#5C6670",
    "grid": "#2C333A",
    "paper": "#161B20",
    "on-color": "#10151A",
}
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = SERIES = tuple(
    f"var(--{name})" for name in ("blue", "vermillion", "green", "purple", "orange", "sky")
)
INK, MUTED, GREY, GRID, PAPER, ON_COLOR = (
    f"var(--{name})" for name in ("ink", "muted", "grey", "grid", "paper", "on-color")
)
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
    fonts = {"labelFont": font, "titleFont": font}
    return {
        "font": font,
        "view": {"stroke": None},
        "axis": {
            **fonts,
            **{"labelColor": MUTED, "labelFontSize": 12, "titleColor": MUTED},
            **{"titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 8},
            **{"gridColor": GRID, "domainColor": GREY, "tickColor": GREY, "tickCount": 6},
        },
        "axisX": {"grid": False},
        "legend": {
            **fonts,
            **{"labelColor": INK, "titleColor": MUTED, "labelFontSize": 13},
            **{"symbolSize": 90, "labelLimit": 240},
        },
        "title": {"font": font, "color": INK, "fontSize": 14, "anchor": "start", "offset": 10},
    }


def css_variables() -> str:
    """The palette as the page's style sheet needs it."""
    light, dark = (
        " ".join(f"--{name}: {value};" for name, value in palette.items())
        for palette in (LIGHT, DARK)
    )
    return f':root {{ {light} }}\n[data-theme="dark"] {{ {dark} }}\n'


def render(figure: Figure, format: str) -> bytes:
    """The figure as svg, pdf or png, at its size in print."""
    import vl_convert

    spec = resolve(figure.spec, figure.inches * PIXELS_PER_INCH)
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
    scaled = [
        f'{name}="{float(pixels) * 72 / PIXELS_PER_INCH:.2f}{unit}"'
        for name, pixels in re.findall(r'(width|height)="([\d.]+)"', svg)[:2]
    ]
    return re.sub(r'width="[\d.]+" height="[\d.]+"', " ".join(scaled), svg, count=1)


def resolve(spec: Spec, width: float) -> Spec:
    """The specification for print at a width in pixels; charts.js does the same for the page."""
    narrow = width < NARROW

    def visit(value: Any, key: str = "") -> Any:
        if key == "data":
            return value
        if isinstance(value, dict):
            return {k: visit(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [visit(v) for v in value]
        if isinstance(value, str) and value.startswith("var(--"):
            return LIGHT.get(value[6:-1], value)
        if key == "width" and isinstance(value, str) and "/" in value:
            return panel_width(spec, value, width)
        return value

    shared = {**config(PRINT_FONT), **spec.get("config", {})}
    found = visit({**spec, "config": shared, "background": PAPER})
    if narrow:
        _set_legend_columns(found, 2)
    if "concat" in spec and narrow:
        found["columns"] = 1
    if isinstance(found.get("width"), int):
        found["autosize"] = {"type": "fit-x", "contains": "padding"}
    return found


def _set_legend_columns(value: Any, columns: int) -> None:
    for key, part in value.items() if isinstance(value, dict) else ():
        if key == "legend" and part and "columns" in part:
            part["columns"] = columns
        elif key != "data":
            for entry in part if isinstance(part, list) else [part]:
                _set_legend_columns(entry, columns)


def panel_width(spec: Spec, share: str, width: float) -> int:
    """Pixels of a panel that takes this share of the width, beside its axes."""
    part, parts = map(int, share.split("/"))
    if "vconcat" in spec:
        return round(width) - 66
    if "concat" not in spec:
        return round(width)
    if width < NARROW:
        return max(160, round(width) - 44)
    return max(160, int((width - 76 * (spec["columns"] - 1) - 44) * part / parts))


class Marker(NamedTuple):
    """How a name is drawn everywhere."""

    color: str
    shape: str


def markers(names: Iterable[str]) -> dict[str, Marker]:
    """Name → marker: the base first in ink, then CRT's methods, then the others by name.

    The same names look the same in every figure. Each time that the colours begin anew the shapes
    are shifted by one, so that nothing depends on colour alone.
    """
    unique = set(names)
    others = sorted(unique - {"base"}, key=lambda name: (not name.startswith("crt"), name))
    found = {
        name: Marker(SERIES[i % len(SERIES)], SHAPES[(i + i // len(SERIES)) % len(SHAPES)])
        for i, name in enumerate(others)
    }
    return {"base": Marker(INK, SHAPES[0]), **found} if "base" in unique else found


def color_and_shape(field: str, names: Sequence[str], legend: bool = True) -> Spec:
    """Encodings of a name by its marker."""
    found = markers(names)
    shown = {"orient": "top", "title": None, "columns": 6, "symbolOpacity": 1}
    base = {"field": field, "type": "nominal"}
    base["legend"] = shown if legend and len(found) > 1 else None
    ranges = {
        "color": [m.color for m in found.values()],
        "shape": [m.shape for m in found.values()],
    }
    return {
        channel: {**base, "scale": {"domain": list(found), "range": values}}
        for channel, values in ranges.items()
    }


def zoom(name: str) -> list[Spec]:
    """Pinch or Ctrl + wheel zooms, dragging pans, a double click resets."""
    return [{"name": name, "select": {"type": "interval", "zoom": ZOOM}, "bind": "scales"}]


def axis(field: str, title: str | None, *, scale: Spec | None = None, **more: Any) -> Spec:
    """A quantitative axis, which need not begin at 0."""
    scale = {"zero": False, "nice": True, **(scale or {})}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, **more}


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
        "concat": list(panels),
        "columns": columns,
        "bounds": "flush",  # does not count axes: the spacing has room for them
        "spacing": {"row": 84, "column": 76},
        "config": {"axisY": {"labelFlush": True}},  # a label above a panel would move its title
    }
