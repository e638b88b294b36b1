"""Names of points on paper: beside them where there is room, in a column where they crowd."""

from collections.abc import Mapping, Sequence
from typing import Any

Spot = tuple[float, float]
Box = tuple[float, float, float, float]  # left, bottom, right, top

CROWD = 4  # so many points close together get a panel of their own
SIZE = 6.5  # of the letters, in points
LINE = 1.35 * SIZE
WIDE = 0.58 * SIZE  # a letter, on average
PLACES = {  # of a name at its point: how it is aligned, and its distance across and up
    "upper right": ("left", "bottom", 5, 1),
    "upper left": ("right", "bottom", -5, 1),
    "lower right": ("left", "top", 5, -1),
    "lower left": ("right", "top", -5, -1),
    "above": ("center", "bottom", 0, 4),
    "below": ("center", "top", 0, -4),
}


def crowd(spots: Mapping[str, Spot], near: Spot) -> list[str]:
    """The largest set in which each is near to another one; empty if that is no crowd."""
    left, largest = set(spots), list[str]()
    while left:
        group = [min(left)]
        for name in group:  # grows while it is gone through
            left.discard(name)
            group += sorted(
                each
                for each in left.difference(group)
                if all(
                    abs(a - b) <= most
                    for a, b, most in zip(spots[name], spots[each], near, strict=True)
                )
            )
        largest = max(largest, group, key=len)
    return largest if len(largest) >= CROWD else []


def beside(axis: Any, spots: Mapping[str, Spot], others: Sequence[Spot]) -> list[str]:
    """Writes names where they cover no point and no name; returns those without such a place."""
    scale = 72 / axis.figure.dpi
    at = lambda spot: tuple(scale * axis.transData.transform(spot))  # noqa: E731
    frame = tuple(scale * edge for edge in axis.bbox.extents)
    taken: list[Box] = [(x - 3, y - 3, x + 3, y + 3) for x, y in map(at, others)]
    left_out: list[str] = []
    for name, spot in spots.items():
        for place in PLACES:
            box = _box(at(spot), WIDE * len(name), place)
            if _inside(box, frame) and not any(_touch(box, each) for each in taken):
                taken.append(box)
                across, up, *offset = PLACES[place]
                axis.annotate(
                    name, spot, offset, textcoords="offset points", fontsize=SIZE, ha=across, va=up
                )
                break
        else:
            left_out.append(name)
    return left_out


def column(axis: Any, spots: Mapping[str, Spot], colours: Mapping[str, str]) -> None:
    """Writes names one below the other at the right of the axis, each with a line to its point."""
    low, high = axis.get_ylim()
    height = 72 / axis.figure.dpi * axis.bbox.height
    gap = min(LINE / height, 1 / max(1, len(spots))) * (high - low)
    names = sorted(spots, key=lambda name: (-spots[name][1], spots[name][0]))
    for name, y in zip(names, spaced([spots[n][1] for n in names], gap, low, high), strict=True):
        line = {"arrowstyle": "-", "color": colours[name], "linewidth": 0.5, "relpos": (0, 0.5)}
        axis.annotate(
            name, spots[name], (1.06, (y - low) / (high - low)), textcoords="axes fraction",
            fontsize=SIZE, va="center", annotation_clip=False, arrowprops=line,
        )  # fmt: skip


def spaced(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Falling heights, moved as little as it takes to be a gap apart and within the bounds."""
    top = high - gap / 2
    placed: list[float] = []
    for height in heights:
        placed.append(min(height, placed[-1] - gap if placed else top))
    floor = low + gap / 2
    for i in range(len(placed) - 1, -1, -1):
        placed[i] = max(placed[i], floor)
        floor = placed[i] + gap
    return placed


def _box(spot: Spot, width: float, place: str) -> Box:
    across, up, dx, dy = PLACES[place]
    left = spot[0] + dx - {"left": 0, "center": width / 2, "right": width}[across]
    low = spot[1] + dy - (LINE if up == "top" else 0)
    return left, low, left + width, low + LINE


def _inside(box: Box, frame: Sequence[float]) -> bool:
    """Names may run a little over the right edge, where there is no line."""
    left, bottom, right, top = frame
    return left <= box[0] and bottom <= box[1] and box[2] <= right + 2 * SIZE and box[3] <= top


def _touch(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
