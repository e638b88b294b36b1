"""Stability: of the problems that got shorter, how many lost, kept and gained accuracy."""

from collections.abc import Iterator, Sequence

from crt.reporting import style
from crt.reporting.load import ReportData, Row, table_rows
from crt.reporting.style import Figure, Spec, axis, layer, mark, tooltip

CAPTION = (
    "Accuracies are means of a few rollouts: two evaluations of one model differ by chance, "
    "with AD about as large as AI. Read AD beside AI."
)
KINDS = {"ad": "accuracy fell (AD)", "ap": "kept (AP)", "ai": "rose (AI)"}
COLORS = (style.VERMILLION, style.GREY, style.BLUE)
NUMBER = 34  # pixels that a number on its bar takes
FIELDS = {
    **{"": "name", "of the shortened": "kind", "%": "share:.1f", "from": "low:.1f"},
    **{"to": "high:.1f", "problems that got shorter": "shortened"},
}


def figures(data: ReportData) -> list[Figure]:
    rows = list(make_rows(data))
    inches = 6.0 if all(len(row["name"]) <= 20 for row in rows) else style.PAGE_INCHES
    title = "Stability where responses got shorter"
    return [Figure("stability", title, spec(rows), CAPTION, inches=inches)] if rows else []


def make_rows(data: ReportData) -> Iterator[Row]:
    """Three rows per evaluation but the base, or per method: the parts of its bar."""
    for row in table_rows(data):
        if any(row[key] is None for key in KINDS):
            continue
        count = row.get("shortened")
        name = f"{row['name']} (n = {count})" if count else row["name"]
        end = 0.0
        for key, kind in KINDS.items():
            start, share = end, row[key]
            end = start + share
            yield {
                **{"name": name, "kind": kind, "shortened": count, "label": f"{share:.0f} %"},
                **{"share": share, "low": row[f"{key}_low"], "high": row[f"{key}_high"]},
                **{"start": start, "end": end, "middle": (start + end) / 2},
            }


def spec(rows: Sequence[Row]) -> Spec:
    """One bar of 100 % per name."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    y = {"field": "name", "type": "nominal", "sort": names, "title": None}
    x = axis("start", "% of the problems that got shorter", domain=[0, 100])
    color = style.nominal("kind", KINDS.values(), COLORS, style.LEGEND)
    on_grey = {"test": f"datum.kind === '{KINDS['ap']}'", "value": style.INK}
    text_color = {"condition": on_grey, "value": style.ON_COLOR}
    number = mark("text", fontSize=12, fontWeight=600)
    fits = [{"filter": f"datum.share * width / 100 >= {NUMBER}"}]
    layers = [
        layer(mark("bar", height={"band": 0.62}), x2="end", color=color),
        {"transform": fits} | layer(number, x="middle", text="label", color=text_color),
    ]
    hovered = tooltip(FIELDS)  # for the bars and the numbers on them
    return style.panel(46 * len(names), layers, rows, x=x, y=y, tooltip=hovered)
