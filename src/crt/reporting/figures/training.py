"""Over training: what each step was for and where it led, the contract, the checkpoints."""

from collections.abc import Iterator, Sequence

from crt.algorithm.contract import is_share
from crt.evaluation.datasets import TITLES
from crt.reporting import style
from crt.reporting.load import (
    EvaluationGroup,
    ReportData,
    Row,
    RunView,
    group_by,
    mean_and_range,
    with_interval,
)
from crt.reporting.style import Figure, Spec, axis, layer, mark, tooltip

GUARDED = ("crt", "crt_1s", "primal_dual")  # whose margin in Stage I is one of accuracy
GOALS = {"length": style.BLUE, "accuracy": style.VERMILLION, "mixed": style.GREEN}
GOALS |= {"repair": style.ORANGE}  # of a line that is not about accuracy
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
STATES = {"kept": style.BLUE, "broken": style.VERMILLION}  # of a contract's line
LINE_TOOLTIP = tooltip(
    {"step": "step", "value": "value:.4g", "bound": "bound:.4g", "margin": "margin:.4g"}
)
CONTRACT_CAPTION = (
    "One panel per line of the contract. Dots are steps with ± one standard error, the line is "
    "smoothed, the dotted line is the bound with its tolerance."
)
PANELS = {"len": "Tokens", "acc": "Accuracy, %"}
VALIDATION = "Validation problems"


def figures(data: ReportData) -> list[Figure]:
    """The steps of each run, then the contract of each that has one."""
    steps: list[Figure] = []
    contracts: list[Figure] = []
    for run in data.runs:
        label = f"{run.name}, seed {run.config.seed}"
        if rows := make_rows(run):
            parts = ("Training, step by step", spec(rows), caption(rows))
            steps.append(Figure("training", *parts, label, inches=5.2))
        if lines := line_rows(run):
            parts = ("The contract, step by step", line_spec(run, lines), CONTRACT_CAPTION)
            contracts.append(Figure("contract", *parts, label, inches=5.2))
    return [*steps, *contracts]


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
        has_floor = has_floor and "lines" not in step
        before = rows[-1] if rows else {"smooth_gap": gap, "smooth_tokens": tokens}
        rows.append(
            {
                **{"step": step["step"], "until": step["step"] + 1, "goal": step["goal"]},
                **{"stage": f"Stage {'I' * stage}", "accuracy": accuracy, "reference": reference},
                **{"gap": gap, "gap_low": gap - error, "gap_high": gap + error},
                "floor": gap - 100 * step["margin"] if has_floor else None,
                **{"tokens": tokens, "reference_tokens": step["reference_tokens"]},
                "smooth_gap": SMOOTHING * before["smooth_gap"] + (1 - SMOOTHING) * gap,
                "smooth_tokens": SMOOTHING * before["smooth_tokens"] + (1 - SMOOTHING) * tokens,
                "multiplier": step.get("multiplier"),
            }
        )
    return rows


def thin_out(rows: Sequence[Row], most: int) -> list[Row]:
    """At most so many rows, evenly spaced; each reaches to the next."""
    kept = list(rows[:: max(1, -(-len(rows) // most))])
    ends = [row["step"] for row in kept[1:]] + [row["until"] for row in rows[-1:]]
    return [{**row, "until": end} for row, end in zip(kept, ends, strict=True)]


def caption(rows: Sequence[Row]) -> str:
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
    used = [goal for goal in GOALS if any(row["goal"] == goal for row in rows)]
    legend = {"orient": "top", "title": None, "symbolType": "square", "values": used}
    goals = layer(mark("rect"), x2="until", color={**COLOR, "legend": legend}, tooltip=TOOLTIP)
    reference = layer(mark("line", color=style.GREY), y="reference_tokens")
    tokens = [reference, *_line_and_dots("tokens")]
    panels = [
        style.panel(22, [goals], x={**x, "axis": None}),
        style.panel(210, _gap(rows), x=blank, y=axis("gap", "accuracy − reference, points")),
        style.panel(130, tokens, x=blank, y=axis("tokens", "tokens", zero=True)),
    ]
    if any(row["multiplier"] is not None for row in rows):
        line = layer(mark("line", color=style.PURPLE, strokeWidth=2))
        panels.append(style.panel(90, [line], x=blank, y=axis("multiplier", "λ", zero=True)))
    panels[-1]["encoding"]["x"] = {**x, "title": "training step"}
    independent = {"scale": {"color": "independent"}}
    return {"data": {"values": rows}, "vconcat": panels, "spacing": 14, "resolve": independent}


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


# The contract: every line's value beside its bound


def line_rows(run: RunView) -> dict[str, list[Row]]:
    """Line → a row per step that measured it; shares in %."""
    lines: dict[str, list[Row]] = {}
    for line in run.config.contract.promises:
        unit = 100.0 if is_share(line.metric) else 1.0
        for step in run.steps:
            measured = (step.get("lines") or {}).get(line.name)
            if measured is None:
                continue
            rows = lines.setdefault(line.name, [])
            value, error = unit * measured["value"], unit * measured["standard_error"]
            smooth = rows[-1]["smooth"] if rows else value
            rows.append(
                {
                    **{"step": step["step"], "until": step["step"] + 1, "value": value},
                    **{"low": value - error, "high": value + error},
                    "smooth": SMOOTHING * smooth + (1 - SMOOTHING) * value,
                    "bound": unit * (measured["bound"] - line.sign * line.tolerance),
                    "margin": unit * measured["margin"],
                    "state": "kept" if measured["margin"] >= 0 else "broken",
                }
            )
    return lines


def line_spec(run: RunView, lines: dict[str, list[Row]]) -> Spec:
    """Panels above each other, the metric's unit at the side of each."""
    steps = [row["step"] for rows in lines.values() for row in rows]
    edges = [min(steps) - 1, max(steps) + 1]
    metrics = {line.name: line.metric for line in run.config.contract.promises}
    panels: list[Spec] = []
    for number, (name, rows) in enumerate(lines.items()):
        metric = metrics[name].rpartition("/")[2]
        unit = f"{metric}, %" if is_share(metrics[name]) else metric
        x = axis("step", "training step" if number == len(lines) - 1 else "", domain=edges)
        layers = _line_layers(number)
        panel = style.panel(120, layers, thin_out(rows, MOST_STEPS), x=x, y=axis("value", unit))
        panels.append({"title": {"text": name, "fontSize": 12, "frame": "group"}, **panel})
    return {"vconcat": panels, "spacing": 62, "bounds": "flush"}


def _line_layers(number: int) -> Sequence[Spec]:
    """The bound, the steps with their errors, and the smoothed line."""
    color = style.nominal("state", STATES, STATES.values(), style.LEGEND if number == 0 else None)
    dotted = mark("line", interpolate="step-after", strokeDash=[2, 3], color=style.MUTED)
    dots = layer(mark("point", filled=True, size=24), color=color, tooltip=LINE_TOOLTIP)
    return [
        layer(dotted, y="bound"),
        layer(mark("rule", opacity=0.25), y="low", y2="high", color=color),
        layer(mark("line", color=style.INK, strokeWidth=2), y="smooth"),
        style.zoomable(f"zoom_line{number}", dots),
    ]


# Trajectories: accuracy and length over checkpoints, in- and out-domain, with bands over seeds


def trajectory_figures(data: ReportData) -> list[Figure]:
    rows = trajectory_rows(data)
    if len(rows) < 2:
        return []
    title = "Accuracy and length over training"
    return [Figure("trajectories", title, trajectory_spec(rows), trajectory_caption(rows))]


def trajectory_rows(data: ReportData) -> list[Row]:
    """A row per curve, data sets and step; one curve per name, whatever its seeds."""
    series = [group for group in data.groups if group.is_series]
    rows = [row for group in series for row in _series_rows(group)]
    evaluated = {id(group.run) for group in series}
    rows += [r for run in data.runs if id(run) not in evaluated for r in _validation_rows(run)]
    # a second series of a seed is not a second seed
    first = [same[0] for same in group_by(rows, "sets", "curve", "step", "seed").values()]
    return merge_seeds(first)


def _series_rows(group: EvaluationGroup) -> Iterator[Row]:
    seed = group.run.config.seed if group.run else 0
    for point in group.points:
        for key in [name for name in point.averages if name != "all"] or ["all"]:
            metrics = point.averages[key]
            if "acc" not in metrics or "len" not in metrics:
                continue
            few = key in ("own", "all") and len(metrics["sets"]) <= 2
            row = {
                "sets": ", ".join(metrics["sets"]) if few else TITLES[key],
                **{"curve": group.curve, "seed": seed, "step": point.step},
                "recommended": group.is_recommended(point),
            }
            for name in PANELS:  # an interval that is not known is the value itself
                bounds = with_interval(name, metrics[name])
                row |= {k: bounds[name] if v is None else v for k, v in bounds.items()}
            yield row


def _validation_rows(run: RunView) -> Iterator[Row]:
    """From the records beside the checkpoints; step 0 is the reference on the same problems."""
    records = run.records
    first = next(iter(records.values()), {})
    if first.get("reference_tokens") is not None:
        start = {"accuracy": first["reference_accuracy"], "tokens": first["reference_tokens"]}
        records = {0: start, **records}
    for step, record in records.items():
        acc, length = 100 * record["accuracy"], record["tokens"]
        error = 196 * (record.get("accuracy_error", record.get("standard_error")) or 0.0)
        yield {
            **{"sets": VALIDATION, "curve": run.name, "seed": run.config.seed, "step": step},
            "recommended": bool(step) and step == run.recommended,
            **{"acc": acc, "acc_low": acc - error, "acc_high": min(100.0, acc + error)},
            **{"len": length, "len_low": length, "len_high": length},
        }


def merge_seeds(rows: Sequence[Row]) -> list[Row]:
    """Seeds of a curve as one row: their mean, and their range instead of the interval."""
    return [
        {**seeds[0], "seeds": len(seeds)}
        | (mean_and_range(PANELS, seeds) if len(seeds) > 1 else {})
        for _, seeds in sorted(group_by(rows, "sets", "curve", "step").items())
    ]


def trajectory_caption(rows: Sequence[Row]) -> str:
    """What the band is."""
    seeds = max(row["seeds"] for row in rows)
    end = "The dashed line is the accuracy before training."
    if any(row["recommended"] for row in rows):
        end += " The ring marks the recommended checkpoint."
    if seeds > 1:
        return f"Mean over up to {seeds} seeds; the band is their range. {end}"
    if any(row["sets"] == VALIDATION for row in rows):
        return (
            "The checkpoints on the validation problems of the run; step 0 is the frozen "
            f"reference. The band is ±1.96 standard errors of the gap to the reference. {end}"
        )
    return f"The band is the 95 % interval, bootstrapped over problems. {end}"


def trajectory_spec(rows: Sequence[Row]) -> Spec:
    """Two panels per group of data sets: tokens and accuracy."""
    color, shape = style.color_and_shape("curve", {row["curve"] for row in rows})
    x = axis("step", "training step", nice=False, padding=9)
    panels: list[Spec] = []
    for (sets,), part in group_by(rows, "sets").items():
        for name, title in PANELS.items():
            y = axis(name, zero=name == "len")
            layers = _curve_layers(part, name, shape, f"zoom{len(panels)}")
            panel = style.panel(220, layers, part, x=x, y=y, color=color)
            panels.append({"title": f"{title} · {sets}", **panel})
    return style.side_by_side(panels)


def _curve_layers(part: Sequence[Row], name: str, shape: Spec, zoom: str) -> list[Spec]:
    """The band, the value before training, the line, the recommended checkpoint, the points."""
    fields = {"": "curve", "step": "step", "tokens": "len:.1f", "accuracy %": "acc:.1f"}
    fields |= {"from": f"{name}_low:.1f", "to": f"{name}_high:.1f"}
    start = [row for row in part if row["step"] == 0][:1] if name == "acc" else []
    recommended = [row for row in part if row["recommended"]]
    ring = mark("point", size=260, **style.RING)
    dots = layer(mark("point", filled=True, size=55), shape=shape, tooltip=tooltip(fields))
    return [
        layer(mark("area", opacity=0.16), y=f"{name}_low", y2=f"{name}_high"),
        style.across(name, data=start),
        layer(mark("line", strokeWidth=2)),
        layer(ring, recommended, color={"value": style.VERMILLION}),
        style.zoomable(zoom, dots),
    ]
