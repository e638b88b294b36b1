"""Redundancy against length: how dense the text is that is left."""

from collections.abc import Sequence

from crt.reporting.figure_rows import checkpoint_groups, group_rows, method_rows
from crt.reporting.figures.labels import label_layers, place_labels
from crt.reporting.load import ReportData, Row
from crt.reporting.style import (
    COLUMN_INCHES,
    PAGE_INCHES,
    Figure,
    Spec,
    axis,
    color_and_shape,
    tooltip,
    zoom,
)

KEY, TITLE = "redundancy", "Redundancy against length"
CAPTION = (
    "R_zip is the size of a response after gzip over its size before: the lower, the more it "
    "repeats itself. Very short texts do not compress, so compare at like lengths."
)
KINDS = {"r_zip": "all responses", "r_zip_correct": "correct", "r_zip_wrong": "wrong"}
DASHES = {"all responses": [1, 0], "correct": [6, 3], "wrong": [2, 3]}
FEW = 3  # curves up to which correct and wrong ones are shown apart
MANY = 6  # curves from which the legend takes the whole width
HEIGHT, INCHES = 300, 1.25 * COLUMN_INCHES


def figures(data: ReportData) -> list[Figure]:
    """One figure of all groups or methods."""
    found = rows(data)
    many = len({row["curve"] for row in found}) > MANY
    inches = PAGE_INCHES if many else INCHES
    return [Figure(KEY, TITLE, spec(found), CAPTION, "", inches)] if len(found) > 1 else []


def rows(data: ReportData) -> list[Row]:
    """A row per evaluation or method and kind of response."""
    found = method_rows(data)
    if not found:
        found = [row for group in checkpoint_groups(data) for row in group_rows(group)]
    few = len({row["curve"] for row in found}) <= FEW
    kinds = KINDS if few else {"r_zip": "all responses"}
    kept = ("curve", "group", "name", "order", "len", "is_base")
    return [
        {**{key: row[key] for key in kept}, "kind": kind, "value": row[name], "label": row["name"]}
        for name, kind in kinds.items()
        for row in found
        if row.get(name) is not None and row["len"] is not None
    ]


def spec(found: Sequence[Row]) -> Spec:
    """One line per curve and kind, in the order of training."""
    curves = list(dict.fromkeys(row["curve"] for row in found))
    kinds = list(dict.fromkeys(row["kind"] for row in found))
    dash = {"domain": kinds, "range": [DASHES[kind] for kind in kinds]}
    legend = {"orient": "top", "title": None, "symbolSize": 500} if len(kinds) > 1 else None
    fields = {"": "name", "of": "kind", "tokens": "len:.1f", "R_zip": "value:.3f"}
    marker = color_and_shape("curve", curves)
    lines = {
        "detail": [{"field": "group"}],
        "order": {"field": "order"},
        "strokeDash": {"field": "kind", "type": "nominal", "scale": dash, "legend": legend},
    }
    x_domain, y_domain = (_domain([row[name] for row in found]) for name in ("len", "value"))
    fixed = {"nice": False, "zero": False}
    return {
        "width": "1/1",
        "height": HEIGHT,
        "data": {"values": list(found)},
        "encoding": {
            "x": axis("len", "tokens per response", scale={**fixed, "domain": x_domain}),
            "y": axis("value", "R_zip", scale={**fixed, "domain": y_domain}),
            "color": marker["color"],
        },
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.6, "clip": True}, "encoding": lines},
            *label_layers(_labels(found, x_domain, y_domain)),
            {
                "params": zoom("redundancy"),
                "mark": {"type": "point", "filled": True, "size": 60, "clip": True},
                "encoding": {"shape": marker["shape"], "tooltip": tooltip(fields)},
            },
        ],
    }


def _domain(values: Sequence[float]) -> list[float]:
    margin = 0.12 * (max(values) - min(values)) or 0.1
    return [min(values) - margin, max(values) + margin]


def _labels(found: Sequence[Row], x_domain: list[float], y_domain: list[float]) -> list[Row]:
    """Names of each curve's ends, on the line of all responses."""
    whole = [row for row in found if row["kind"] == KINDS["r_zip"]]
    last = {row["group"]: row for row in whole}
    named = [row for row in whole if row["is_base"] or row is last[row["group"]]]
    return place_labels(named, found, "value", x_domain, y_domain, HEIGHT)
