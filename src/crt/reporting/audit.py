"""The audit of one model: five lines for a terminal, and a page in the style of the report."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from crt.evaluation.audit import BINS, CUTS, MOST_SENTENCES
from crt.evaluation.store import Evaluation
from crt.io import make_folder, write_json, write_text
from crt.reporting import style
from crt.reporting.load import EvaluationGroup, EvaluationPoint, ReportData, Row, with_interval
from crt.reporting.report import BUDGET, Column, compose, result_table
from crt.reporting.style import Figure, axis, layer, mark, panel, tooltip

HTML, JSON = "audit.html", "audit.json"
MOST_POINTS = 2000  # problems in the figure
COLUMNS = (
    Column("Right %", "acc", 1, "share of responses that are right", interval=True),
    Column("Tokens", "len", 0, "mean generated tokens per response", interval=True),
    Column(
        *("After answer %", "share_after", 0),
        "of the tokens of right responses: those after the first right answer",
        interval=True,
    ),
    Column(
        *("Cut at 50 %", "cut_50", 0),
        "share of responses whose last answer is right after half of the tokens",
        interval=True,
    ),
    Column(
        *("Shortest", "shortest", 0),
        "tokens of the shortest right response, mean over the problems that are solved",
        interval=True,
    ),
    Column("Could save %", "saved", 0, "of the tokens: an estimate, see below", interval=True),
    Column("Cut off %", "truncated", 1, "responses that ran into the cap", interval=True),
    Column("R_zip", "r_zip", 3, "size after gzip over size before; low is redundant"),
    Column("Repeated %", "repeated", 1, "sequences of four words that came before"),
    Column("Doubts", "doubts", 1, "such as “wait” or “let me check”, per 1,000 tokens"),
)
ESTIMATE = (
    "“Could save” is an estimate and no bound: it asks what is left if every problem that was "
    "solved took as many tokens as its shortest right response here, and every other problem as "
    "many as now. It rests on {count:g} responses per problem and grows with their number: with "
    "few nobody knows how short an answer can be, with many the shortest is short by luck. What a "
    "training that keeps accuracy gets may be more or less."
)


def write_audit(
    evaluation: Evaluation,
    result: Row,
    folder: Path,
    command: Sequence[str],
    budget: int = BUDGET,
) -> Path:
    """Writes the page and its figures as JSON; the page's path."""
    make_folder(folder)
    write_json(folder / JSON, result)
    now = datetime.now(UTC)
    write_text(folder / HTML, page(evaluation, result, command, now, budget))
    return folder / HTML


# In words


def lines(result: Row) -> list[str]:
    every = _all(result)
    words: dict[str, str] = {}
    if "acc" in every:
        passes = [name for name in every if name.startswith("pass@")]
        most = max(passes, key=lambda name: int(name.removeprefix("pass@")))
        words["right"] = _value(every["acc"], "%", 1)
        words["right"] += f", {most} {every[most]['value']:.1f} %" if most != "pass@1" else ""
    if "len" in every:
        words["tokens"] = f"{_value(every['len'])} per response"
        if "truncated" in every:
            words["tokens"] += f", {every['truncated']['value']:.1f} % of them cut off"
    if "share_after" in every:
        after = _value(every["share_after"], "%")
        words["after the answer"] = f"{after} of a right response's tokens"
    elif "stated" in every:
        words["answer stated"] = f"at {_value(every['stated'], '%')} of a right response"
    if "cut_25" in every:
        shares = " / ".join(f"{every[f'cut_{cut}']['value']:.0f}" for cut in CUTS)
        words[f"cut at {'/'.join(map(str, CUTS))} %"] = f"{shares} % are right"
    if "shortest" in every:
        share = _value(every["shortest_share"], "%")
        words["shortest right"] = f"{_value(every['shortest'])} tokens, {share} of the mean there"
    if "saved" in every:
        count, saved = _per_problem(result), _value(every["saved"], "%")
        words["could save"] = f"{saved} by the shortest of {count:g}: an estimate"
    if result["month"]:
        words["a month"] = _money(result["month"])
    return [f"{name:<17} {text}" for name, text in words.items()]


def _all(result: Row) -> Row:
    """Metrics and figures over all data sets; those without a value are absent."""
    parts = {**result["metrics"]["averages"]["all"], **result["figures"]["averages"]["all"]}
    return {
        name: value
        for name, value in parts.items()
        if isinstance(value, dict) and value.get("value") is not None
    }


def _value(metric: Row, unit: str = "", digits: int = 0) -> str:
    ends = [metric[end] for end in ("value", "low", "high")]
    value, *interval = (f"{end:,.{digits}f}" if end is not None else "?" for end in ends)
    behind = f" ({' – '.join(interval)})" if metric["problems"] > 1 else ""
    return f"{value}{unit and ' '}{unit}{behind}"


def _per_problem(result: Row) -> float:
    metrics = result["metrics"]["averages"]["all"]
    return round(metrics["rollouts"] / metrics["problems"], 1)


def _money(month: Row) -> str:
    """What a month's load takes, and how much of it could be saved."""
    unit, scale = ("cost", 1.0) if month["price_per_million"] else ("tokens", 1e-6)
    text = f"{scale * month[unit]['value']:,.2f}{'' if unit == 'cost' else ' million tokens'}"
    saved = month[f"saved_{unit}"]
    return f"{text}, of which {scale * saved['value']:,.2f} could be saved" if saved else text


def lead(evaluation: Evaluation, result: Row) -> str:
    every, metrics = _all(result), result["metrics"]["averages"]["all"]
    words = [
        f"{metrics['rollouts']:,} responses to {metrics['problems']:,} problems of "
        f"{', '.join(evaluation.counts)}"
    ]
    words[0] += f": {_value(every['acc'], '%', 1)} are right" if "acc" in every else ""
    words[0] += f", with {_value(every['len'])} tokens each" if "len" in every else ""
    if "share_after" in every:
        words.append(
            f"Of the tokens of a right response {_value(every['share_after'], '%')} come after the "
            "right answer stood there for the first time"
        )
    if "saved" in every:
        words.append(
            "If every problem that is solved took its shortest right response, "
            f"{_value(every['saved'], '%')} of all tokens would be saved"
        )
    return ". ".join(words) + "."


def notes(result: Row) -> list[str]:
    every, month = _all(result), result["month"]
    unit = "tokens" if result["places"] == "tokens" else "characters; with --tokenizer in tokens"
    paragraphs: list[str] = []
    if month:
        cost = f" and cost {_value(month['cost'], digits=2)}" if month["price_per_million"] else ""
        paragraphs.append(
            f"{month['requests']:,.0f} requests a month take {_value(month['tokens'])} generated "
            f"tokens{cost}. A month: {_money(month)}. Prompts are not counted."
        )
    paragraphs += [ESTIMATE.format(count=_per_problem(result))] if "saved" in every else []
    if result["stated_by"]:
        paragraphs.append(
            f"Where the right answer stands is found by the grader alone. It reads a response up "
            f"to the end of each sentence, at most {MOST_SENTENCES} of them, and takes the last "
            "box, or without one the last number, where the right answer is a number that is not "
            f"in the question: so it is for {result['numbers']:.0f} % of the problems. For the "
            f"others a right answer is seen late, in its box. Places are measured in {unit}."
        )
    if "lost" in every:
        paragraphs.append(
            f"{_value(every['lost'], '%', 1)} of the wrong responses have the right answer at the "
            "end of some sentence: they lost it, or it stood there by chance."
        )
    if "r_zip_matched_correct" in every:
        right, wrong = (every[f"r_zip_matched_{kind}"] for kind in ("correct", "wrong"))
        paragraphs.append(
            f"At equal length right responses have an R_zip of {right['value']:.3f} and wrong ones "
            f"of {wrong['value']:.3f}, on {right['problems']} problems that have both."
        )
    return paragraphs


# The page


def page(
    evaluation: Evaluation,
    result: Row,
    command: Sequence[str],
    now: datetime,
    budget: int = BUDGET,
) -> str:
    """The whole file: the table, three figures, the answers to read."""
    group = EvaluationGroup(
        evaluation.name, (EvaluationPoint(evaluation.name, None, evaluation, None),), False
    )
    data = ReportData((evaluation.folder or Path(),), groups=(group,))
    sets, averages = (_rows(result, kind) for kind in ("sets", "averages"))
    rows = sets if len(sets) == 1 else [*sets, *(r for r in averages if r["name"] == "all")]
    return compose(
        data,
        [figure for figure in (stated(result), difficulty(result), shortest(result)) if figure],
        now,
        budget,
        kind="audit",
        title=evaluation.name,
        badge=None,
        lead=lead(evaluation, result),
        table=result_table(rows, COLUMNS),
        note="\n".join(notes(result)),
        warnings=result["warnings"],
        commands=shlex.join(["crt", "audit", *command]),
        footer="All figures are in audit.json.",
    )


def _rows(result: Row, kind: str) -> list[Row]:
    return [
        {"name": name}
        | {
            key: value
            for column in COLUMNS
            for key, value in with_interval(
                column.key, (result["metrics"][kind][name] | figures).get(column.key)
            ).items()
        }
        for name, figures in result["figures"][kind].items()
    ]


def stated(result: Row) -> Figure | None:
    """When the right answer is there, and what is right if a response is cut."""
    every = _all(result)
    cuts = {**{cut: every.get(f"cut_{cut}") for cut in CUTS}, 100: every.get("acc")}
    measured = {cut: metric for cut, metric in cuts.items() if metric}
    if not result["stated_by"] or len(measured) < len(cuts):
        return None
    kinds = ("has stated it (right responses)", "right if cut here (all)")
    curve = [row | {"kind": kinds[0]} for row in result["stated_by"]]
    points = [
        {"cut": cut, "share": m["value"], "low": m["low"], "high": m["high"], "kind": kinds[1]}
        for cut, m in measured.items()
    ]
    color = style.nominal("kind", kinds, (style.BLUE, style.VERMILLION), style.LEGEND)
    fields = tooltip({
        **{"": "kind", "% of the tokens": "cut", "%": "share:.1f"},
        **{"from": "low:.1f", "to": "high:.1f"},
    })  # fmt: skip
    layers = [
        layer(mark("line", strokeWidth=2, interpolate="step-after"), curve, tooltip=fields),
        layer(mark("rule", strokeWidth=2, opacity=0.6, clip=False), points, y="low", y2="high"),
        layer(mark("point", filled=True, size=90, opacity=1, clip=False), points, tooltip=fields),
    ]
    layers[1]["encoding"]["y"] |= {"type": "quantitative"}
    spec = panel(
        *(300, layers),
        x=axis("cut", "% of a response's tokens", domain=[0, 100]),
        y=axis("share", "%", domain=[0, 100]),
        color=color,
    )
    caption = (
        "The line: share of the right responses in which the right answer has been stated by then. "
        "The points: share of all responses whose last answer is right if they end there, with "
        "95 % intervals; nobody is asked to finish, so this is a lower end."
    )
    return Figure("overthinking", "When the right answer is there", spec, caption)


def difficulty(result: Row) -> Figure | None:
    """Length by how often a problem is solved, right and wrong responses apart."""
    rows = [row for row in result["by_difficulty"] if row["kind"] != "all"]
    if not rows:
        return None
    kinds = ("right", "wrong")
    color = style.nominal("kind", kinds, (style.BLUE, style.VERMILLION), style.LEGEND)
    names = [name for name in BINS if any(row["solved"] == name for row in rows)]
    fields = tooltip({
        **{"solved": "solved", "responses": "kind", "tokens": "value:.1f", "from": "low:.1f"},
        **{"to": "high:.1f", "problems": "problems"},
    })  # fmt: skip
    layers = [
        layer(mark("rule", strokeWidth=2, opacity=0.6), y="low", y2="high"),
        layer(mark("point", filled=True, size=90, opacity=1), tooltip=fields),
    ]
    layers[0]["encoding"]["y"] |= {"type": "quantitative"}
    x = {"field": "solved", "type": "nominal", "sort": names, "title": "how often it is solved"}
    y = axis("value", "tokens per response", zero=True)
    spec = panel(
        *(280, layers, rows),
        x=x | {"axis": {"labelAngle": 0}},
        xOffset={"field": "kind", "scale": {"domain": kinds}},
        y=y,
        color=color,
    )
    caption = (
        "Problems by the model's own rate of right responses. A model that spends its tokens well "
        "spends few on what it always solves. Bars are 95 % intervals over problems."
    )
    return Figure("difficulty", "Length by difficulty", spec, caption)


def shortest(result: Row) -> Figure | None:
    """Per solved problem the shortest right response against the mean of all."""
    rows = [
        {
            **{"question": place, "mean": row["mean"], "shortest": row["shortest_solved"]},
            "rate": 100 * row["right"] / row["graded"],
        }
        for place, row in enumerate(result["problems"])
        if row["shortest_solved"]
    ][:MOST_POINTS]
    if len(rows) < 2:
        return None
    right = 1.05 * max(row["mean"] for row in rows)
    fields = tooltip({"mean tokens": "mean:.0f", "shortest right": "shortest:.0f",
                      "solved %": "rate:.0f"})  # fmt: skip
    dots = mark("point", filled=True, size=50, opacity=0.55, color=style.BLUE)
    diagonal = [{"mean": 0, "shortest": 0}, {"mean": right, "shortest": right}]
    layers = [
        layer(mark("line", color=style.MUTED, strokeDash=[4, 4]), diagonal),
        style.zoomable("zoom", layer(dots, tooltip=fields)),
    ]
    spec = panel(
        *(340, layers, rows),
        x=axis("mean", "mean tokens of a problem's responses", domain=[0, right]),
        y=axis("shortest", "tokens of its shortest right one", domain=[0, right]),
    )
    caption = (
        "A point per solved problem; on the dashed line all responses are as short as the shortest "
        "right one. Far below it a problem was solved with few of its usual tokens; above it wrong "
        "responses are shorter than right ones. A click opens the problem."
    )
    label = str(result["name"])
    return Figure("shortest", "Shortest right response per problem", spec, caption, label)
