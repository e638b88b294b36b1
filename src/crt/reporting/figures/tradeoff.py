"""Against length: accuracy, with lines of equal AES and the Pareto front; and redundancy."""

from collections.abc import Sequence

import numpy as np

from crt.algorithm.metrics import AES2, AesWeights, pareto_front
from crt.reporting import style
from crt.reporting.load import (
    ReportData,
    Row,
    checkpoint_groups,
    group_rows,
    main_groups,
    method_rows,
)
from crt.reporting.style import Figure, Spec, axis, layer, mark, tooltip

SCORE, WEIGHTS = "AES2", AES2  # the stricter one: lost accuracy costs ten times what tokens bring
LEVELS = (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75)
HEIGHT, REDUNDANCY_HEIGHT = 360, 300
FEW = 8  # points up to which each has its name
FIELDS = {
    **{"": "label", "accuracy %": "acc:.2f", "from": "acc_low:.2f", "to": "acc_high:.2f"},
    **{"tokens": "len:.1f", "AES1": "aes1:+.3f", "AES2": "aes2:+.3f"},
}
KINDS = {"r_zip": "all responses", "r_zip_correct": "correct", "r_zip_wrong": "wrong"}
DASHES = {"all responses": [1, 0], "correct": [6, 3], "wrong": [2, 3]}
FEW_CURVES, MANY_CURVES = 3, 6  # so few show kinds apart, so many need the whole width
REDUNDANCY_CAPTION = (
    "R_zip is the size of a response after gzip over its size before: the lower, the more it "
    "repeats itself. Very short texts do not compress, so compare at like lengths."
)
Domains = tuple[list[float], list[float]]  # of length and accuracy


def figures(data: ReportData) -> list[Figure]:
    """The methods of a comparison; or the evaluations with most problems, and all checkpoints."""
    methods = method_rows(data)
    if methods:
        return _figure(methods, "", "Bars are the range over seeds.")
    main, every = main_groups(data), checkpoint_groups(data)
    result: list[Figure] = []
    for groups in [main] if main == every else [main, every]:
        rows = [row for group in groups for row in group_rows(group)]
        problems = "; ".join(dict.fromkeys(group.data_label for group in groups))
        label = problems if groups is main else f"every checkpoint: {problems}"
        note = f"Measured on {problems}. Bars are the 95 % interval over problems."
        result += _figure(rows, label, note)
    return result


def _figure(rows: Sequence[Row], label: str, note: str) -> list[Figure]:
    points = with_front(rows)
    if len(points) < 2:
        return []
    has_ring = any(row["recommended"] for row in points)
    caption = (
        f"{note} Up and left is better. Grey lines join points of equal {SCORE} against the base, "
        f"the dashed line is the Pareto front."
        f"{' The ring marks the recommended checkpoint.' if has_ring else ''}"
    )
    many = len({row["curve"] for row in points}) > FEW
    inches = style.PAGE_INCHES if many else 1.25 * style.COLUMN_INCHES
    return [Figure("tradeoff", "Accuracy against length", spec(points), caption, label, inches)]


def with_front(rows: Sequence[Row]) -> list[Row]:
    """The rows that have both numbers, with their labels and whether they are on the front."""
    points = [row for row in rows if row["acc"] is not None and row["len"] is not None]
    front = pareto_front([row["len"] for row in points], [row["acc"] for row in points])
    return [
        {**row, "on_front": bool(on), "label": row["name"] + " (recommended)" * row["recommended"]}
        for row, on in zip(points, front, strict=True)
    ]


def spec(rows: Sequence[Row]) -> Spec:
    """Lines of equal AES below, the front, names, then the points with their intervals."""
    are_methods = "seeds" in rows[0]
    domains = window(rows)
    x = axis("len", "tokens per response", domain=domains[0])
    y = {**axis("acc", "accuracy, %", domain=domains[1]), "axis": {"grid": False}}
    last = {row["group"]: row for row in rows}
    all_named = are_methods or len(rows) <= FEW
    named = [
        row
        for row in sorted(rows, key=lambda row: (not row["recommended"], not row["is_base"]))
        if all_named or row is last[row["group"]] or row["recommended"] or row["is_base"]
    ]
    labels = style.place_labels(named, rows, x, y, HEIGHT)
    legend = not are_methods or len(labels) < len(rows)
    color, shape = style.color_and_shape("curve", [row["curve"] for row in rows], legend)
    front = sorted((row for row in rows if row["on_front"]), key=lambda row: row["len"])
    recommended = [row for row in rows if row["recommended"]]
    trail = mark("line", strokeWidth=1.5, opacity=0.55)
    dots = mark("point", filled=True, size=90, opacity=1)
    layers = [
        *level_layers(rows, LEVELS, domains),
        layer(mark("line", strokeDash=[5, 4], color=style.MUTED), front),
        *([] if are_methods else [layer(trail, detail="group", order="order", color=color)]),
        layer(mark("rule", opacity=0.5), y="acc_low", y2="acc_high", color=color),
        *style.label_layers(labels),  # below the points: no name may hide one
        layer(mark("point", size=330, **style.RING), recommended),
        style.zoomable("zoom", layer(dots, color=color, shape=shape, tooltip=tooltip(FIELDS))),
    ]
    return style.panel(HEIGHT, layers, rows, x=x, y=y)


def window(rows: Sequence[Row]) -> Domains:
    """The part of the plane to show: every point, the origin of length, a margin."""
    names = ("acc", "acc_low", "acc_high")
    heights = [row[name] for row in rows for name in names if row[name] is not None]
    low, high = min(heights), max(heights)
    margin = max(1.0, 0.15 * (high - low))
    right = 1.15 * max(row["len"] for row in rows)
    return [0.0, right], [max(0.0, low - margin), min(101.0, high + margin)]


def level_line(
    score: float,
    lengths: Sequence[float],
    base: tuple[float, float],
    weights: AesWeights = WEIGHTS,
) -> list[float]:
    """The accuracies that have this AES at these lengths; `base` is (length, accuracy)."""
    base_length, base_acc = base
    rest = score - weights.alpha * (1 - np.asarray(lengths, dtype=float) / base_length)
    gained = np.where(rest >= 0, rest / weights.beta, rest / weights.gamma)
    return (base_acc * (1 + gained)).tolist()


def level_layers(rows: Sequence[Row], levels: Sequence[float], domains: Domains) -> list[Spec]:
    """Lines of equal AES, each named at its first point inside the window; none without a base."""
    base = next((row for row in rows if row["is_base"]), None)
    if base is None:
        return []
    lengths = np.linspace(domains[0][0], domains[0][1], 41).tolist()
    lines: list[Row] = []
    for level in levels:
        name = f"{level:+.2f}".replace("-", "−")
        heights = level_line(level, lengths, (base["len"], base["acc"]))
        points = zip(lengths, heights, strict=True)
        lines += [{"level": name, "len": length, "acc": acc} for length, acc in points]
    low, high = domains[1]
    inside = [row for row in lines if low <= row["acc"] <= high]
    starts = {row["level"]: row for row in reversed(inside)}.values()
    text = mark("text", align="left", dx=3, dy=-5, fontSize=10, color=style.MUTED, clip=False)
    line = mark("line", color=style.GREY, strokeWidth=1)
    return [layer(line, lines, detail="level"), layer(text, list(starts), text="level")]


# Redundancy: how dense the text is that is left


def redundancy_figures(data: ReportData) -> list[Figure]:
    rows = redundancy_rows(data)
    if len(rows) < 2:
        return []
    many = len({row["curve"] for row in rows}) > MANY_CURVES
    inches = style.PAGE_INCHES if many else 1.25 * style.COLUMN_INCHES
    title = "Redundancy against length"
    picture = redundancy_spec(rows)
    return [Figure("redundancy", title, picture, REDUNDANCY_CAPTION, inches=inches)]


def redundancy_rows(data: ReportData) -> list[Row]:
    """A row per evaluation or method and kind of response."""
    groups = checkpoint_groups(data)
    rows = method_rows(data) or [row for group in groups for row in group_rows(group)]
    few = len({row["curve"] for row in rows}) <= FEW_CURVES
    return [
        {**row, "kind": kind, "value": row[name], "label": row["name"]}
        for name, kind in KINDS.items()
        for row in rows
        if (few or name == "r_zip") and row.get(name) is not None and row["len"] is not None
    ]


def redundancy_spec(rows: Sequence[Row]) -> Spec:
    """One line per curve and kind, in the order of training."""
    kept = ("curve", "group", "order", "len", "is_base", "kind", "value", "label")
    rows = [{key: row[key] for key in kept} for row in rows]
    color, shape = style.color_and_shape("curve", [row["curve"] for row in rows])
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    legend = {"orient": "top", "title": None, "symbolSize": 500} if len(kinds) > 1 else None
    dash = style.nominal("kind", kinds, [DASHES[kind] for kind in kinds], legend)
    x = axis("len", "tokens per response", domain=_with_margin([row["len"] for row in rows]))
    y = axis("value", "R_zip", domain=_with_margin([row["value"] for row in rows]))
    whole = [row for row in rows if row["kind"] == KINDS["r_zip"]]
    last = {row["group"]: row for row in whole}
    named = [row for row in whole if row["is_base"] or row is last[row["group"]]]
    labels = style.place_labels(named, rows, x, y, REDUNDANCY_HEIGHT)
    fields = tooltip({"": "label", "of": "kind", "tokens": "len:.1f", "R_zip": "value:.3f"})
    dots = layer(mark("point", filled=True, size=60), shape=shape, tooltip=fields)
    layers = [
        layer(mark("line", strokeWidth=1.6), detail="group", order="order", strokeDash=dash),
        *style.label_layers(labels),
        style.zoomable("redundancy", dots),
    ]
    return style.panel(REDUNDANCY_HEIGHT, layers, rows, x=x, y=y, color=color)


def _with_margin(values: Sequence[float]) -> list[float]:
    margin = 0.2 * (max(values) - min(values)) or 0.1
    return [min(values) - margin, max(values) + margin]
