"""The case study: some questions over all checkpoints, longest first."""

from collections.abc import Sequence

import numpy as np

from crt.algorithm.batch import Array
from crt.report.figures import grid
from crt.report.sources import LineUp, Row

TITLE = "Case study"
QUESTIONS = 16
drawn, spec = grid.drawn, grid.spec


def rows(lineup: LineUp, questions: dict[tuple[str, str], str]) -> list[Row]:
    """Cells of questions spread evenly over the lengths that the base's answers have."""
    found = grid.course(lineup)
    return list(grid.cells(found, spread(found.length[0], QUESTIONS), questions))


def spread(lengths: Array, count: int) -> list[int]:
    """Places of `count` values from the longest to the shortest, evenly spaced in rank."""
    known = np.flatnonzero(~np.isnan(lengths))
    ranked = known[np.argsort(-lengths[known], kind="stable")]
    if len(ranked) <= count:
        return ranked.tolist()
    return ranked[np.linspace(0, len(ranked) - 1, count).round().astype(int)].tolist()


def caption(found: Sequence[Row], of: int) -> str:
    """How to read it, and what is not shown."""
    shown = len({row["question"] for row in found})
    return (
        f"{shown} of {of:,} questions, from the longest to the shortest answers of the base. The "
        "brighter a field, the longer the responses; a full circle is always right. "
        "Click on a question to read its answers."
    )
