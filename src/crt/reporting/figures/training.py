"""Training, step by step: what each step was for, accuracy against its floor, tokens, λ."""

from collections.abc import Iterator, Sequence

from crt.reporting import style
from crt.reporting.load import ReportData, Row, RunView
from crt.reporting.style import Figure, Spec, axis, layer, mark, tooltip

KEY, TITLE, INCHES = "training", "Training, step by step", 5.2
GUARDED = ("crt", "crt_1s", "primal_dual")  # whose margin in Stage I is one of accuracy
GOALS = {"length": style.BLUE, "accuracy": style.VERMILLION, "mixed": style.GREEN}
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
        Figure(KEY, TITLE, spec(rows), caption(rows), f"{run.name}, seed {run.config.seed}", INCHES)
        for run in data.runs
        if (rows := make_rows(run))
    ]


def make_rows(run: RunView) -> list[Row]:
    """A row per step, accuracies in points; steps without any usable problem are left out."""
    usable = [step for step in run.steps if step.get("accuracy") is not None]
    return list(_rows(usable, run.method in GUARDED))


def _rows(steps: Sequence[Row], guarded: bool) -> Iterator[Row]:
    smooth: Row = {}
    for step in steps:
        accuracy, reference = 100 * step["accuracy"], 100 * step["reference_accuracy"]
        gap = accuracy - reference
        error = 100 * (step.get("standard_error") or 0.0)
        has_floor = guarded and step.get("stage", 1) == 1 and step.get("margin") is not None
        smooth = {
            name: SMOOTHING * smooth.get(name, value) + (1 - SMOOTHING) * value
            for name, value in {"smooth_gap": gap, "smooth_tokens": step["tokens"]}.items()
        }
        yield {
            **{"step": step["step"], "until": step["step"] + 1, "goal": step["goal"]},
            "stage": f"Stage {'I' * int(step.get('stage', 1))}",
            **{"accuracy": accuracy, "reference": reference},
            **{"gap": gap, "gap_low": gap - error, "gap_high": gap + error},
            "floor": gap - 100 * step["margin"] if has_floor else None,
            **{"tokens": step["tokens"], "reference_tokens": step["reference_tokens"]},
            **smooth,
            "multiplier": step.get("multiplier"),
        }


def thin_out(rows: Sequence[Row], most: int) -> list[Row]:
    """At most so many rows, evenly spaced; each reaches to the next."""
    every = max(1, -(-len(rows) // most))
    kept = list(rows[::every])
    ends = [row["step"] for row in kept[1:]] + [row["until"] for row in rows[-1:]]
    return [{**row, "until": end} for row, end in zip(kept, ends, strict=True)]


def first_of_stage_two(rows: Sequence[Row]) -> int | None:
    """The first step of Stage II."""
    return next((row["step"] for row in rows if row["stage"] == "Stage II"), None)


def caption(rows: Sequence[Row]) -> str:
    """How to read it."""
    goals = [row["goal"] for row in rows]
    counts = ", ".join(f"{goals.count(g)} for {g}" for g in GOALS if g in goals)
    every = -(-len(rows) // MOST_STEPS)
    thinned = f" One step in {every} is shown." if every > 1 else ""
    has_floor = any(row["floor"] is not None for row in rows)
    floor = " The dotted line is the floor below which Stage I restores accuracy."
    return (
        f"{len(rows)} steps: {counts}. Dots are steps with ± one standard error of the paired "
        f"gap, lines are smoothed.{thinned}{floor if has_floor else ''}"
    )


def spec(rows: Sequence[Row]) -> Spec:
    """Panels above each other on one axis of steps."""
    rows = thin_out(rows, MOST_STEPS)
    x = axis("step", "", domain=[rows[0]["step"] - 1, rows[-1]["step"] + 1])
    blank = {**x, "axis": {"labels": False, "ticks": False}}
    panels = [_goals(rows, {**x, "axis": None}), _gap(rows, blank), _tokens(blank)]
    if any(row["multiplier"] is not None for row in rows):
        line = layer(mark("line", color=style.PURPLE, strokeWidth=2))
        panels.append(style.panel(90, [line], x=blank, y=axis("multiplier", "λ", zero=True)))
    panels[-1]["encoding"]["x"] = {**x, "title": "training step"}
    independent = {"scale": {"color": "independent"}}
    return {"data": {"values": rows}, "vconcat": panels, "spacing": 14, "resolve": independent}


def _color(legend: Spec | None = None) -> Spec:
    return style.nominal("goal", GOALS, GOALS.values(), legend)


def _goals(rows: Sequence[Row], x: Spec) -> Spec:
    used = [goal for goal in GOALS if any(row["goal"] == goal for row in rows)]
    legend = {"orient": "top", "title": None, "symbolType": "square", "values": used}
    bars = layer(mark("rect"), x2="until", color=_color(legend), tooltip=tooltip(FIELDS))
    return style.panel(22, [bars], x=x)


def _gap(rows: Sequence[Row], x: Spec) -> Spec:
    dotted = mark("line", interpolate="step-after", strokeDash=[2, 3], color=style.MUTED)
    start = first_of_stage_two(rows)
    stage_two = [] if start is None else [{"step": start, "label": "Stage II"}]
    text = mark("text", align="left", dx=5, color=style.MUTED)
    layers = [
        style.across("gap", (1, 0), [{"gap": 0}]),
        layer(mark("rule", opacity=0.25), y="gap_low", y2="gap_high", color=_color()),
        layer(dotted, [row for row in rows if row["floor"] is not None], y="floor"),
        *_line_and_dots("gap"),
        layer(
            mark("rule", strokeDash=[4, 4], color=style.MUTED),
            stage_two,
            y={"value": 0},
            y2={"value": "height"},
        ),
        layer(text, stage_two, text="label", y={"value": 9}),
    ]
    return style.panel(210, layers, x=x, y=axis("gap", "accuracy − reference, points"))


def _tokens(x: Spec) -> Spec:
    reference = layer(mark("line", color=style.GREY), y="reference_tokens")
    layers = [reference, *_line_and_dots("tokens")]
    return style.panel(130, layers, x=x, y=axis("tokens", "tokens", zero=True))


def _line_and_dots(name: str) -> list[Spec]:
    """The smoothed line, and the steps as dots in the colour of their goal."""
    dots = layer(mark("point", filled=True, size=24), color=_color(), tooltip=tooltip(FIELDS))
    line = layer(mark("line", color=style.INK, strokeWidth=2), y=f"smooth_{name}")
    return [line, style.zoomable(f"zoom_{name}", dots)]
