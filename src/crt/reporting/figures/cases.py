"""Questions over checkpoints: a case study, and the questions where something went wrong.

In both grids colour is length, and a circle's fill is accuracy.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from crt.algorithm.batch import Array, BoolArray
from crt.reporting import style
from crt.reporting.load import (
    EvaluationGroup,
    ProblemKey,
    ProblemTrajectories,
    ReportData,
    Row,
    checkpoint_groups,
    problem_trajectories,
)
from crt.reporting.style import Figure, Spec, layer, tooltip

QUESTIONS = 16  # in the case study
EXAMPLES = 5  # of a failure mode
DROP = 0.25  # accuracy that a question must lose to count as eroded
EXCESS = 0.5  # of the base's length, walked to and fro, to count as churn
CELL, WIDE_CELL, RADIUS = 30, 46, 8  # pixels
SNIPPET = 34  # characters of a question beside its row
FIELDS = {
    **{"": "text", "checkpoint": "column", "accuracy %": "accuracy:.0f", "tokens": "tokens:.0f"}
}
CASE_CAPTION = (
    "{shown} of {total:,} questions, from the longest to the shortest answers of the base. "
    "The brighter a field, the longer the responses; a full circle is always right. "
    "Click on a question to read its answers."
)
FAILURE_CAPTION = (
    "Accuracy erosion: {eroded} of {total:,} questions became shorter and lost at least {drop:.0f} "
    "points ({gained} became shorter and gained as much, which tells how much is chance). "
    "Length churn: {churned} walked at least {excess:.0f} % of the base's length to and fro while "
    "accuracy stayed within {drop:.0f} points."
)


def figures(data: ReportData) -> list[Figure]:
    """A case study per group, then the failure modes of each group that has some."""
    cases: list[Figure] = []
    failures: list[Figure] = []
    for group in checkpoint_groups(data):
        problems = problem_trajectories(group)
        texts = {key: str(row["question"]) for key, row in group.problems().items()}
        chosen = spread_ranks(problems.length[0], QUESTIONS)
        shown = list(cells(problems, chosen, texts))
        if shown:
            caption = CASE_CAPTION.format(shown=len(chosen), total=len(problems.keys))
            cases.append(Figure("cases", "Case study", grid(shown), caption, group.label))
        panels = [
            {"title": mode, **grid(list(cells(problems, examples, texts)))}
            for mode, examples in failure_examples(group, problems).items()
            if examples
        ]
        if panels:
            spec, caption = {"vconcat": panels, "spacing": 18}, _failure_caption(problems)
            failures.append(Figure("failures", "Failure modes", spec, caption, group.label))
    return [*cases, *failures]


def example_questions(group: EvaluationGroup) -> list[int]:
    """The places of the questions that the figures show, whose answers a reader will want."""
    problems = problem_trajectories(group)
    failed = failure_examples(group, problems).values()
    chosen = [*spread_ranks(problems.length[0], QUESTIONS), *(n for part in failed for n in part)]
    return list(dict.fromkeys(chosen))


def spread_ranks(lengths: Array, count: int) -> list[int]:
    """Places of `count` values from the longest to the shortest, evenly spaced in rank."""
    ranked = np.argsort(-lengths, kind="stable")[: np.count_nonzero(~np.isnan(lengths))]
    places = np.linspace(0, len(ranked) - 1, min(count, len(ranked)))
    return ranked[places.round().astype(int)].tolist()


def failure_examples(
    group: EvaluationGroup, problems: ProblemTrajectories
) -> Mapping[str, list[int]]:
    """Failure mode → places of its clearest examples; none without a trajectory of points."""
    if len(problems.columns) < 3 or not (group.is_series or group.run):
        return {}
    accuracy, length = problems.accuracy, problems.length
    return {
        "Accuracy erosion": _clearest(eroded(accuracy, length), accuracy[0] - accuracy[-1]),
        "Length churn": _clearest(churned(accuracy, length), excess(length)),
    }


def _clearest(which: BoolArray, by: Array) -> list[int]:
    places = np.flatnonzero(which)
    return places[np.argsort(-by[places], kind="stable")][:EXAMPLES].tolist()


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


def _failure_caption(problems: ProblemTrajectories) -> str:
    modes = {"eroded": eroded, "gained": gained, "churned": churned}
    counts = {k: int(mode(problems.accuracy, problems.length).sum()) for k, mode in modes.items()}
    limits = {"drop": 100 * DROP, "excess": 100 * EXCESS}
    return FAILURE_CAPTION.format(total=len(problems.keys), **counts, **limits)


def cells(
    problems: ProblemTrajectories, chosen: Sequence[int], texts: Mapping[ProblemKey, str]
) -> Iterator[Row]:
    """A row per chosen problem and checkpoint."""
    for number in chosen:
        key = problems.keys[number]
        text = " ".join(texts.get(key, key[1]).split())
        label = text if len(text) <= SNIPPET else f"{text[: SNIPPET - 1]}…"
        values = zip(problems.accuracy[:, number], problems.length[:, number], strict=True)
        for place, (acc, tokens) in enumerate(values):
            if not (math.isnan(acc) or math.isnan(tokens)):
                yield {
                    **{"question": number, "column": problems.columns[place], "order": place},
                    **{"label": f"{number + 1} · {label}", "text": text[:200]},
                    **{"accuracy": 100 * float(acc), "tokens": float(tokens)},
                    "angle": 2 * math.pi * float(acc),
                }


def grid(rows: Sequence[Row]) -> Spec:
    """One panel; the page opens a question that is clicked on."""
    columns = [name for _, name in sorted({(row["order"], row["column"]) for row in rows})]
    labels = list(dict.fromkeys(row["label"] for row in rows))
    bare = {"domain": False, "ticks": False}
    top = {**bare, "orient": "top", "labelAngle": -35 if max(map(len, columns)) > 6 else 0}
    left = {**bare, "labelLimit": 260, "labelPadding": 8}
    tight = {"title": None, "scale": {"paddingInner": 0.07, "paddingOuter": 0}}
    circle = {"type": "point", "size": (2 * RADIUS) ** 2, "cursor": "pointer"}
    shade = {"filled": True, "fill": "#000000", "fillOpacity": 0.32, "opacity": 1}
    edge = {"stroke": "#10151a", "strokeWidth": 1.2, "opacity": 0.9}
    arc = {"type": "arc", "radius": RADIUS, "color": "#ffffff", "cursor": "pointer"}
    theta = {"field": "angle", "type": "quantitative", "scale": None, "stack": None}
    length = {
        **{"field": "tokens", "type": "quantitative", "title": "tokens"},
        "scale": {"scheme": style.LENGTHS, "zero": False},
        "legend": {"orient": "bottom", "gradientLength": 180},
    }
    layers = [
        layer({"type": "rect", "cornerRadius": 3, "cursor": "pointer"}, color=length),
        layer({**circle, **shade}),
        layer(arc, theta=theta, theta2={"datum": 0}),
        layer({**circle, **edge}),
    ]
    x = {"field": "column", "sort": columns, "axis": top, **tight}
    y = {"field": "label", "sort": labels, "axis": left, **tight}
    hovered = tooltip(FIELDS)  # for the field and the circle on it
    panel = style.panel({"step": CELL}, layers, rows, x=x, y=y, tooltip=hovered)
    return {**panel, "width": {"step": WIDE_CELL if len(columns) <= 12 else CELL}}
