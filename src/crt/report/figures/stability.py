"""Stability: of the problems that got shorter, how many lost, kept and gained accuracy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crt.report import measured
from crt.report.figures import style
from crt.report.figures.vega import Spec, tooltip
from crt.report.palette import LIGHT
from crt.report.sources import Material, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Stability where responses got shorter"
KINDS = {
    "ad": ("accuracy decreases (AD)", "vermillion"),
    "ap": ("preserved (AP)", "grey"),
    "ai": ("improves (AI)", "blue"),
}
WIDE_ENOUGH, WIDE_IN_PRINT = 4, 9  # % of a bar that has room for its number


def rows(material: Material) -> list[Row]:
    """Three rows for each evaluation but the base, or each method."""
    found = measured.over_seeds(material)
    if not found:
        lineups = measured.tables(material)
        found = [_named(row, len(lineups)) for each in lineups for row in measured.rows(each)]
    return [row for each in found if each["ad"] is not None for row in _parts(each)]


def _named(row: Row, lineups: int) -> Row:
    return row if lineups == 1 else {**row, "name": f"{row['lineup']} · {row['name']}"}


def _parts(row: Row) -> list[Row]:
    parts: list[Row] = []
    start = 0.0
    for order, (key, (title, _)) in enumerate(KINDS.items()):
        share = row[key]
        parts.append(
            {
                "name": f"{row['name']} (n = {n})" if (n := row.get("shortened")) else row["name"],
                "kind": title,
                "order": order,
                "share": share,
                "low": row[f"{key}_low"],
                "high": row[f"{key}_high"],
                "start": start,
                "end": start + share,
                "middle": start + share / 2,
                "label": f"{share:.0f} %",
                "shortened": row.get("shortened"),
            }
        )
        start += share
    return parts


def caption(found: Sequence[Row]) -> str:
    """How to read it."""
    return (
        "Accuracies are means of a few rollouts: two evaluations of one model differ by chance, "
        "with AD about as large as AI. Read AD beside AI."
    )


def spec(found: Sequence[Row]) -> Spec:
    """One bar of 100 % for each name."""
    names = list(dict.fromkeys(row["name"] for row in found))
    titles, colours = zip(*KINDS.values(), strict=True)
    scale = {"domain": list(titles), "range": [f"@{colour}" for colour in colours]}
    told = {"": "name", "of the shortened": "kind", "%": "share:.1f", "from": "low:.1f"}
    told |= {"to": "high:.1f", "problems that got shorter": "shortened"}
    x = {"type": "quantitative", "scale": {"domain": [0, 100]}, "axis": {"grid": False}}
    bar = {"type": "bar", "height": {"band": 0.62}}
    return {
        "width": "1/1",
        "height": 46 * len(names),
        "data": {"values": list(found)},
        "encoding": {
            "y": {"field": "name", "type": "nominal", "sort": names, "title": None},
            "tooltip": tooltip(told),  # for the bars and the numbers on them
        },
        "layer": [
            {
                "mark": bar,
                "encoding": {
                    "x": {"field": "start", "title": "% of the problems that got shorter", **x},
                    "x2": {"field": "end"},
                    "color": {
                        "field": "kind",
                        "type": "nominal",
                        "scale": scale,
                        "legend": {"orient": "top", "title": None},
                    },
                },
            },
            {
                "transform": [{"filter": f"datum.share >= {WIDE_ENOUGH}"}],
                "mark": {"type": "text", "fontSize": 12, "fontWeight": 600},
                "encoding": {
                    "x": {"field": "middle", "type": "quantitative"},
                    "text": {"field": "label"},
                    "color": {
                        "condition": {"test": "datum.order === 1", "value": "@ink"},
                        "value": "@on_colour",
                    },
                },
            },
        ],
    }


@style.in_print
def drawn(found: Sequence[Row]) -> "Figure":
    """The same, for print."""
    names = list(dict.fromkeys(row["name"] for row in found))
    figure, ((axis,),) = style.axes(1, 1, style.COLUMN, 0.9 + 0.3 * len(names))
    for order, (title, colour) in enumerate(KINDS.values()):
        part = [row for row in found if row["order"] == order]
        places = [names.index(row["name"]) for row in part]
        widths, starts = [row["share"] for row in part], [row["start"] for row in part]
        axis.barh(places, widths, 0.62, starts, color=LIGHT[colour], label=title)
        for place, row in zip(places, part, strict=True):
            if row["share"] < WIDE_IN_PRINT:
                continue
            text = "#ffffff" if order != 1 else LIGHT["ink"]
            axis.text(row["middle"], place, row["label"], ha="center", va="center", color=text)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.grid(visible=False)
    axis.set(xlim=(0, 100), xlabel="% of the problems that got shorter")
    style.legend_above(figure, axis, 2)
    return figure
