"""Failure modes: questions that lost accuracy for brevity, lengths that went to and fro."""

from collections.abc import Sequence

import numpy as np

from crt.algorithm.batch import Array, BoolArray
from crt.report.figures import grid
from crt.report.figures.vega import Spec
from crt.report.sources import LineUp, Row

TITLE = "Failure modes"
DROP = 0.25  # accuracy that a question must lose to count as eroded
EXCESS = 0.5  # of the base's length, walked to and fro, to count as churn
EXAMPLES = 5
drawn = grid.drawn


def eroded(accuracy: Array, length: Array) -> BoolArray:
    """Questions that are shorter at the end and lost at least `DROP`; (C, P) → (P,)."""
    return (length[-1] < length[0]) & (accuracy[-1] <= accuracy[0] - DROP + 1e-9)


def gained(accuracy: Array, length: Array) -> BoolArray:
    """The mirror image, which shows how much of the erosion may be chance."""
    return (length[-1] < length[0]) & (accuracy[-1] >= accuracy[0] + DROP - 1e-9)


def excess(length: Array) -> Array:
    """How far lengths went beyond their net change, in lengths of the base; (C, P) → (P,)."""
    walked = np.abs(np.diff(length, axis=0)).sum(axis=0)
    return (walked - np.abs(length[-1] - length[0])) / np.maximum(length[0], 1e-9)


def churned(accuracy: Array, length: Array) -> BoolArray:
    """Questions whose length went to and fro while accuracy stayed about the same."""
    return (excess(length) >= EXCESS) & (np.ptp(accuracy, axis=0) <= DROP + 1e-9)


def rows(lineup: LineUp, questions: dict[tuple[str, str], str]) -> list[Row]:
    """Cells of the clearest examples of both, in two panels; none without a course of points."""
    found = grid.course(lineup)
    if len(found.columns) < 3 or not (lineup.is_series or lineup.run):
        return []
    lost = found.accuracy[0] - found.accuracy[-1]
    some = _first(eroded(found.accuracy, found.length), lost)
    worn = _first(churned(found.accuracy, found.length), excess(found.length))
    return [
        *grid.cells(found, some, questions, "Accuracy erosion"),
        *grid.cells(found, worn, questions, "Length churn"),
    ]


def counts(lineup: LineUp) -> dict[str, int]:
    """How many questions each mode has, of how many."""
    found = grid.course(lineup)
    both = (found.accuracy, found.length)
    return {
        "questions": len(found.keys),
        "eroded": int(eroded(*both).sum()),
        "gained": int(gained(*both).sum()),
        "churned": int(churned(*both).sum()),
    }


def spec(found: Sequence[Row]) -> Spec:
    """A panel for each mode that occurs, with one scale of lengths."""
    panels = dict.fromkeys(row["panel"] for row in found)
    parts = {panel: [row for row in found if row["panel"] == panel] for panel in panels}
    views = [{"title": panel, **grid.spec(part)} for panel, part in parts.items()]
    return {"vconcat": views, "spacing": 18}


def _first(which: BoolArray, by: Array) -> list[int]:
    places = np.flatnonzero(which)
    return places[np.argsort(-by[places], kind="stable")][:EXAMPLES].tolist()


def caption(found: dict[str, int]) -> str:
    """The counts, the definitions, and how much may be chance."""
    return (
        f"Accuracy erosion: {found['eroded']} of {found['questions']:,} questions became shorter "
        f"and lost at least {100 * DROP:.0f} points ({found['gained']} became shorter and gained "
        f"as much, which tells how much is chance). Length churn: {found['churned']} questions "
        f"walked at least {100 * EXCESS:.0f} % of the base's length to and fro while accuracy "
        f"stayed within {100 * DROP:.0f} points."
    )
