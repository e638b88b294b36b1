"""Stability: of the problems that got shorter, how many lost, kept and gained accuracy."""

from collections.abc import Sequence

from crt.reporting.figure_rows import group_rows, main_groups, method_rows
from crt.reporting.load import ReportData, Row
from crt.reporting.style import (
    BLUE,
    GREY,
    INK,
    ON_COLOR,
    PAGE_INCHES,
    VERMILLION,
    Figure,
    Spec,
    tooltip,
)

KEY, TITLE = "stability", "Stability where responses got shorter"
CAPTION = (
    "Accuracies are means of a few rollouts: two evaluations of one model differ by chance, "
    "with AD about as large as AI. Read AD beside AI."
)
KINDS = {
    "ad": ("accuracy fell (AD)", VERMILLION),
    "ap": ("kept (AP)", GREY),
    "ai": ("rose (AI)", BLUE),
}
NUMBER = 30  # pixels that a number on its bar takes


def figures(data: ReportData) -> list[Figure]:
    """One figure of all evaluations or methods."""
    found = rows(data)
    longest = max((len(row["name"]) for row in found), default=0)
    inches = 5.0 if longest <= 20 else PAGE_INCHES
    return [Figure(KEY, TITLE, spec(found), CAPTION, "", inches)] if found else []


def rows(data: ReportData) -> list[Row]:
    """Three rows per evaluation but the base, or per method."""
    found = method_rows(data)
    if not found:
        groups = main_groups(data)
        found = [row for group in groups for row in group_rows(group)]
        if len(groups) > 1:
            found = [{**row, "name": f"{row['group']} · {row['name']}"} for row in found]
    known = [row for row in found if all(row[key] is not None for key in KINDS)]
    return [part for row in known for part in _parts(row)]


def _parts(row: Row) -> list[Row]:
    parts: list[Row] = []
    start = 0.0
    count = row.get("shortened")
    for key, (kind, _) in KINDS.items():
        share = row[key]
        parts.append(
            {
                "name": f"{row['name']} (n = {count})" if count else row["name"],
                "kind": kind,
                **{"share": share, "low": row[f"{key}_low"], "high": row[f"{key}_high"]},
                **{"start": start, "end": start + share, "middle": start + share / 2},
                "label": f"{share:.0f} %",
                "shortened": count,
            }
        )
        start += share
    return parts


def spec(found: Sequence[Row]) -> Spec:
    """One bar of 100 % per name."""
    names = list(dict.fromkeys(row["name"] for row in found))
    kinds, colors = zip(*KINDS.values(), strict=True)
    fields = {"": "name", "of the shortened": "kind", "%": "share:.1f", "from": "low:.1f"}
    fields |= {"to": "high:.1f", "problems that got shorter": "shortened"}
    x = {"type": "quantitative", "scale": {"domain": [0, 100]}}
    return {
        "width": "1/1",
        "height": 46 * len(names),
        "data": {"values": list(found)},
        "encoding": {
            "y": {"field": "name", "type": "nominal", "sort": names, "title": None},
            "tooltip": tooltip(fields),  # for the bars and the numbers on them
        },
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.62}},
                "encoding": {
                    "x": {"field": "start", "title": "% of the problems that got shorter", **x},
                    "x2": {"field": "end"},
                    "color": {
                        **{"field": "kind", "type": "nominal"},
                        "scale": {"domain": list(kinds), "range": list(colors)},
                        "legend": {"orient": "top", "title": None, "columns": 3},
                    },
                },
            },
            {
                "transform": [{"filter": f"datum.share * width / 100 >= {NUMBER}"}],
                "mark": {"type": "text", "fontSize": 12, "fontWeight": 600},
                "encoding": {
                    "x": {"field": "middle", "type": "quantitative"},
                    "text": {"field": "label"},
                    "color": {
                        "condition": {"test": f"datum.kind === '{kinds[1]}'", "value": INK},
                        "value": ON_COLOR,
                    },
                },
            },
        ],
    }
