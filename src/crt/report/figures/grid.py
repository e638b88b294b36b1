"""A grid of questions and checkpoints: colour is length, a circle's fill is accuracy."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crt.algorithm.batch import Array
from crt.report.figures import style
from crt.report.figures.vega import Spec, tooltip
from crt.report.palette import LENGTHS
from crt.report.sources import LineUp, Point, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL, WIDE = 30, 46  # pixels
SNIPPET = 34  # characters of a question beside its row
CIRCLE = math.pi * 8**2  # square pixels


@dataclass(frozen=True)
class Course:
    """Each problem over the points of a line-up: (C, P) arrays, NaN where it is not known."""

    columns: tuple[str, ...]
    keys: tuple[tuple[str, str], ...]  # data set and problem
    accuracy: Array  # in [0, 1]
    length: Array  # tokens


def course(lineup: LineUp) -> Course:
    """All data sets one after the other, the problems in the base's order."""
    base = lineup.points[0].evaluation.tallies
    keys = tuple((name, each) for name, tally in base.items() for each in tally.ids)
    accuracy, length = [], []
    for point in lineup.points:
        parts = [point.evaluation.tallies[name].select(tally.ids) for name, tally in base.items()]
        right = [np.where(p.graded > 0, p.correct / np.maximum(p.graded, 1), np.nan) for p in parts]
        accuracy.append(np.concatenate(right))
        length.append(np.concatenate([part.tokens / part.rollouts for part in parts]))
    columns = tuple(_short(point, lineup.is_series) for point in lineup.points)
    return Course(columns, keys, np.array(accuracy), np.array(length))


def _short(point: Point, is_series: bool) -> str:
    return str(point.step) if is_series and point.step else point.name


def cells(
    found: Course, chosen: Sequence[int], questions: dict[tuple[str, str], str], panel: str = ""
) -> Iterator[Row]:
    """A row for each chosen problem and checkpoint."""
    for number in chosen:
        data, problem = found.keys[number]
        text = " ".join(questions.get((data, problem), problem).split())
        label = text if len(text) <= SNIPPET else f"{text[: SNIPPET - 1]}…"
        for place, column in enumerate(found.columns):
            acc, tokens = found.accuracy[place, number], found.length[place, number]
            if np.isnan(acc) or np.isnan(tokens):
                continue
            yield {
                **{"panel": panel, "question": number, "column": column, "order": place},
                **{"label": f"{number + 1} · {label}", "text": text[:200]},
                **{"accuracy": float(100 * acc), "tokens": float(tokens)},
                "to": float(2 * math.pi * acc),
            }


def spec(found: Sequence[Row]) -> Spec:
    """One panel; the page opens a question that is clicked on."""
    columns = _columns(found)
    labels = list(dict.fromkeys(row["label"] for row in found))
    told = {"": "text", "checkpoint": "column", "accuracy %": "accuracy:.0f"}
    told |= {"tokens": "tokens:.0f"}
    turned = -35 if max(map(len, columns)) > 6 else 0
    axis = {"orient": "top", "labelAngle": turned, "domain": False, "ticks": False}
    tight = {"paddingInner": 0.07, "paddingOuter": 0}
    plain = {"domain": False, "ticks": False, "labelLimit": 260, "labelPadding": 8}
    color = {"field": "tokens", "type": "quantitative", "title": "tokens"}
    circle = {"type": "point", "shape": "circle", "size": CIRCLE, "cursor": "pointer"}
    return {
        "width": {"step": WIDE if len(columns) <= 12 else CELL},
        "height": {"step": CELL},
        "data": {"values": list(found)},
        "encoding": {
            "x": {"field": "column", "sort": columns, "title": None, "axis": axis, "scale": tight},
            "y": {"field": "label", "sort": labels, "title": None, "axis": plain, "scale": tight},
            "tooltip": tooltip(told),  # for the field and the circle on it
        },
        "layer": [
            {
                "mark": {"type": "rect", "cornerRadius": 3, "cursor": "pointer"},
                "encoding": {
                    "color": {
                        **color,
                        "scale": {"scheme": LENGTHS, "zero": False},
                        "legend": {"orient": "bottom", "gradientLength": 180},
                    },
                },
            },
            {
                "mark": {
                    **circle,
                    "filled": True,
                    "fill": "#000000",
                    "fillOpacity": 0.32,
                    "opacity": 1,
                }
            },
            {
                "mark": {"type": "arc", "radius": 8, "color": "#ffffff", "cursor": "pointer"},
                "encoding": {
                    "theta": {"field": "to", "type": "quantitative", "scale": None, "stack": None},
                    "theta2": {"datum": 0},
                },
            },
            {"mark": {**circle, "stroke": "#10151a", "strokeWidth": 1.2, "opacity": 0.9}},
        ],
    }


def _columns(found: Sequence[Row]) -> list[str]:
    return [name for _, name in sorted({(row["order"], row["column"]) for row in found})]


@style.in_print
def drawn(found: Sequence[Row]) -> "Figure":
    """Panels under each other, for print; questions by their number."""
    panels = list(dict.fromkeys(row["panel"] for row in found))
    sizes = [len({r["label"] for r in found if r["panel"] == panel}) for panel in panels]
    columns = _columns(found)
    height = 0.9 + 0.26 * sum(sizes) + 0.25 * len(panels)
    figure, grid = style.axes(
        len(panels), 1, 1.5 + 0.36 * len(columns), height, gridspec_kw={"height_ratios": sizes}
    )
    tokens = [row["tokens"] for row in found]
    picture: Any = None
    for (axis,), panel in zip(grid, panels, strict=True):
        part = [row for row in found if row["panel"] == panel]
        picture = _draw_panel(axis, part, columns, (min(tokens), max(tokens)))
        axis.set_title(panel)
    figure.colorbar(picture, ax=grid[:, 0].tolist(), label="tokens", shrink=0.8, pad=0.02)
    return figure


def _draw_panel(axis: Any, part: list[Row], columns: list[str], span: tuple[float, float]) -> Any:
    from matplotlib.patches import Circle, Wedge

    labels = list(dict.fromkeys(row["label"] for row in part))
    values = np.full((len(labels), len(columns)), np.nan)
    for row in part:
        values[labels.index(row["label"]), columns.index(row["column"])] = row["tokens"]
    picture = axis.imshow(values, cmap=LENGTHS, vmin=span[0], vmax=span[1], aspect="equal")
    for row in part:
        spot = (columns.index(row["column"]), labels.index(row["label"]))
        axis.add_patch(Circle(spot, 0.28, facecolor="#00000052", edgecolor="none"))
        share = 3.6 * row["accuracy"]  # degrees, clockwise from the top: rows go down
        axis.add_patch(Wedge(spot, 0.28, -90, share - 90, color="#ffffff", linewidth=0))
        axis.add_patch(Circle(spot, 0.28, fill=False, edgecolor="#10151a", linewidth=0.7))
    axis.set_xticks(range(len(columns)), columns, rotation=35, ha="right")
    axis.set_yticks(range(len(labels)), [label.partition(" ")[0] for label in labels])
    axis.grid(visible=False)
    axis.tick_params(length=0)
    return picture
