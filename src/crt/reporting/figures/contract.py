"""The contract over training: every line's value beside its bound, step by step."""

from collections.abc import Sequence

from crt.algorithm.contract import is_share
from crt.reporting import style
from crt.reporting.figures.training import MOST_STEPS, SMOOTHING, thin_out
from crt.reporting.load import ReportData, Row, RunView
from crt.reporting.style import Figure, Spec, axis, layer, mark, tooltip

STATES = {"kept": style.BLUE, "broken": style.VERMILLION}
CAPTION = (
    "One panel per line of the contract. Dots are steps with ± one standard error, the line is "
    "smoothed, the dotted line is the bound with its tolerance."
)
FIELDS = {"step": "step", "value": "value:.4g", "bound": "bound:.4g", "margin": "margin:.4g"}


def figures(data: ReportData) -> list[Figure]:
    """One figure per run that has a contract."""
    return [
        Figure(
            *("contract", "The contract, step by step", spec(run, lines), CAPTION),
            label=f"{run.name}, seed {run.config.seed}",
            inches=5.2,
        )
        for run in data.runs
        if (lines := make_rows(run))
    ]


def make_rows(run: RunView) -> dict[str, list[Row]]:
    """Line → a row per step that measured it; shares in %."""
    lines: dict[str, list[Row]] = {}
    for line in run.config.contract.promises:
        unit = 100.0 if is_share(line.metric) else 1.0
        for step in run.steps:
            found = (step.get("lines") or {}).get(line.name)
            if found is None:
                continue
            rows = lines.setdefault(line.name, [])
            value, error = unit * found["value"], unit * found["standard_error"]
            smooth = rows[-1]["smooth"] if rows else value
            rows.append(
                {
                    **{"step": step["step"], "until": step["step"] + 1, "value": value},
                    **{"low": value - error, "high": value + error},
                    "smooth": SMOOTHING * smooth + (1 - SMOOTHING) * value,
                    "bound": unit * (found["bound"] - line.sign * line.tolerance),
                    "margin": unit * found["margin"],
                    "state": "kept" if found["margin"] >= 0 else "broken",
                }
            )
    return lines


def spec(run: RunView, lines: dict[str, list[Row]]) -> Spec:
    """Panels above each other, the metric's unit at the side of each."""
    steps = [row["step"] for rows in lines.values() for row in rows]
    edges = [min(steps) - 1, max(steps) + 1]
    panels = [
        {
            "title": {"text": name, "fontSize": 12, "frame": "group"},
            **style.panel(
                *(120, _layers(number), thin_out(rows, MOST_STEPS)),
                x=axis("step", "training step" if number == len(lines) - 1 else "", domain=edges),
                y=axis("value", _unit(run, name)),
            ),
        }
        for number, (name, rows) in enumerate(lines.items())
    ]
    return {"vconcat": panels, "spacing": 62, "bounds": "flush"}


def _unit(run: RunView, name: str) -> str:
    (line,) = (each for each in run.config.contract.promises if each.name == name)
    metric = line.metric.rpartition("/")[2]
    return f"{metric}, %" if is_share(line.metric) else metric


def _layers(number: int) -> Sequence[Spec]:
    """The bound, the steps with their errors, and the smoothed line."""
    color = style.nominal("state", STATES, STATES.values(), style.LEGEND if number == 0 else None)
    dotted = mark("line", interpolate="step-after", strokeDash=[2, 3], color=style.MUTED)
    dots = layer(mark("point", filled=True, size=24), color=color, tooltip=tooltip(FIELDS))
    return [
        layer(dotted, y="bound"),
        layer(mark("rule", opacity=0.25), y="low", y2="high", color=color),
        layer(mark("line", color=style.INK, strokeWidth=2), y="smooth"),
        style.zoomable(f"zoom_line{number}", dots),
    ]
