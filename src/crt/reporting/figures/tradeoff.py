"""The trade-off: accuracy against length, with lines of equal AES and the Pareto front."""

from collections.abc import Sequence

import numpy as np

from crt.core.metrics import AES2, AesWeights
from crt.reporting.figure_rows import checkpoint_groups, group_rows, main_groups, method_rows
from crt.reporting.figures.labels import (
    find_crowd,
    label_layers,
    place_labels,
    spread_apart,
)
from crt.reporting.load import ReportData, Row
from crt.reporting.style import (
    COLUMN_INCHES,
    GREY,
    INK,
    MUTED,
    PAGE_INCHES,
    VERMILLION,
    Figure,
    Spec,
    axis,
    color_and_shape,
    side_by_side,
    tooltip,
    zoom,
)

KEY, TITLE = "tradeoff", "Accuracy against length"
SCORE, WEIGHTS = "AES2", AES2  # the stricter one: lost accuracy costs ten times what tokens bring
LEVELS = (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75)
CLOSE_LEVELS = tuple(round(0.1 * i - 1, 1) for i in range(20))  # where a crowd is enlarged
HEIGHT = 360
NO_GRID = {"grid": False}
FEW = 8  # points up to which each has its name
NAME_GAP = 15  # pixels from name to name beside an enlarged panel
NAME_SHARE = 0.42  # of an enlarged panel's width that its names take
RING = {"type": "point", "filled": False, "size": 330, "strokeWidth": 2, "color": VERMILLION}


def figures(data: ReportData) -> list[Figure]:
    """The methods of a comparison; or the evaluations with most problems, and all checkpoints."""
    methods = method_rows(data)
    if methods:
        return _figure(methods, "", "Bars are the range over seeds.")
    main, every = main_groups(data), checkpoint_groups(data)
    found: list[Figure] = []
    for groups in [main] if main == every else [main, every]:
        rows = [row for group in groups for row in group_rows(group)]
        problems = "; ".join(dict.fromkeys(group.data_label for group in groups))
        label = problems if groups is main else f"every checkpoint: {problems}"
        note = f"Measured on {problems}. Bars are the 95 % interval over problems."
        found += _figure(rows, label, note)
    return found


def _figure(rows: Sequence[Row], label: str, note: str) -> list[Figure]:
    rows = known_points(rows)
    if len(rows) < 2:
        return []
    marked = any(row["recommended"] for row in rows)
    caption = (
        f"{note} Up and left is better. Grey lines join points of equal {SCORE} against the base, "
        f"the dashed line is the Pareto front."
        f"{' The ring marks the recommended checkpoint.' if marked else ''}"
    )
    drawn, inches = spec(rows)
    return [Figure(KEY, TITLE, drawn, caption, label, inches)]


def known_points(rows: Sequence[Row]) -> list[Row]:
    """The rows that have both numbers, with their labels and whether they are on the front."""
    known = [row for row in rows if row["acc"] is not None and row["len"] is not None]
    front = pareto_front([(row["len"], row["acc"]) for row in known])
    return [
        {
            **row,
            "on_front": on_front,
            "label": f"{row['name']} (recommended)" if row["recommended"] else row["name"],
        }
        for row, on_front in zip(known, front, strict=True)
    ]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Whether no other (length, accuracy) is as short and as right, and better in one."""
    return [
        not any(
            length <= own_length and acc >= own_acc and (length, acc) != (own_length, own_acc)
            for length, acc in points
        )
        for own_length, own_acc in points
    ]


def spec(rows: Sequence[Row]) -> tuple[Spec, float]:
    """The specification and its width in print; a crowd of methods is enlarged at the side."""
    domains = window(rows)
    crowd = _crowd(rows, domains) if "seeds" in rows[0] else []
    curves = {row["curve"] for row in rows}
    inches = PAGE_INCHES if crowd or len(curves) > FEW else 1.25 * COLUMN_INCHES
    crowded = {row["name"] for row in crowd}
    named = [row for row in _named(rows) if row["name"] not in crowded]
    labels = place_labels(named, rows, "acc", *domains, HEIGHT)
    legend = len(labels) + len(crowd) < len(rows) if "seeds" in rows[0] else True
    lines = level_lines(rows, LEVELS, domains[0])
    main = _panel(rows, rows, domains, legend, "tradeoff", lines)
    main["layer"][2:2] = label_layers(labels)  # below the points: no name may hide one
    if not crowd:
        return {**main, "width": "1/1"}, inches
    close = close_up(crowd)
    box = {"type": "rect", "fill": None, "stroke": MUTED, "strokeWidth": 1}
    main["layer"].append({"data": {"values": [_corners(close)]}, "mark": box, "encoding": _CORNERS})
    side = {**_enlarged(rows, crowd, close, legend), "title": "The crowd, enlarged"}
    return side_by_side(
        [{**main, "width": "1/2", "title": "All methods"}, {**side, "width": "1/2"}]
    ), inches


Domains = tuple[list[float], list[float]]  # of length and accuracy


def window(rows: Sequence[Row]) -> Domains:
    """The part of the plane to show: every point, the origin of length, a margin."""
    lengths = [row["len"] for row in rows]
    low, high = zip(*map(interval, rows), strict=True)
    margin = max(1.0, 0.15 * (max(high) - min(low)))
    return [0.0, 1.15 * max(lengths)], [max(0.0, min(low) - margin), min(101.0, max(high) + margin)]


def interval(row: Row) -> tuple[float, float]:
    """The accuracy's interval, or the accuracy twice where there is none."""
    low, high = row["acc_low"], row["acc_high"]
    return row["acc"] if low is None else low, row["acc"] if high is None else high


def _crowd(rows: Sequence[Row], domains: Domains) -> list[Row]:
    (x_low, x_high), (y_low, y_high) = domains
    spots = {row["name"]: (row["len"], row["acc"]) for row in rows}
    names = find_crowd(spots, (0.05 * (x_high - x_low), 0.06 * (y_high - y_low)))
    return [row for row in rows if row["name"] in names]


def _named(rows: Sequence[Row]) -> list[Row]:
    """The points whose names are written, the most important first."""
    last = {row["group"]: row for row in rows}
    every = len(rows) <= FEW or "seeds" in rows[0]
    wanted = [r for r in rows if every or r["is_base"] or r["recommended"] or r is last[r["group"]]]
    return sorted(wanted, key=lambda row: (not row["recommended"], not row["is_base"]))


def _panel(
    rows: Sequence[Row],
    shown: Sequence[Row],
    domains: Domains,
    legend: bool,
    key: str,
    lines: Sequence[Row],
) -> Spec:
    """Lines of equal AES below, the front, then points with their intervals."""
    x_domain, y_domain = domains
    marker = color_and_shape("curve", [row["curve"] for row in rows], legend)
    color = {"color": marker["color"]}
    fields = {"": "label", "accuracy %": "acc:.2f", "from": "acc_low:.2f", "to": "acc_high:.2f"}
    fields |= {"tokens": "len:.1f", "AES1": "aes1:+.3f", "AES2": "aes2:+.3f"}
    front = sorted((row for row in rows if row["on_front"]), key=lambda row: row["len"])
    trail = {"detail": {"field": "group"}, "order": {"field": "order"}, **color}
    bars = {"y": {"field": "acc_low"}, "y2": {"field": "acc_high"}, **color}
    dots = {"type": "point", "filled": True, "size": 90, "opacity": 1, "clip": True}
    points = {"values": list(shown)}
    fixed = {"nice": False, "zero": False}
    return {
        "height": HEIGHT,
        "encoding": {
            "x": axis("len", "tokens per response", scale={**fixed, "domain": x_domain}),
            "y": axis("acc", "accuracy, %", scale={**fixed, "domain": y_domain}, axis=NO_GRID),
        },
        "layer": [
            *_level_layers(lines, y_domain),
            {
                "data": {"values": front},
                "mark": {"type": "line", "strokeDash": [5, 4], "color": MUTED, "clip": True},
            },
            *([] if "seeds" in rows[0] else [{"data": points, "mark": _TRAIL, "encoding": trail}]),
            {
                "data": points,
                "mark": {"type": "rule", "opacity": 0.5, "clip": True},
                "encoding": bars,
            },
            {
                "data": {"values": [row for row in shown if row["recommended"]]},
                "mark": {**RING, "clip": True},
            },
            {
                "data": points,
                "params": zoom(key),
                "mark": dots,
                "encoding": {**marker, "tooltip": tooltip(fields)},
            },
        ],
    }


_TRAIL = {"type": "line", "strokeWidth": 1.5, "opacity": 0.55, "clip": True}


def level_lines(
    rows: Sequence[Row], levels: Sequence[float], x_domain: Sequence[float]
) -> list[Row]:
    """Lines of equal AES over these lengths, as rows; none without a base."""
    base = next((row for row in rows if row["is_base"]), None)
    if base is None:
        return []
    lengths = np.linspace(x_domain[0], x_domain[1], 41).tolist()
    origin = (base["len"], base["acc"])
    return [
        {"level": f"{level:+.2f}".replace("-", "−"), "len": length, "acc": acc}
        for level in levels
        for length, acc in zip(lengths, level_line(level, lengths, origin), strict=True)
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


def _level_layers(lines: Sequence[Row], y_domain: Sequence[float]) -> list[Spec]:
    starts: dict[str, Row] = {}
    for row in lines:  # a level's name stands at the first of its points inside the window
        if y_domain[0] <= row["acc"] <= y_domain[1]:
            starts.setdefault(row["level"], row)
    name = {"type": "text", "align": "left", "dx": 3, "dy": -5, "fontSize": 10, "color": MUTED}
    return [
        {
            "data": {"values": list(lines)},
            "mark": {"type": "line", "color": GREY, "strokeWidth": 1, "clip": True},
            "encoding": {"detail": {"field": "level"}},
        },
        {
            "data": {"values": list(starts.values())},
            "mark": name,
            "encoding": {"text": {"field": "level"}},
        },
    ]


def close_up(crowd: Sequence[Row]) -> Domains:
    """The part of the plane with these points and their intervals."""
    lengths = [row["len"] for row in crowd]
    low, high = zip(*map(interval, crowd), strict=True)
    x_margin = max(0.15 * (max(lengths) - min(lengths)), 0.5)
    y_margin = max(0.08 * (max(high) - min(low)), 0.2)
    return (
        [min(lengths) - x_margin, max(lengths) + x_margin],
        [min(low) - y_margin, max(high) + y_margin],
    )


def _enlarged(rows: Sequence[Row], crowd: Sequence[Row], close: Domains, legend: bool) -> Spec:
    """The crowd, with its names in a column at the right, each with a line to its point."""
    (left, right), (low, high) = close
    wide = [left, left + (right - left) / (1 - NAME_SHARE)]
    lines = level_lines(rows, CLOSE_LEVELS, [left, right])  # not through the names
    panel = _panel(rows, crowd, (wide, [low, high]), legend, "enlarged", lines)
    ordered = sorted(crowd, key=lambda row: (-row["acc"], row["len"]))
    gap = min(NAME_GAP / HEIGHT, 1 / len(crowd)) * (high - low)
    heights = spread_apart([row["acc"] for row in ordered], gap, low, high)
    names = [
        {**row, "at_len": right, "at_acc": height}
        for row, height in zip(ordered, heights, strict=True)
    ]
    at = {"x": {"field": "at_len"}, "y": {"field": "at_acc"}}
    color = color_and_shape("curve", [row["curve"] for row in rows], legend)["color"]
    panel["layer"] += [
        {
            "data": {"values": names},
            "mark": {"type": "rule", "strokeWidth": 0.8, "clip": True},
            "encoding": {"x2": {"field": "at_len"}, "y2": {"field": "at_acc"}, "color": color},
        },
        {
            "data": {"values": names},
            "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 12, "color": INK},
            "encoding": {**at, "text": {"field": "label"}},
        },
    ]
    return panel


def _corners(domains: Domains) -> Row:
    (left, right), (low, high) = domains
    return {"left": left, "right": right, "low": low, "high": high}


_CORNERS = {
    "x": {"field": "left", "type": "quantitative"},
    "x2": {"field": "right"},
    "y": {"field": "low", "type": "quantitative"},
    "y2": {"field": "high"},
}
