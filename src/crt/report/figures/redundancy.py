"""Redundancy against length: how dense the text is that is left."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crt.report import measured
from crt.report.figures import style
from crt.report.figures.plane import names
from crt.report.figures.vega import Spec, coloured, shaped, tooltip, x_axis, y_axis, zoom
from crt.report.sources import Material, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Redundancy against length"
KINDS = {"r_zip": "all responses", "r_zip_correct": "correct", "r_zip_wrong": "wrong"}
DASHES = {"all responses": [1, 0], "correct": [6, 3], "wrong": [2, 3]}
FEW = 3  # curves up to which correct and wrong ones are shown apart


def rows(material: Material) -> list[Row]:
    """A row for each evaluation or method and kind of response."""
    found = measured.over_seeds(material)
    if not found:
        found = [row for lineup in measured.courses(material) for row in measured.rows(lineup)]
    few = len({row["curve"] for row in found}) <= FEW
    kinds = KINDS if few else {"r_zip": "all responses"}
    return [
        {**{key: row[key] for key in ("curve", "lineup", "name", "order", "len", "is_base")}}
        | {"kind": title, "value": row[name]}
        for name, title in kinds.items()
        for row in found
        if row.get(name) is not None and row["len"] is not None
    ]


def caption(found: Sequence[Row]) -> str:
    """How to read it."""
    return (
        "R_zip is the size of a response after gzip over its size before: the lower, the more it "
        "repeats itself. Very short texts do not compress, so compare at like lengths."
    )


def spec(found: Sequence[Row]) -> Spec:
    """One line a curve and kind, in the order of training."""
    curves = list(dict.fromkeys(row["curve"] for row in found))
    kinds = list(dict.fromkeys(row["kind"] for row in found))
    dash = {"domain": kinds, "range": [DASHES[kind] for kind in kinds]}
    legend = {"orient": "top", "title": None, "symbolSize": 500} if len(kinds) > 1 else None
    told = {"": "name", "of": "kind", "tokens": "len:.1f", "R_zip": "value:.3f"}
    color = coloured("curve", curves)
    lines = {
        "detail": [{"field": "lineup"}],
        "order": {"field": "order"},
        "strokeDash": {"field": "kind", "type": "nominal", "scale": dash, "legend": legend},
    }
    whole = [row for row in found if row["kind"] == KINDS["r_zip"]]
    return {
        "width": "1/1",
        "height": 300,
        "data": {"values": list(found)},
        "encoding": {
            "x": x_axis("len", "tokens a response", scale={"nice": False, "padding": 48}),
            "y": y_axis("value", "R_zip"),
            "color": color,
        },
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.6, "clip": True}, "encoding": lines},
            {
                "params": zoom("redundancy"),
                "mark": {"type": "point", "filled": True, "size": 60, "clip": True},
                "encoding": {"shape": shaped("curve", curves), "tooltip": tooltip(told)},
            },
            *names(whole),
        ],
    }


@style.in_print
def drawn(found: Sequence[Row]) -> "Figure":
    """The same, for print."""
    figure, ((axis,),) = style.axes(1, 1, style.COLUMN, 2.5)
    curves = list(dict.fromkeys(row["curve"] for row in found))
    styles = dict(zip(KINDS.values(), ("-", "--", ":"), strict=True))
    ink = style.ink_of(curves)
    told: set[str] = set()
    for lineup, curve in dict.fromkeys((row["lineup"], row["curve"]) for row in found):
        for kind, line in styles.items():
            part = [r for r in found if r["lineup"] == lineup and r["kind"] == kind]
            part.sort(key=lambda row: row["order"])
            label = f"{curve}, {kind}" if len(curves) > 1 else kind
            points = [r["len"] for r in part], [r["value"] for r in part]
            if part:
                named = {"label": label} if label not in told else {}
                axis.plot(*points, line, marker=ink[curve][1], color=ink[curve][0], **named)
                told.add(label)
    axis.set(xlabel="tokens a response", ylabel="R_zip")
    style.legend_above(figure, axis, 3)
    return figure
