"""Sensitivity: accuracy, tokens and AES2 for every value of every setting that was varied."""

from collections.abc import Sequence
from statistics import fmean
from textwrap import fill

from crt.reporting import style
from crt.reporting.load import ReportData, Row, sensitivity_rows
from crt.reporting.style import Figure, Spec, axis, layer, mark, tooltip

PANELS = {"acc": "accuracy, %", "len": "tokens", "aes2": "AES2"}
OWN, OTHER = "the recipe's own value", "another value"


def figures(data: ReportData) -> list[Figure]:
    """One figure of all settings."""
    rows = make_rows(data)
    if len(rows) < 2:
        return []
    caption = (
        "One setting at a time, the others as the recipe has them. Points are means over up to "
        f"{max(row['seeds'] for row in rows)} seeds, bars their range; the scale of a metric is "
        "the same for all settings. A diamond is the recipe's own value. The dashed line is the "
        "base's accuracy, and its AES2, which is 0."
    )
    return [Figure("sensitivity", "What each setting does", spec(rows), caption)]


def make_rows(data: ReportData) -> list[Row]:
    """A row per setting and value; long words are broken into lines."""
    return [
        {
            **row,
            "shown": fill(row["value"].replace("_", " "), 10),
            "whose": OWN if row["own"] else OTHER,
        }
        for row in sensitivity_rows(data.sensitivity)
    ]


def spec(rows: Sequence[Row]) -> Spec:
    """A line of three panels per setting."""
    panels: list[Spec] = []
    for setting in dict.fromkeys(row["setting"] for row in rows):
        part = [row for row in rows if row["setting"] == setting]
        panels += [_panel(part, name, rows) for name in PANELS]
    return style.side_by_side(panels, len(PANELS))


def domain(rows: Sequence[Row], name: str) -> list[float]:
    """From the lowest to the highest of all settings, with a margin, and the dashed line."""
    ends = [row[f"{name}{end}"] for row in rows for end in ("_low", "_high")]
    values = [value for value in [*ends, *_reference(rows, name)] if value is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = 0.08 * (high - low) or 0.5
    return [low - margin, high + margin]


def _reference(rows: Sequence[Row], name: str) -> list[float]:
    """Where the dashed line stands: the base's value, if the panel has one."""
    if name == "aes2":
        return [0.0]
    accuracies = [row["base_acc"] for row in rows if row["base_acc"] is not None]
    return [fmean(accuracies)] if name == "acc" and accuracies else []


def _panel(part: list[Row], name: str, every: Sequence[Row]) -> Spec:
    """One metric of one setting, on the scale of every setting."""
    labels = {"labelAngle": 0, "labelExpr": "split(datum.label, '\\n')"}
    order = [row["shown"] for row in part]
    x = {"field": "shown", "type": "nominal", "sort": order, "title": None, "axis": labels}
    y = axis(name, domain=domain(every, name))
    fields = {"": "value", "accuracy %": "acc:.2f", "tokens": "len:.1f", "AES2": "aes2:+.3f"}
    fields |= {"from": f"{name}_low:.3f", "to": f"{name}_high:.3f", "seeds": "seeds"}
    fields |= {"kept the guard": "feasible"}
    color, shape = (
        style.nominal("whose", (OWN, OTHER), values, style.LEGEND)
        for values in ((style.VERMILLION, style.BLUE), ("diamond", "circle"))
    )
    line = layer(mark("line", color=style.GREY, strokeWidth=1.5))
    dots = mark("point", filled=True, size=90, opacity=1)
    layers = [
        *(style.across("at", data=[{"at": value}]) for value in _reference(every, name)),
        *([line] if all(row["numeric"] for row in part) else []),
        layer(mark("rule", strokeWidth=2), y=f"{name}_low", y2=f"{name}_high", color=color),
        layer(dots, color=color, shape=shape, tooltip=tooltip(fields)),
    ]
    title = f"{part[0]['title']} · {PANELS[name]}"
    return {"title": title, **style.panel(150, layers, part, x=x, y=y)}
