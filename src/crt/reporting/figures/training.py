"""Training, step by step: what each step was for, accuracy against its floor, tokens, λ."""

from collections.abc import Iterator, Sequence

from crt.reporting.load import ReportData, Row, RunView
from crt.reporting.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MUTED,
    PURPLE,
    VERMILLION,
    Figure,
    Spec,
    axis,
    tooltip,
    zoom,
)

KEY, TITLE = "training", "Training, step by step"
GUARDED = ("crt", "crt_1s", "primal_dual")  # whose margin in Stage I is one of accuracy
GOALS = {"length": BLUE, "accuracy": VERMILLION, "mixed": GREEN}
SMOOTHING = 0.8
MOST_STEPS = 600  # in the figure; the lines are smoothed over all of them
FIELDS = {
    **{"step": "step", "": "stage", "goal": "goal", "accuracy %": "accuracy:.1f"},
    **{"reference %": "reference:.1f", "tokens": "tokens:.1f"},
    "reference's tokens": "reference_tokens:.1f",
}


def figures(data: ReportData) -> list[Figure]:
    """One figure per run."""
    return [
        Figure(KEY, TITLE, spec(found), caption(found), f"{run.name}, seed {run.config.seed}", 5.2)
        for run in data.runs
        if (found := rows(run))
    ]


def rows(run: RunView) -> list[Row]:
    """A row per step, accuracies in points; steps without any usable problem are left out."""
    return list(_rows(run.steps, run.method in GUARDED))


def _rows(steps: Sequence[Row], guarded: bool) -> Iterator[Row]:
    smooth: Row = {}
    for step in steps:
        if step.get("accuracy") is None:
            continue
        gap = 100 * (step["accuracy"] - step["reference_accuracy"])
        error = 100 * (step.get("standard_error") or 0.0)
        has_floor = guarded and step.get("stage", 1) == 1 and step.get("margin") is not None
        smooth = {
            name: SMOOTHING * smooth.get(name, value) + (1 - SMOOTHING) * value
            for name, value in {"gap": gap, "tokens": step["tokens"]}.items()
        }
        yield {
            **{"step": step["step"], "until": step["step"] + 1, "goal": step["goal"]},
            "stage": f"Stage {'I' * int(step.get('stage', 1))}",
            "accuracy": 100 * step["accuracy"],
            "reference": 100 * step["reference_accuracy"],
            **{"gap": gap, "gap_low": gap - error, "gap_high": gap + error},
            "floor": gap - 100 * step["margin"] if has_floor else None,
            **{"tokens": step["tokens"], "reference_tokens": step["reference_tokens"]},
            **{"smooth_gap": smooth["gap"], "smooth_tokens": smooth["tokens"]},
            "multiplier": step.get("multiplier"),
        }


def thin_out(found: Sequence[Row], most: int) -> list[Row]:
    """At most so many rows, evenly spaced; each reaches to the next."""
    every = max(1, -(-len(found) // most))
    kept = list(found[::every])
    ends = [row["step"] for row in kept[1:]] + [row["until"] for row in found[-1:]]
    return [{**row, "until": end} for row, end in zip(kept, ends, strict=True)]


def first_of_stage_two(found: Sequence[Row]) -> int | None:
    """The first step of Stage II."""
    return next((row["step"] for row in found if row["stage"] == "Stage II"), None)


def caption(found: Sequence[Row]) -> str:
    """How to read it."""
    goals = [row["goal"] for row in found]
    counts = ", ".join(f"{goals.count(g)} for {g}" for g in GOALS if g in goals)
    every = -(-len(found) // MOST_STEPS)
    thinned = f" One step in {every} is shown." if every > 1 else ""
    has_floor = any(row["floor"] is not None for row in found)
    floor = " The dotted line is the floor below which Stage I restores accuracy."
    return (
        f"{len(found)} steps: {counts}. Dots are steps with ± one standard error of the paired "
        f"gap, lines are smoothed.{thinned}{floor if has_floor else ''}"
    )


def spec(found: Sequence[Row]) -> Spec:
    """Panels above each other on one axis of steps."""
    found = thin_out(found, MOST_STEPS)
    domain = [found[0]["step"] - 1, found[-1]["step"] + 1]
    x = axis("step", "", scale={"domain": domain, "nice": False})
    blank = {**x, "axis": {"labels": False, "ticks": False}}
    used = [goal for goal in GOALS if goal in {row["goal"] for row in found}]
    bare = {**x, "axis": None}
    panels = [_goals(used, bare), _gap(found, blank), _tokens(blank)]
    if any(row["multiplier"] is not None for row in found):
        line = {"type": "line", "color": PURPLE, "strokeWidth": 2}
        y = axis("multiplier", "λ", scale={"zero": True})
        panels.append({"height": 90, "mark": line, "encoding": {"x": blank, "y": y}})
    panels[-1]["encoding"]["x"] = {**x, "title": "training step"}
    return {
        "data": {"values": found},
        "vconcat": [{"width": "1/1", **panel} for panel in panels],
        "spacing": 14,
        "resolve": {"scale": {"color": "independent"}},
    }


def _color(legend: Spec | None = None) -> Spec:
    scale = {"domain": list(GOALS), "range": list(GOALS.values())}
    return {"field": "goal", "type": "nominal", "scale": scale, "legend": legend}


def _goals(used: list[str], x: Spec) -> Spec:
    legend = {"orient": "top", "title": None, "symbolType": "square", "values": used}
    color = {"color": _color(legend), "tooltip": tooltip(FIELDS)}
    return {
        "height": 22,
        "mark": {"type": "rect", "clip": True},
        "encoding": {"x": x, "x2": {"field": "until"}, **color},
    }


def _gap(found: Sequence[Row], x: Spec) -> Spec:
    y = axis("gap", "accuracy − reference, points")
    dotted = {"type": "line", "interpolate": "step-after", "strokeDash": [2, 3], "clip": True}
    across = {"x": {"value": 0}, "x2": {"value": "width"}}
    bars = {"y": {**y, "field": "gap_low"}, "y2": {"field": "gap_high"}, "color": _color()}
    start = first_of_stage_two(found)
    layers = [
        {
            "data": {"values": [{"gap": 0}]},
            "mark": {"type": "rule", "color": MUTED},
            "encoding": {"y": y, **across},
        },
        {"mark": {"type": "rule", "opacity": 0.25, "clip": True}, "encoding": bars},
        {
            "transform": [{"filter": "isValid(datum.floor)"}],
            "mark": {**dotted, "color": MUTED},
            "encoding": {"y": {**y, "field": "floor"}},
        },
        _line("smooth_gap", y),
        _dots("gap", y),
        *([] if start is None else _stage_two(start)),
    ]
    return {"height": 210, "encoding": {"x": x}, "layer": layers}


def _stage_two(start: int) -> list[Spec]:
    data = {"values": [{"step": start, "label": "Stage II"}]}
    text = {"type": "text", "align": "left", "dx": 5, "color": MUTED}
    return [
        {"data": data, "mark": {"type": "rule", "strokeDash": [4, 4], "color": MUTED}},
        {"data": data, "mark": text, "encoding": {"text": {"field": "label"}, "y": {"value": 9}}},
    ]


def _tokens(x: Spec) -> Spec:
    y = axis("tokens", "tokens", scale={"zero": True})
    reference = {"type": "line", "color": GREY, "clip": True}
    layers = [
        {"mark": reference, "encoding": {"y": {**y, "field": "reference_tokens"}}},
        _line("smooth_tokens", y),
        _dots("tokens", y),
    ]
    return {"height": 130, "encoding": {"x": x}, "layer": layers}


def _line(field: str, y: Spec) -> Spec:
    mark = {"type": "line", "color": INK, "strokeWidth": 2, "clip": True}
    return {"mark": mark, "encoding": {"y": {**y, "field": field}}}


def _dots(name: str, y: Spec) -> Spec:
    return {
        "params": zoom(name),
        "mark": {"type": "point", "filled": True, "size": 24, "clip": True},
        "encoding": {"y": y, "color": _color(), "tooltip": tooltip(FIELDS)},
    }
