"""The trade-off: accuracy against length, with lines of equal AES and the Pareto front."""

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
CLOSE_LEVELS = tuple(round(0.1 * i - 1, 1) for i in range(20))  # where a crowd is enlarged
HEIGHT = 360
FEW = 8  # points up to which each has its name
CROWD = 4  # so many points close together are enlarged
NAME_GAP = 15  # pixels from name to name beside an enlarged panel
FIELDS = {
    **{"": "label", "accuracy %": "acc:.2f", "from": "acc_low:.2f", "to": "acc_high:.2f"},
    **{"tokens": "len:.1f", "AES1": "aes1:+.3f", "AES2": "aes2:+.3f"},
}
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
    specification = spec(points)
    needs_page = "concat" in specification or len({row["curve"] for row in points}) > FEW
    inches = style.PAGE_INCHES if needs_page else 1.25 * style.COLUMN_INCHES
    return [Figure("tradeoff", "Accuracy against length", specification, caption, label, inches)]


def with_front(rows: Sequence[Row]) -> list[Row]:
    """The rows that have both numbers, with their labels and whether they are on the front."""
    points = [row for row in rows if row["acc"] is not None and row["len"] is not None]
    front = pareto_front([row["len"] for row in points], [row["acc"] for row in points])
    return [
        {**row, "on_front": bool(on), "label": row["name"] + " (recommended)" * row["recommended"]}
        for row, on in zip(points, front, strict=True)
    ]


def spec(rows: Sequence[Row]) -> Spec:
    """One panel, and where methods crowd another one that enlarges them."""
    are_methods = "seeds" in rows[0]
    domains = window(rows)
    crowd = find_crowd(rows, domains) if are_methods else []
    last = {row["group"]: row for row in rows}
    named = [
        row
        for row in sorted(rows, key=lambda row: (not row["recommended"], not row["is_base"]))
        if are_methods or len(rows) <= FEW or row is last[row["group"]]
        or row["recommended"] or row["is_base"]
    ]  # fmt: skip
    x, y = _axes(domains)
    labels = style.place_labels([row for row in named if row not in crowd], rows, x, y, HEIGHT)
    legend = not are_methods or len(labels) + len(crowd) < len(rows)
    layers = _layers(rows, rows, domains, LEVELS, legend)
    layers[-2:-2] = style.label_layers(labels)  # below the points: no name may hide one
    main = style.panel(HEIGHT, layers, x=x, y=y)
    if not crowd:
        return main
    close = close_up(crowd)
    (left, right), (low, high) = close
    corners = {"left": left, "right": right, "low": low, "high": high}
    box = mark("rect", fill=None, stroke=style.MUTED)
    main["layer"].append(layer(box, [corners], x="left", x2="right", y="low", y2="high"))
    side = _enlarged(rows, crowd, close, legend)
    return style.side_by_side([{**main, "title": "All"}, {**side, "title": "The crowd, enlarged"}])


def window(rows: Sequence[Row]) -> Domains:
    """The part of the plane to show: every point, the origin of length, a margin."""
    (_, right), (low, high) = _extent(rows)
    margin = max(1.0, 0.15 * (high - low))
    return [0.0, 1.15 * right], [max(0.0, low - margin), min(101.0, high + margin)]


def close_up(crowd: Sequence[Row]) -> Domains:
    """The part of the plane with these points and their intervals."""
    (left, right), (low, high) = _extent(crowd)
    across, up = max(0.15 * (right - left), 0.5), max(0.08 * (high - low), 0.2)
    return [left - across, right + across], [low - up, high + up]


def _extent(rows: Sequence[Row]) -> Domains:
    lengths = [row["len"] for row in rows]
    names = ("acc", "acc_low", "acc_high")
    heights = [row[name] for row in rows for name in names if row[name] is not None]
    return [min(lengths), max(lengths)], [min(heights), max(heights)]


def _axes(domains: Domains) -> tuple[Spec, Spec]:
    y = axis("acc", "accuracy, %", domain=domains[1])
    return axis("len", "tokens per response", domain=domains[0]), {**y, "axis": {"grid": False}}


def _layers(
    rows: Sequence[Row],
    shown: Sequence[Row],
    domains: Domains,
    levels: Sequence[float],
    legend: bool,
) -> list[Spec]:
    """Lines of equal AES below, the front, then the points that are shown, with intervals."""
    color, shape = style.color_and_shape("curve", [row["curve"] for row in rows], legend)
    front = sorted((row for row in rows if row["on_front"]), key=lambda row: row["len"])
    trail = mark("line", strokeWidth=1.5, opacity=0.55)
    trails = layer(trail, shown, detail="group", order="order", color=color)
    dots = mark("point", filled=True, size=90, opacity=1)
    points = layer(dots, shown, color=color, shape=shape, tooltip=tooltip(FIELDS))
    return [
        *level_layers(rows, levels, domains),
        layer(mark("line", strokeDash=[5, 4], color=style.MUTED), front),
        *([] if "seeds" in rows[0] else [trails]),
        layer(mark("rule", opacity=0.5), shown, y="acc_low", y2="acc_high", color=color),
        layer(mark("point", size=330, **style.RING), [row for row in shown if row["recommended"]]),
        style.zoomable("zoom" if levels is LEVELS else "zoom_close", points),
    ]


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


def find_crowd(rows: Sequence[Row], domains: Domains) -> list[Row]:
    """The largest set in which each point is near another; empty if that is no crowd."""
    (left, right), (low, high) = domains
    near_x, near_y = 0.05 * (right - left), 0.06 * (high - low)
    rest, largest = list(rows), list[Row]()
    while rest:
        group = [rest.pop(0)]
        for row in group:  # grows while it is gone through
            near = [
                other
                for other in rest
                if abs(other["len"] - row["len"]) <= near_x
                and abs(other["acc"] - row["acc"]) <= near_y
            ]
            group += near
            rest = [other for other in rest if other not in near]
        largest = max(largest, group, key=len)
    return [row for row in rows if row in largest] if len(largest) >= CROWD else []


def _enlarged(rows: Sequence[Row], crowd: Sequence[Row], close: Domains, legend: bool) -> Spec:
    """The crowd, with its names in a column at the right, each with a line to its point."""
    (left, right), (low, high) = close
    longest = max(len(row["label"]) for row in crowd)
    share = min(0.65, style.LETTER * longest / style.PANEL + 0.05)  # of the width, for the names
    x, y = _axes(([left, left + (right - left) / (1 - share)], [low, high]))
    ordered = sorted(crowd, key=lambda row: (-row["acc"], row["len"]))
    gap = min(NAME_GAP / HEIGHT, 1 / len(crowd)) * (high - low)
    heights = spread_apart([row["acc"] for row in ordered], gap, low, high)
    names = [{**row, "x": right, "y": height} for row, height in zip(ordered, heights, strict=True)]
    color, _ = style.color_and_shape("curve", [row["curve"] for row in rows], legend)
    text = mark("text", align="left", dx=4, fontSize=12, color=style.INK)
    layers = [
        *_layers(rows, crowd, close, CLOSE_LEVELS, legend),
        layer(mark("rule", strokeWidth=0.8), names, x2="x", y2="y", color=color),
        layer(text, names, x="x", y="y", text="label"),
    ]
    return style.panel(HEIGHT, layers, x=x, y=y)


def spread_apart(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Falling heights, moved as little as it takes to be a gap apart and within the bounds."""
    placed: list[float] = []
    for height in heights:
        placed.append(min(height, placed[-1] - gap if placed else high - gap / 2))
    floor = low + gap / 2
    for i in range(len(placed) - 1, -1, -1):
        placed[i] = max(placed[i], floor)
        floor = placed[i] + gap
    return placed
