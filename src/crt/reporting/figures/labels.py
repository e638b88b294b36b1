"""Names of points: beside them where there is space, in a column where points crowd."""

from collections.abc import Mapping, Sequence

from crt.reporting.load import Row
from crt.reporting.style import INK, PAPER, Spec

Spot = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels
Domain = Sequence[float]  # from, to

CROWD = 4  # so many points close together are enlarged
LETTER, LINE = 6.3, 13  # pixels that text of 12 pixels takes
WIDTH = 300  # pixels of a panel where it is narrowest, on a phone
PLACES = (  # align, baseline, dx, dy
    ("left", "bottom", 8, -3),
    ("right", "bottom", -8, -3),
    ("left", "top", 8, 3),
    ("right", "top", -8, 3),
    ("center", "bottom", 0, -8),
    ("center", "top", 0, 8),
)


def place_labels(
    named: Sequence[Row],
    points: Sequence[Row],
    y: str,
    x_domain: Domain,
    y_domain: Domain,
    height: float,
) -> list[Row]:
    """Labels that cover no point and no other label; a name without such a place is left out.

    Points are at `len` and `y`; the panel's height is in pixels.
    """

    def pixels(row: Row) -> Spot:
        across = (row["len"] - x_domain[0]) / (x_domain[1] - x_domain[0])
        up = (row[y] - y_domain[0]) / (y_domain[1] - y_domain[0])
        return across * WIDTH, (1 - up) * height

    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in map(pixels, points)]
    labels: list[Row] = []
    for row in named:
        for align, baseline, dx, dy in sorted(
            PLACES, key=lambda place: _behind(place, row, points)
        ):
            x, top = pixels(row)
            away = 1.7 if row.get("recommended") else 1.0  # from the ring around the point
            dx, dy = away * dx, away * dy
            width = LETTER * len(row["label"])
            left = x + dx - {"left": 0, "center": width / 2, "right": width}[align]
            top += dy - (LINE if baseline == "bottom" else 0)
            box = (left, top, left + width, top + LINE)
            if _inside(box, height) and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                place = {"align": align, "baseline": baseline, "dx": dx, "dy": dy}
                labels.append({"label": row["label"], "len": row["len"], y: row[y], **place})
                break
    return labels


def _behind(place: tuple[str, str, int, int], row: Row, points: Sequence[Row]) -> bool:
    """Whether a label there would lie on the line from the point before it."""
    before = [p for p in points if p["group"] == row["group"] and p["order"] < row["order"]]
    return bool(before) and (place[2] > 0) == (before[-1]["len"] > row["len"])


def _inside(box: Box, height: float) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= WIDTH and box[3] <= height


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def label_layers(labels: Sequence[Row]) -> list[Spec]:
    """Layers with the labels, each on a patch of paper so that no line crosses it."""
    place = {name: {"expr": f"datum.{name}"} for name in ("align", "baseline", "dx", "dy")}
    text = {"type": "text", "fontSize": 12, **place}
    halo = {**text, "stroke": PAPER, "strokeWidth": 4, "fill": PAPER}
    shown = {"text": {"field": "label"}, "color": {"value": INK}}
    return [
        {"data": {"values": list(labels)}, "mark": mark, "encoding": shown}
        for mark in (halo, {**text, "fill": INK})
    ]


def find_crowd(spots: Mapping[str, Spot], near: Spot) -> list[str]:
    """The largest set in which each point is near another; empty if that is no crowd."""
    left, largest = set(spots), list[str]()
    while left:
        group = [min(left)]
        for name in group:  # grows while it is gone through
            left.discard(name)
            x, y = spots[name]
            group += sorted(
                other
                for other in left.difference(group)
                if abs(spots[other][0] - x) <= near[0] and abs(spots[other][1] - y) <= near[1]
            )
        largest = max(largest, group, key=len)
    return largest if len(largest) >= CROWD else []


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
