"""What the accuracy–length plane shows: points, the front, lines of equal AES, who is named."""

from collections.abc import Sequence

import numpy as np

from crt.algorithm.metrics import AES1, AES2, AesWeights
from crt.report import measured
from crt.report.sources import Material, Row

WEIGHTS = {"AES1": AES1, "AES2": AES2}
SCORE = "AES2"  # the stricter one: lost accuracy costs ten times what saved tokens bring
LEVELS = (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75)


def rows(material: Material) -> list[Row]:
    """A row for each evaluation or method, and the base."""
    found = measured.over_seeds(material)
    if not found:
        found = [row for lineup in measured.courses(material) for row in measured.rows(lineup)]
    known = [row for row in found if row["acc"] is not None and row["len"] is not None]
    front = pareto([(row["len"], row["acc"]) for row in known])
    return [{**row, "on_front": on} for row, on in zip(known, front, strict=True)]


def pareto(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Whether no other (length, accuracy) is as short and as right, and better in one."""
    return [
        not any(
            length <= own_length and acc >= own_acc and (length, acc) != (own_length, own_acc)
            for length, acc in points
        )
        for own_length, own_acc in points
    ]


def level_line(
    score: float, lengths: Sequence[float], base: tuple[float, float], weights: AesWeights
) -> list[float]:
    """The accuracies that have this AES at these lengths; `base` is (length, accuracy)."""
    base_length, base_acc = base
    rest = score - weights.alpha * (1 - np.asarray(lengths, dtype=float) / base_length)
    gained = np.where(rest >= 0, rest / weights.beta, rest / weights.gamma)
    return (base_acc * (1 + gained)).tolist()


def window(found: Sequence[Row]) -> tuple[list[float], list[float]]:
    """The part of the plane to show: every point, the origin of length, some air."""
    lengths = [row["len"] for row in found]
    low, high = zip(*spans(found), strict=True)
    air = max(1.0, 0.15 * (max(high) - min(low)))
    return [0.0, 1.15 * max(lengths)], [max(0.0, min(low) - air), min(101.0, max(high) + air)]


def spans(found: Sequence[Row]) -> list[tuple[float, float]]:
    """Each accuracy's interval, or the accuracy twice where there is none."""
    names = ("acc_low", "acc_high")
    return [tuple(row["acc"] if row[n] is None else row[n] for n in names) for row in found]


def levels(
    found: Sequence[Row],
    score: str = SCORE,
    at: Sequence[float] = LEVELS,
    domain: Sequence[float] | None = None,
) -> list[Row]:
    """Lines of equal AES through the window or these lengths, as rows; none without a base."""
    base = next((row for row in found if row["is_base"]), None)
    if base is None:
        return []
    first, last = domain or window(found)[0]
    lengths = np.linspace(first, last, 41).tolist()
    origin = (base["len"], base["acc"])
    return [
        {"level": f"{level:+.2f}".replace("-", "−"), "len": length, "acc": acc}
        for level in at
        for length, acc in zip(
            lengths, level_line(level, lengths, origin, WEIGHTS[score]), strict=True
        )
    ]


def ends(lines: Sequence[Row], y_domain: list[float]) -> list[Row]:
    """Where a level's name stands: the first of its points inside the window."""
    first: dict[str, Row] = {}
    for row in lines:
        if y_domain[0] <= row["acc"] <= y_domain[1]:
            first.setdefault(row["level"], row)
    return list(first.values())


def side(row: Row, found: Sequence[Row]) -> str:
    """Away from the point before it on its curve, and from the edge."""
    before = [r for r in found if r["lineup"] == row["lineup"] and r["order"] < row["order"]]
    at_edge = len(row["name"]) > 8 and row["len"] > 0.8 * max(r["len"] for r in found)
    return "right" if at_edge or (before and row["len"] < before[-1]["len"]) else "left"


def named(found: Sequence[Row]) -> list[Row]:
    """The points whose names are written: all if they are few, else each curve's ends."""
    last = {row["lineup"]: row for row in found}
    few = len(found) <= 8
    wanted = [row for row in found if few or row["is_base"] or row is last[row["lineup"]]]
    return [row for i, row in enumerate(wanted) if not _crowded(row, wanted[:i], found)]


def _crowded(row: Row, others: Sequence[Row], found: Sequence[Row]) -> bool:
    """Whether another name is already written there; hovering tells it then."""
    ends = [each.get(end) for each in found for end in ("acc_low", "acc_high")]
    heights = [*map(_height, found), *(end for end in ends if end is not None)]
    wide, high = max(each["len"] for each in found), max(1e-9, max(heights) - min(heights))
    return any(
        abs(row["len"] - each["len"]) < 0.08 * wide
        and abs(_height(row) - _height(each)) < 0.06 * high
        for each in others
    )


def _height(row: Row) -> float:
    """What goes up the side: accuracy here, R_zip in another figure."""
    return row["acc"] if "acc" in row else row["value"]
