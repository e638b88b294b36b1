"""Redundancy against length: how dense the text is that is left."""

from collections.abc import Sequence

from crt.reporting import style
from crt.reporting.load import ReportData, Row, checkpoint_groups, group_rows, method_rows
from crt.reporting.style import Figure, Spec, axis, layer, mark, tooltip

CAPTION = (
    "R_zip is the size of a response after gzip over its size before: the lower, the more it "
    "repeats itself. Very short texts do not compress, so compare at like lengths."
)
KINDS = {"r_zip": "all responses", "r_zip_correct": "correct", "r_zip_wrong": "wrong"}
DASHES = {"all responses": [1, 0], "correct": [6, 3], "wrong": [2, 3]}
FEW = 3  # curves up to which correct and wrong ones are shown apart
MANY = 6  # curves from which the legend takes the whole width
HEIGHT = 300
FIELDS = {"": "label", "of": "kind", "tokens": "len:.1f", "R_zip": "value:.3f"}


def figures(data: ReportData) -> list[Figure]:
    """One figure of all groups or methods."""
    rows = make_rows(data)
    if len(rows) < 2:
        return []
    many = len({row["curve"] for row in rows}) > MANY
    inches = style.PAGE_INCHES if many else 1.25 * style.COLUMN_INCHES
    return [Figure("redundancy", "Redundancy against length", spec(rows), CAPTION, inches=inches)]


def make_rows(data: ReportData) -> list[Row]:
    """A row per evaluation or method and kind of response."""
    groups = checkpoint_groups(data)
    rows = method_rows(data) or [row for group in groups for row in group_rows(group)]
    few = len({row["curve"] for row in rows}) <= FEW
    return [
        {**row, "kind": kind, "value": row[name], "label": row["name"]}
        for name, kind in KINDS.items()
        for row in rows
        if (few or name == "r_zip") and row.get(name) is not None and row["len"] is not None
    ]


def spec(rows: Sequence[Row]) -> Spec:
    """One line per curve and kind, in the order of training."""
    kept = ("curve", "group", "order", "len", "is_base", "kind", "value", "label")
    rows = [{key: row[key] for key in kept} for row in rows]
    color, shape = style.color_and_shape("curve", [row["curve"] for row in rows])
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    legend = {"orient": "top", "title": None, "symbolSize": 500} if len(kinds) > 1 else None
    dash = style.nominal("kind", kinds, [DASHES[kind] for kind in kinds], legend)
    x = axis("len", "tokens per response", domain=_domain([row["len"] for row in rows]))
    y = axis("value", "R_zip", domain=_domain([row["value"] for row in rows]))
    whole = [row for row in rows if row["kind"] == KINDS["r_zip"]]
    last = {row["group"]: row for row in whole}
    named = [row for row in whole if row["is_base"] or row is last[row["group"]]]
    dots = layer(mark("point", filled=True, size=60), shape=shape, tooltip=tooltip(FIELDS))
    layers = [
        layer(mark("line", strokeWidth=1.6), detail="group", order="order", strokeDash=dash),
        *style.label_layers(style.place_labels(named, rows, x, y, HEIGHT)),
        style.zoomable("redundancy", dots),
    ]
    return style.panel(HEIGHT, layers, rows, x=x, y=y, color=color)


def _domain(values: Sequence[float]) -> list[float]:
    margin = 0.2 * (max(values) - min(values)) or 0.1
    return [min(values) - margin, max(values) + margin]
