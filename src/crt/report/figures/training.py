"""Training, step by step: what each step was for, accuracy against its floor, tokens, λ."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crt.report.figures import style
from crt.report.figures.training_rows import GOALS, rows, stage_two, thinned
from crt.report.figures.vega import Spec, tooltip, x_axis, y_axis, zoom
from crt.report.palette import LIGHT
from crt.report.sources import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TITLE", "caption", "drawn", "rows", "spec", "stage_two"]
TITLE = "Training, step by step"
MOST = 600  # steps on the page; the lines are smoothed over all of them


def caption(found: Sequence[Row]) -> str:
    """How to read it."""
    goals = [row["goal"] for row in found]
    told = ", ".join(f"{goals.count(g)} for {g}" for g in GOALS if g in goals)
    has_floor = any(row["floor"] is not None for row in found)
    floor = " The dotted line is the floor below which Stage I restores accuracy."
    return (
        f"{len(found)} steps: {told}. Dots are steps with ± one standard error of the paired gap, "
        f"lines are smoothed.{_left_out(found)}{floor if has_floor else ''}"
    )


def _left_out(found: Sequence[Row]) -> str:
    every = -(-len(found) // MOST)
    return f" One step in {every} is shown." if every > 1 else ""


def spec(found: Sequence[Row]) -> Spec:
    """Panels above each other on one axis of steps."""
    found = thinned(found, MOST)
    steps = [row["step"] for row in found]
    domain = [min(steps) - 1, max(steps) + 1]
    used = [goal for goal in GOALS if goal in {row["goal"] for row in found}]
    views = [_ribbon(domain, used), _gap(found, domain), _tokens(domain)]
    if any(row["multiplier"] is not None for row in found):
        views.append(_multiplier(domain))
    views[-1]["encoding"]["x"] = _x(domain, "training step")
    return {"data": {"values": list(found)}, "vconcat": views, "spacing": 14, "resolve": _OWN}


_OWN = {"scale": {"color": "independent"}}


def _x(domain: list[int], title: str | None = None) -> Spec:
    axis = {} if title else {"axis": {"labels": False, "ticks": False, "grid": False}}
    return x_axis("step", title or "", scale={"domain": domain, "nice": False}, **axis)


def _goal() -> Spec:
    scale = {"domain": list(GOALS), "range": [f"@{colour}" for colour in GOALS.values()]}
    return {"field": "goal", "type": "nominal", "scale": scale}


_TOLD = {
    "step": "step",
    "": "stage",
    "goal": "goal",
    "accuracy %": "accuracy:.1f",
    "reference %": "reference:.1f",
    "tokens": "tokens:.1f",
    "reference's tokens": "reference_tokens:.1f",
}


def _ribbon(domain: list[int], goals: list[str]) -> Spec:
    legend = {"orient": "top", "title": None, "symbolType": "square", "values": goals}
    return {
        "width": "1/1",
        "height": 22,
        "mark": {"type": "rect", "clip": True},
        "encoding": {
            "x": {**_x(domain), "field": "step"},
            "x2": {"field": "until"},
            "color": {**_goal(), "legend": legend},
            "tooltip": tooltip(_TOLD),
        },
    }


def _gap(found: Sequence[Row], domain: list[int]) -> Spec:
    y = y_axis("gap", "accuracy − reference, points")
    dotted = {"type": "line", "interpolate": "step-after", "strokeDash": [2, 3], "clip": True}
    zero = {"data": {"values": [{"zero": 0}]}, "mark": {"type": "rule", "color": "@muted"}}
    layers: list[Spec] = [
        {**zero, "encoding": {"y": {"field": "zero", "type": "quantitative"}, "x": {"value": 0}}},
        {
            "mark": {"type": "rule", "opacity": 0.25, "clip": True},
            "encoding": {
                "y": {**y, "field": "gap_low"},
                "y2": {"field": "gap_high"},
                "color": {**_goal(), "legend": None},
            },
        },
        {
            "mark": {**dotted, "color": "@muted"},
            "encoding": {"y": {**y, "field": "floor"}},
            "transform": [{"filter": "isValid(datum.floor)"}],
        },
        {
            "mark": {"type": "line", "color": "@ink", "strokeWidth": 2, "clip": True},
            "encoding": {"y": {**y, "field": "smooth_gap"}},
        },
        {
            "params": zoom("gap"),
            "mark": {"type": "point", "filled": True, "size": 26, "clip": True},
            "encoding": {
                "y": y,
                "color": {**_goal(), "legend": None},
                "tooltip": tooltip(_TOLD),
            },
        },
    ]
    layers[0]["encoding"]["x2"] = {"value": "width"}
    if (start := stage_two(found)) is not None:
        layers.append(_second_stage(start))
    return {"width": "1/1", "height": 210, "encoding": {"x": _x(domain)}, "layer": layers}


def _second_stage(start: int) -> Spec:
    text = {"type": "text", "align": "left", "dx": 5, "dy": -96, "color": "@muted"}
    place = {"x": {"field": "step", "type": "quantitative"}}
    return {
        "data": {"values": [{"step": start, "label": "Stage II"}]},
        "encoding": place,
        "layer": [
            {"mark": {"type": "rule", "strokeDash": [4, 4], "color": "@muted"}},
            {
                "mark": text,
                "encoding": {"text": {"field": "label"}, "y": {"value": 105}},
            },
        ],
    }


def _tokens(domain: list[int]) -> Spec:
    y = y_axis("tokens", "tokens", scale={"zero": True})
    return {
        "width": "1/1",
        "height": 130,
        "encoding": {"x": _x(domain)},
        "layer": [
            {
                "mark": {"type": "line", "color": "@grey", "clip": True},
                "encoding": {"y": {**y, "field": "reference_tokens"}},
            },
            {
                "mark": {"type": "line", "color": "@ink", "strokeWidth": 2, "clip": True},
                "encoding": {"y": {**y, "field": "smooth_tokens"}},
            },
            {
                "params": zoom("tokens"),
                "mark": {"type": "point", "filled": True, "size": 22, "clip": True},
                "encoding": {
                    "y": y,
                    "color": {**_goal(), "legend": None},
                    "tooltip": tooltip(_TOLD),
                },
            },
        ],
    }


def _multiplier(domain: list[int]) -> Spec:
    return {
        "width": "1/1",
        "height": 90,
        "mark": {"type": "line", "color": "@purple", "strokeWidth": 2, "point": False},
        "encoding": {"x": _x(domain), "y": y_axis("multiplier", "λ", scale={"zero": True})},
    }


@style.in_print
def drawn(found: Sequence[Row]) -> "Figure":
    """The same, for print."""
    has_multiplier = any(row["multiplier"] is not None for row in found)
    heights = [0.25, 2.2, 1.4, *([1.0] if has_multiplier else [])]
    figure, grid = style.axes(
        len(heights), 1, style.PAGE * 0.75, 1.0 + sum(heights) * 0.75, sharex=True,
        gridspec_kw={"height_ratios": heights},
    )  # fmt: skip
    axes = [line[0] for line in grid]
    _draw_ribbon(axes[0], found)
    _draw_gap(axes[1], found)
    _draw_tokens(axes[2], found)
    if has_multiplier:
        known = [row for row in found if row["multiplier"] is not None]
        values = [row["multiplier"] for row in known]
        axes[3].plot([row["step"] for row in known], values, color=LIGHT["purple"])
        axes[3].set_ylabel("λ")
    axes[-1].set_xlabel("training step")
    style.legend_above(figure, axes[0])
    return figure


def _draw_ribbon(axis: Any, found: Sequence[Row]) -> None:
    for goal, colour in GOALS.items():
        part = [(row["step"], row["until"] - row["step"]) for row in found if row["goal"] == goal]
        if part:
            axis.broken_barh(part, (0, 1), color=LIGHT[colour], label=goal, linewidth=0)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
    axis.set_title("goal of each step")


def _draw_gap(axis: Any, found: Sequence[Row]) -> None:
    steps = [row["step"] for row in found]
    colours = [LIGHT[GOALS[row["goal"]]] for row in found]
    low, high = [row["gap_low"] for row in found], [row["gap_high"] for row in found]
    axis.axhline(0, color=LIGHT["grey"], linewidth=0.8)
    axis.vlines(steps, low, high, colors=colours, alpha=0.3, linewidth=0.8)
    axis.scatter(steps, [row["gap"] for row in found], c=colours, s=7, zorder=3)
    axis.plot(steps, [row["smooth_gap"] for row in found], color=LIGHT["ink"])
    floor = [float("nan") if row["floor"] is None else row["floor"] for row in found]
    axis.plot(steps, floor, ":", color=LIGHT["muted"], drawstyle="steps-post", linewidth=1)
    axis.set_ylabel("accuracy − ref.,\npoints")
    if (start := stage_two(found)) is not None:
        axis.axvline(start, color=LIGHT["muted"], linestyle="--", linewidth=0.8)
        axis.annotate("Stage II", (start, 0.97), (4, 0), xycoords=("data", "axes fraction"),
                      textcoords="offset points", va="top", fontsize=7)  # fmt: skip


def _draw_tokens(axis: Any, found: Sequence[Row]) -> None:
    steps = [row["step"] for row in found]
    colours = [LIGHT[GOALS[row["goal"]]] for row in found]
    axis.plot(steps, [row["reference_tokens"] for row in found], color=LIGHT["grey"])
    axis.scatter(steps, [row["tokens"] for row in found], c=colours, s=6, zorder=3)
    axis.plot(steps, [row["smooth_tokens"] for row in found], color=LIGHT["ink"])
    axis.set(ylabel="tokens")
    axis.set_ylim(bottom=0)
