"""Names of points: beside them where there is space, in a column where points crowd."""

from collections.abc import Mapping, Sequence

from crt.reporting.load import Row
from crt.reporting.style import INK, PAPER, Spec, layer

Spot = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels

CROWD = 4  # so many points close together are enlarged
LETTER, LINE = 6.3, 13  # pixels that text of 12 pixels takes
WIDTH = 300  # pixels of a panel where it is narrowest, on a phone
PLACES = (  # align, baseline, dx, dy
    *(("left", "bottom", 8, -3), ("right", "bottom", -8, -3), ("left", "top", 8, 3)),
    *(("right", "top", -8, 3), ("center", "bottom", 0, -8), ("center", "top", 0, 8)),
)


def place_labels(
    named: Sequence[Row], points: Sequence[Row], x: Spec, y: Spec, height: float
) -> list[Row]:
    """Labels that cover no point and no other label; a name without such a place is left out.

    `x` and `y` are the axes, whose domains are fixed; the panel's height is in pixels.
    """

    def pixels(row: Row) -> Spot:
        (left, right), (low, high) = x["scale"]["domain"], y["scale"]["domain"]
        up = (row[y["field"]] - low) / (high - low)
        return WIDTH * (row[x["field"]] - left) / (right - left), (1 - up) * height

    taken: list[Box] = [(a - 5, b - 5, a + 5, b + 5) for a, b in map(pixels, points)]
    labels: list[Row] = []
    for row in named:
        away = 1.7 if row.get("recommended") else 1.0  # from the ring around the point
        before = [p for p in points if p["group"] == row["group"] and p["order"] < row["order"]]
        from_right = bool(before) and before[-1]["len"] > row["len"]  # a line comes from there
        for align, baseline, dx, dy in sorted(PLACES, key=lambda p: from_right and p[2] > 0):
            left, top = pixels(row)
            width = LETTER * len(row["label"])
            left += away * dx - {"left": 0, "center": width / 2, "right": width}[align]
            top += away * dy - (LINE if baseline == "bottom" else 0)
            box = (left, top, left + width, top + LINE)
            inside = left >= 0 and top >= 0 and box[2] <= WIDTH and box[3] <= height
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                place = {"align": align, "baseline": baseline, "dx": away * dx, "dy": away * dy}
                labels.append({**row, **place})
                break
    return labels


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def label_layers(labels: Sequence[Row]) -> list[Spec]:
    """Layers with the labels, each on a patch of paper so that no line crosses it."""
    place = {name: {"expr": f"datum.{name}"} for name in ("align", "baseline", "dx", "dy")}
    text = {"type": "text", "fontSize": 12, **place}
    halo = {**text, "stroke": PAPER, "strokeWidth": 4, "fill": PAPER}
    return [
        layer(mark, labels, text="label", color={"value": INK})
        for mark in (halo, {**text, "fill": INK})
    ]


def find_crowd(spots: Mapping[str, Spot], near: Spot) -> list[str]:
    """The largest set in which each point is near another; empty if that is no crowd."""
    left, largest = set(spots), list[str]()
    while left:
        group = [min(left)]
        for name in group:  # grows while it is gone through
            left.discard(name)
            group += sorted(
                other
                for other in left.difference(group)
                if all(
                    abs(a - b) <= distance
                    for a, b, distance in zip(spots[other], spots[name], near, strict=True)
                )
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
