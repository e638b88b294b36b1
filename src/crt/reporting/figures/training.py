"""Training, step by step: what each step was for, accuracy against its floor, tokens, λ."""

from collections.abc import Sequence

from crt.reporting import style
from crt.reporting.load import ReportData, Row, RunView
from crt.reporting.style import Figure, Spec, axis, layer, mark, tooltip

GUARDED = ("crt", "crt_1s", "primal_dual")  # whose margin in Stage I is one of accuracy
GOALS = {"length": style.BLUE, "accuracy": style.VERMILLION, "mixed": style.GREEN}
COLOR = style.nominal("goal", GOALS, GOALS.values(), None)
SMOOTHING = 0.8
MOST_STEPS = 600  # in the figure; the lines are smoothed over all of them
TOOLTIP = tooltip(
    {
        **{"step": "step", "": "stage", "goal": "goal", "accuracy %": "accuracy:.1f"},
        **{"reference %": "reference:.1f", "tokens": "tokens:.1f"},
        "reference's tokens": "reference_tokens:.1f",
    }
)


def figures(data: ReportData) -> list[Figure]:
    """One figure per run."""
    return [
        Figure(
            "training",
            "Training, step by step",
            spec(rows),
            caption(rows),
            label=f"{run.name}, seed {run.config.seed}",
            inches=5.2,
        )
        for run in data.runs
        if (rows := make_rows(run))
    ]


def make_rows(run: RunView) -> list[Row]:
    """A row per step, accuracies in points; steps without any usable problem are left out."""
    rows: list[Row] = []
    for step in run.steps:
        if step.get("accuracy") is None:
            continue
        accuracy, reference = 100 * step["accuracy"], 100 * step["reference_accuracy"]
        gap, tokens = accuracy - reference, step["tokens"]
        error = 100 * (step.get("standard_error") or 0.0)
        stage = int(step.get("stage", 1))
        has_floor = run.method in GUARDED and stage == 1 and step.get("margin") is not None
        before = rows[-1] if rows else {"smooth_gap": gap, "smooth_tokens": tokens}
        rows.append(
            {
                **{"step": step["step"], "until": step["step"] + 1, "goal": step["goal"]},
                **{"stage": f"Stage {'I' * stage}", "accuracy": accuracy, "reference": reference},
                **{"gap": gap, "gap_low": gap - error, "gap_high": gap + error},
                "floor": gap - 100 * step["margin"] if has_floor else None,
                **{"tokens": tokens, "reference_tokens": step["reference_tokens"]},
                "smooth_gap": _smooth(before["smooth_gap"], gap),
                "smooth_tokens": _smooth(before["smooth_tokens"], tokens),
                "multiplier": step.get("multiplier"),
            }
        )
    return rows


def _smooth(before: float, value: float) -> float:
    return SMOOTHING * before + (1 - SMOOTHING) * value


def thin_out(rows: Sequence[Row], most: int) -> list[Row]:
    """At most so many rows, evenly spaced; each reaches to the next."""
    kept = list(rows[:: max(1, -(-len(rows) // most))])
    ends = [row["step"] for row in kept[1:]] + [row["until"] for row in rows[-1:]]
    return [{**row, "until": end} for row, end in zip(kept, ends, strict=True)]


def caption(rows: Sequence[Row]) -> str:
    """How to read it."""
    goals = [row["goal"] for row in rows]
    counts = ", ".join(f"{goals.count(goal)} for {goal}" for goal in GOALS if goal in goals)
    every = -(-len(rows) // MOST_STEPS)
    text = (
        f"{len(rows)} steps: {counts}. Dots are steps with ± one standard error of the paired "
        "gap, lines are smoothed."
    )
    if every > 1:
        text += f" One step in {every} is shown."
    if any(row["floor"] is not None for row in rows):
        text += " The dotted line is the floor below which Stage I restores accuracy."
    return text


def spec(rows: Sequence[Row]) -> Spec:
    """Panels above each other on one axis of steps."""
    rows = thin_out(rows, MOST_STEPS)
    x = axis("step", "", domain=[rows[0]["step"] - 1, rows[-1]["step"] + 1])
    blank = {**x, "axis": {"labels": False, "ticks": False}}
    reference = layer(mark("line", color=style.GREY), y="reference_tokens")
    tokens = [reference, *_line_and_dots("tokens")]
    panels = [
        style.panel(22, [_goals(rows)], x={**x, "axis": None}),
        style.panel(210, _gap(rows), x=blank, y=axis("gap", "accuracy − reference, points")),
        style.panel(130, tokens, x=blank, y=axis("tokens", "tokens", zero=True)),
    ]
    if any(row["multiplier"] is not None for row in rows):
        line = layer(mark("line", color=style.PURPLE, strokeWidth=2))
        panels.append(style.panel(90, [line], x=blank, y=axis("multiplier", "λ", zero=True)))
    panels[-1]["encoding"]["x"] = {**x, "title": "training step"}
    independent = {"scale": {"color": "independent"}}
    return {"data": {"values": rows}, "vconcat": panels, "spacing": 14, "resolve": independent}


def _goals(rows: Sequence[Row]) -> Spec:
    used = [goal for goal in GOALS if any(row["goal"] == goal for row in rows)]
    legend = {"orient": "top", "title": None, "symbolType": "square", "values": used}
    return layer(mark("rect"), x2="until", color={**COLOR, "legend": legend}, tooltip=TOOLTIP)


def _gap(rows: Sequence[Row]) -> list[Spec]:
    """The gap with its standard error, the floor, and where Stage II begins."""
    dotted = mark("line", interpolate="step-after", strokeDash=[2, 3], color=style.MUTED)
    starts = [row["step"] for row in rows if row["stage"] == "Stage II"][:1]
    stage_two = [{"step": step, "label": "Stage II"} for step in starts]
    whole_height = {"y": {"value": 0}, "y2": {"value": "height"}}
    text = mark("text", align="left", dx=5, color=style.MUTED)
    return [
        style.across("gap", (1, 0), [{"gap": 0}]),
        layer(mark("rule", opacity=0.25), y="gap_low", y2="gap_high", color=COLOR),
        layer(dotted, [row for row in rows if row["floor"] is not None], y="floor"),
        *_line_and_dots("gap"),
        layer(mark("rule", strokeDash=[4, 4], color=style.MUTED), stage_two, **whole_height),
        layer(text, stage_two, text="label", y={"value": 9}),
    ]


def _line_and_dots(name: str) -> list[Spec]:
    """The smoothed line, and the steps as dots in the colour of their goal."""
    dots = layer(mark("point", filled=True, size=24), color=COLOR, tooltip=TOOLTIP)
    line = layer(mark("line", color=style.INK, strokeWidth=2), y=f"smooth_{name}")
    return [line, style.zoomable(f"zoom_{name}", dots)]
