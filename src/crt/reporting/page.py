"""One self-contained page: words, tables, figures and packed answers in a single file."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any

from crt.describe import as_toml
from crt.reporting import summary
from crt.reporting.answers import deflate, pack_group, pack_training_rollouts
from crt.reporting.figure_rows import checkpoint_groups
from crt.reporting.figures import (
    cases,
    redundancy,
    sensitivity,
    stability,
    tradeoff,
    training,
    trajectories,
)
from crt.reporting.html import Html, data_json, escape, joined, tag
from crt.reporting.load import EvaluationPoint, ReportData, Row, RunView
from crt.reporting.style import SCREEN_FONT, Figure, config, css_variables
from crt.version import __version__

BUDGET = 4_000_000  # bytes of packed answers in a page
MOST_GROUPS = 12  # in the explorer
MOST_ROWS = 24  # in the table before the rest is folded away
MOST_RUNS = 24  # whose configuration and commands are shown
MINUS = "−"
NAVIGATION = {  # of the figures, in the order of reading
    "sensitivity": "Settings",
    "tradeoff": "Trade-off",
    "trajectories": "Trajectory",
    "stability": "Stability",
    "redundancy": "Redundancy",
    "cases": "Cases",
    "failures": "Failures",
    "training": "Training",
}


def figures_of(data: ReportData) -> list[Figure]:
    """Every figure that there is something to show of, in the order of reading."""
    return [
        *sensitivity.figures(data),
        *tradeoff.figures(data),
        *trajectories.figures(data),
        *stability.figures(data),
        *redundancy.figures(data),
        *cases.figures(data),
        *training.figures(data),
    ]


def page(
    data: ReportData,
    figures: Sequence[Figure],
    now: datetime,
    budget: int = BUDGET,
    refresh: int = 0,
) -> str:
    """The whole file; with `refresh` it loads itself again after so many seconds."""
    choices: dict[str, list[Figure]] = {}
    for figure in figures:
        choices.setdefault(figure.key, []).append(figure)
    explorer, chunks = _explorer(data, budget)
    library = _asset("vega/vega.min.js")
    script = "\n".join(_asset(name) for name in ("charts.js", "explorer.js", "page.js"))
    payload = {
        "config": config(SCREEN_FONT),
        "refresh": refresh,
        "figures": {
            key: [
                {"label": f.label, "caption": f.caption, "spec": round_numbers(f.spec)}
                for f in group
            ]
            for key, group in choices.items()
        },
        "explorer": explorer,
    }
    lead = " ".join(summary.sentences(data)).replace(" %", "\N{NO-BREAK SPACE}%")
    note = summary.base_accuracies(data).replace(" %", "\N{NO-BREAK SPACE}%")
    return _fill_template(
        {
            "title": escape(_title(data)),
            "hashes": f"{_hash(script)} {_hash(library)}",
            "style": css_variables() + _asset("page.css"),
            "sentences": tag("p", lead, class_="lead"),
            "badge": _badge(data),
            "table": result_table(summary.table(data)),
            "note": tag("p", note, class_="note") if note else "",
            "warnings": _warnings(data),
            "nav": _navigation(list(choices), bool(explorer["groups"])),
            "figures": "".join(_figure(group[0]) for group in choices.values()),
            "explorer": _asset("explorer.html") if explorer["groups"] else "",
            "configuration": _configuration(data),
            "reproduction": reproduction(data),
            "made": escape(f"crt {__version__}, {now:%Y-%m-%d %H:%M} UTC"),
            "live": "live" if refresh else "still",
            "payload": data_json(payload),
            "chunks": "".join(
                f'<script type="text/plain" id="chunk-{number}">{text}</script>\n'
                for number, text in enumerate(chunks)
            ),
            "library": deflate(library.encode()),
            "script": script,
        }
    )


def _explorer(data: ReportData, budget: int) -> tuple[Row, list[str]]:
    """The index of every group, and packed questions by number."""
    first = checkpoint_groups(data)
    groups = [*first, *(group for group in data.groups if group not in first)][:MOST_GROUPS]
    indexes: list[Row] = []
    chunks: list[str] = []
    for place, group in enumerate(groups):
        left = budget - sum(map(len, chunks))
        index, packed = pack_group(group, len(chunks), left // (len(groups) - place))
        indexes.append(index)
        chunks += packed
    if not groups and data.runs:
        index, chunks = pack_training_rollouts(data.runs[0], budget)
        indexes += [index] if index["questions"] else []
    return {"groups": indexes}, chunks


def round_numbers(value: Any) -> Any:
    """The same with six digits to a number: nobody sees more, and pages stay small."""
    if isinstance(value, dict):
        return {key: round_numbers(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [round_numbers(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _title(data: ReportData) -> str:
    names = [run.name for run in data.runs] or [group.label for group in data.groups]
    if data.methods:
        count = len({row["method"] for row in data.methods})
        what = "settings varied" if data.sensitivity else f"{count} methods compared"
        names = [f"{path.name}: {what}" for path in data.paths]
    names = list(dict.fromkeys(names))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _navigation(keys: Sequence[str], explorer: bool) -> str:
    parts = {"summary": "Summary", **{key: NAVIGATION[key] for key in keys}}
    parts |= {"explorer": "Answers"} if explorer else {}
    parts |= {"configuration": "Configuration", "reproduction": "Reproduce"}
    return "".join(tag("a", title, href=f"#{key}") for key, title in parts.items())


def _figure(figure: Figure) -> Html:
    place = tag("figure", data_figure=figure.key)
    return tag("section", tag("h2", figure.title), place, id=figure.key)


def _hash(script: str) -> str:
    """By which the browser knows our scripts, and runs no other."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _asset(name: str) -> str:
    return (resources.files("crt") / "assets" / "report" / name).read_text(encoding="utf-8")


def _fill_template(parts: dict[str, str]) -> str:
    """The template with its parts in one pass: what is put in is not looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


@dataclass(frozen=True)
class Column:
    """A column of the result table."""

    title: str
    key: str
    digits: int
    explanation: str
    signed: bool = False
    interval: bool = False
    base_key: str = ""  # of the base's value, where it differs from row to row

    def number(self, value: float) -> str:
        text = f"{value:{'+' if self.signed else ''}.{self.digits}f}"
        return text.lstrip("+-") if float(text) == 0 else text.replace("-", MINUS)


COLUMNS = (
    Column("Acc %", "acc", 1, "share of responses that are right", interval=True),
    Column("Tokens", "len", 1, "mean generated tokens per response", interval=True),
    Column("Saved %", "saved", 1, "tokens saved against the base"),
    Column(
        "AES₁", "aes1", 2, "accuracy-efficiency score; lost accuracy counts fivefold", signed=True
    ),
    Column("AES₂", "aes2", 2, "the same; lost accuracy counts tenfold", signed=True),
    Column("R_zip", "r_zip", 3, "size after gzip over size before; low is redundant"),
    Column(
        *("R_zip, equal length", "r_zip_matched", 3),
        "of each pair of responses the longer is cut to the shorter; below, the base's",
        base_key="r_zip_matched_base",
    ),
    Column("AD %", "ad", 0, "of the problems that got shorter: accuracy decreased"),
    Column("AP %", "ap", 0, "of the problems that got shorter: accuracy preserved"),
    Column("AI %", "ai", 0, "of the problems that got shorter: accuracy improved"),
)
CERTIFICATE = "accuracy − the base's: its one-sided 95 % lower bound, paired over problems"


def result_table(rows: Sequence[Row]) -> Html:
    """The one table; of a long series it shows some rows and folds the rest away."""
    if len(rows) <= MOST_ROWS:
        return _table(rows) if rows else Html("")
    step = (len(rows) - 1) / (MOST_ROWS - 1)
    places = {round(i * step) for i in range(MOST_ROWS)}
    some = [row for i, row in enumerate(rows) if i in places or row.get("is_result")]
    return joined(_table(some), _folded(f"all {len(rows)} rows", _table(rows)))


def _table(rows: Sequence[Row]) -> Html:
    columns = [c for c in COLUMNS if any(row.get(c.key) is not None for row in rows)]
    has_certificate = any(row.get("certificate") for row in rows)
    head = [tag("th", c.title, scope="col", title=c.explanation) for c in columns]
    if has_certificate:
        head.append(tag("th", "Certificate", scope="col", title=CERTIFICATE))
    body = [
        tag(
            "tr",
            tag("th", row["name"], scope="row"),
            *(tag("td", _cell(row, column)) for column in columns),
            *([tag("td", _certificate_cell(row))] if has_certificate else []),
            class_="result" if row.get("is_result") else None,
        )
        for row in rows
    ]
    top = tag("thead", tag("tr", tag("th", Html("&nbsp;"), scope="col"), *head))
    return tag("div", tag("table", top, tag("tbody", *body)), class_="wide", tabindex="0")


def _cell(row: Row, column: Column) -> Html:
    value = row.get(column.key)
    if value is None:
        return tag("span", "–", class_="dim")
    if row.get(column.base_key) is not None:
        base = f"base {column.number(row[column.base_key])}"
        return joined(column.number(value), tag("small", base))
    low, high = row.get(f"{column.key}_low"), row.get(f"{column.key}_high")
    if not column.interval or low is None or high is None or low == high:
        return escape(column.number(value))
    both = f"{column.number(low)} – {column.number(high)}"
    return joined(column.number(value), tag("small", both))


def _certificate_cell(row: Row) -> Html:
    certificate = row.get("certificate")
    if not certificate:
        return tag("span", "–", class_="dim")
    bound = f"{100 * certificate['lower_bound']:+.1f} points".replace("-", MINUS)
    word = tag("b", "passed", class_="passed") if certificate["held"] else tag("span", "not passed")
    return joined(word, tag("small", f"≥ {bound}"))


def _badge(data: ReportData) -> Html:
    """The certificate at a glance."""
    if data.methods:  # one for each method: not one for the page
        return Html("")
    certificate = summary.certificate(data)
    sign = {"passed": "✓", "open": "!", "none": "…"}[certificate.state]
    return tag("p", tag("b", sign), certificate.badge, class_=f"badge {certificate.state}")


def _warnings(data: ReportData) -> Html:
    """What makes numbers doubtful, and what could not be read."""
    points = [point for group in data.groups for point in group.points]
    warnings = [f"{p.name}: {warning}" for p in points for warning in p.evaluation.warnings]
    warnings = list(dict.fromkeys([*warnings, *data.notes]))
    if not warnings:
        return Html("")
    items = [tag("li", sentence) for sentence in warnings[:12]]
    items += [tag("li", f"and {len(warnings) - 12} more")] if len(warnings) > 12 else []
    return tag("aside", tag("ul", *items), class_="warnings")


def _configuration(data: ReportData) -> Html:
    """Each run's resolved configuration, and how each evaluation was sampled."""
    runs = [
        _folded(f"{run.name}, {run.path}", tag("pre", as_toml(run.config)))
        for run in data.runs[:MOST_RUNS]
    ]
    points = [point for group in data.groups for point in group.points]
    if not points:
        return joined(*runs)
    titles = ("evaluation", "model", "rollouts", "T", "top-p", "cap", "seed", "grader")
    head = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in titles)))
    body = tag("tbody", *map(_manifest_row, points[:40]))
    table = tag("table", head, body, class_="plain")
    return joined(*runs, tag("div", table, class_="wide", tabindex="0"))


def _folded(title: str, content: Html) -> Html:
    return tag("details", tag("summary", title), content)


def _manifest_row(point: EvaluationPoint) -> Html:
    manifest = point.evaluation.manifest
    keys = ("rollouts", "temperature", "top_p", "max_tokens", "seed")
    sampling = [manifest["sampling"].get(key) for key in keys]
    values = [manifest["model"].get("name"), *sampling, manifest["grader"]]
    cells = ["unknown" if value is None else str(value) for value in values]
    return tag("tr", tag("th", point.name, scope="row"), *(tag("td", cell) for cell in cells))


def reproduction(data: ReportData) -> Html:
    """The commands that do it all again, beside what is there."""
    runs = data.runs[:MOST_RUNS]
    lines = [line for run in runs for line in _commands(run)]
    groups = [] if data.methods else [group for group in data.groups if group.run is None]
    lines += [_eval_command(point) for group in groups for point in group.points]
    repeated = {run.path: f"{run.path}-again" for run in runs}
    paths = " ".join(str(repeated.get(path, path)) for path in data.paths)
    return tag("pre", "\n".join(dict.fromkeys([*lines, f"crt report {paths}"])), class_="commands")


def _commands(run: RunView) -> list[str]:
    data = ",".join(run.config.evaluation.data) or "NAME"
    return [
        f"crt train {run.path}/config.json --out {run.path}-again",
        f"crt eval {run.path}-again --all-checkpoints --data {data}",
    ]


def _eval_command(point: EvaluationPoint) -> str:
    manifest = point.evaluation.manifest
    data = ",".join(entry["name"] for entry in manifest["data"])
    keys = ("rollouts", "temperature", "top_p", "max_tokens", "seed")
    given = {key.replace("_", "-"): manifest["sampling"].get(key) for key in keys}
    options = " ".join(f"--{name} {value}" for name, value in given.items() if value is not None)
    model = manifest["model"].get("name") or "MODEL"
    return f"crt eval {model} --data {data} {options} --name {point.name}"
