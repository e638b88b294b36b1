"""The report: one self-contained page, figures for print, and the page again as a run goes on."""

import base64
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from crt.describe import as_toml
from crt.errors import ConfigError, CrtError
from crt.evaluation.contract import TITLES, cells_of, level_note
from crt.evaluation.render import number
from crt.evaluation.typical import typical_responses
from crt.io import make_folder, write_text, written_whole
from crt.reporting import summary
from crt.reporting.answers import deflate, pack_group, pack_training, spaced, visible
from crt.reporting.figures import cases, stability, tradeoff, training
from crt.reporting.load import (
    EvaluationPoint,
    ReportData,
    Row,
    checkpoint_groups,
    load_report_data,
    main_groups,
    table_rows,
)
from crt.reporting.style import SCREEN_FONT, Figure, asset, config, render
from crt.version import __version__

FORMATS = ("svg", "pdf", "png")
WATCHED = (
    *("steps.jsonl", "progress.json", "checkpoints/*/record.json", "methods.json"),
    *("evaluations/*/figures.json", "evaluations/*/series.json", "runs/*/steps.jsonl"),
)
BUDGET = 4_000_000  # bytes of packed answers in a page
MOST_GROUPS = 12  # in the explorer
MOST_ROWS = 24  # in the table before the rest is folded away
MOST_RUNS = 24  # whose configuration and commands are shown
MOST_EVALUATIONS = 40  # whose sampling is shown
MOST_WARNINGS = 12
MOST_BESIDE = 8  # models whose answers to one question stand side by side
MINUS = "−"
SAMPLING = ("rollouts", "temperature", "top_p", "max_tokens", "seed")


@dataclass(frozen=True)
class ReportOptions:
    paths: tuple[Path, ...]
    out: Path
    figures: Path | None = None
    formats: tuple[str, ...] = FORMATS
    budget: int = BUDGET


def write_report(options: ReportOptions, refresh: int = 0) -> ReportData:
    """Writes the page, and the figures if they are wanted; each file whole or not at all."""
    data = load_report_data(options.paths)
    figures = figures_of(data)
    make_folder(options.out.parent)
    now = datetime.now(UTC)
    write_text(options.out, page(data, figures, now, options.budget, refresh))
    if options.figures is not None:
        save_figures(figures, options.figures, options.formats)
    return data


def save_figures(figures: Sequence[Figure], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Every figure in every format; further choices of one have a number: `training-2.svg`."""
    make_folder(folder)
    paths: list[Path] = []
    counts: dict[str, int] = {}
    for figure in figures:
        number = counts[figure.key] = counts.get(figure.key, 0) + 1
        name = figure.key if number == 1 else f"{figure.key}-{number}"
        for format in formats:
            paths.append(folder / f"{name}.{format}")
            save_figure(figure, paths[-1])
    return paths


def save_figure(figure: Figure, path: Path) -> None:
    """Writes one figure in the format of the path's suffix."""
    picture = render(figure, path.suffix[1:])
    with written_whole(path) as file:
        file.write(picture)


def watch(
    options: ReportOptions,
    every: float,
    on_written: Callable[[ReportData], None],
    on_error: Callable[[str], None],
) -> ReportData:
    """Writes again whenever something is new, until every run has ended."""
    refresh = max(1, round(every))
    seen = fingerprint(options.paths)
    data = write_report(options, refresh)
    try:
        on_written(data)
        while any(not run.finished for run in data.runs):
            time.sleep(every)
            state = fingerprint(options.paths)
            if state == seen:
                continue
            seen = state
            try:
                data = write_report(options, refresh)
                on_written(data)
            except CrtError as error:  # a file that is just being replaced is whole next time
                on_error(str(error))
    finally:  # nobody will write it again: the page must not wait for it
        data = write_report(options)
    return data


def fingerprint(paths: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    """What changes when a run or an evaluation goes on."""
    files = [file for path in paths for pattern in WATCHED for file in sorted(path.glob(pattern))]
    return tuple((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files)


def parse_formats(text: str) -> tuple[str, ...]:
    """`svg,pdf` as formats; another one is refused."""
    formats = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if not formats or not set(formats) <= set(FORMATS):
        raise ConfigError(f"--format {text!r}: a figure is {', '.join(FORMATS)}, or some of them.")
    return formats


# The page


def figures_of(data: ReportData) -> list[Figure]:
    """Every figure that there is something to show of, in the order of reading."""
    return [
        *tradeoff.figures(data),
        *training.trajectory_figures(data),
        *stability.figures(data),
        *tradeoff.redundancy_figures(data),
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
    return compose(
        data,
        figures,
        now,
        budget,
        refresh,
        kind="report",
        title=_title(data),
        badge=None if data.methods else summary.certificate(data),  # a method has its own each
        lead=" ".join(summary.sentences(data)),
        table=result_table(table_rows(data)),
        note=summary.base_accuracies(data),
        contract=contract_rows(data),
        contract_titles=("line", *TITLES),
        contract_note=contract_note(data),
        warnings=_warnings(data),
        commands=reproduction(data),
        footer="The certificate is one-sided and paired over problems.",
    )


def compose(
    data: ReportData,
    figures: Sequence[Figure],
    now: datetime,
    budget: int = BUDGET,
    refresh: int = 0,
    **parts: Any,
) -> str:
    """The shell of every page: the words and the table in `parts`, figures, answers, settings."""
    choices: dict[str, list[Figure]] = {}
    for figure in figures:
        choices.setdefault(figure.key, []).append(figure)
    explorer, chunks = _explorer(data, budget)
    library = asset("vega/vega.min.js")
    script = "\n".join(asset(name) for name in ("charts.js", "explorer.js", "page.js"))
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
        "explorer": {"groups": explorer},
    }
    environment = Environment(
        autoescape=True,
        finalize=_show,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.from_string(asset("page.html")).render(
        state="live" if refresh else "still",
        hashes=f"{_hash(script)} {_hash(library)}",
        style=asset("page.css"),
        figures={key: group[0].title for key, group in choices.items()},
        example=_example(data),
        has_explorer=bool(explorer),
        configurations={f"{r.name}, {r.path}": as_toml(r.config) for r in data.runs[:MOST_RUNS]},
        evaluations=[p for group in data.groups for p in group.points][:MOST_EVALUATIONS],
        sampling=SAMPLING,
        made=f"crt {__version__}, {now:%Y-%m-%d %H:%M} UTC",
        payload=data_json(payload),
        chunks=chunks,
        library=deflate(library.encode()),
        script=script,
        **parts,
    )


def _show(value: object) -> object:
    """Whatever is not markup is made visible; the template escapes it."""
    return value if hasattr(value, "__html__") else visible(str(value))


def _hash(script: str) -> str:
    """By which the browser knows our scripts, and runs no other."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def data_json(value: Any) -> str:
    """JSON that may stand in a script element: it cannot end the element or begin a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def round_numbers(value: Any) -> Any:
    """The same with six digits to a number: nobody sees more, and pages stay small."""
    return json.loads(json.dumps(value), parse_float=lambda digits: float(f"{float(digits):.6g}"))


def _example(data: ReportData) -> Row | None:
    """One question, and how each model of the table answers it, the longest first."""
    for group in main_groups(data):
        measured = [point for point in group.points if point.metrics.get("len")]
        points = sorted(measured, key=lambda point: point.metrics["len"]["value"])
        if not 2 <= len(points) <= MOST_BESIDE:
            continue
        means = [point.metrics["len"]["value"] for point in points]
        typical = typical_responses([point.evaluation.rollouts() for point in points], means)
        if typical is None:
            continue
        first = typical[0].dataset, typical[0].problem_id
        rows = (row for row in points[0].evaluation.problems() if (row["data"], row["id"]) == first)
        answers = [
            {"name": point.name, "tokens": rollout.length, "text": rollout.text}
            for point, rollout in zip(points, typical, strict=True)
        ]
        return {"question": next(rows)["question"], "answers": answers[::-1]}
    return None


def _explorer(data: ReportData, budget: int) -> tuple[list[Row], list[str]]:
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
        index, chunks = pack_training(data.runs[0], budget)
        indexes += [index] if index["questions"] else []
    return indexes, chunks


def _title(data: ReportData) -> str:
    names = [run.name for run in data.runs] or [group.label for group in data.groups]
    if data.methods:
        count = len({row["method"] for row in data.methods})
        names = [f"{path.name}: {count} methods compared" for path in data.paths]
    names = list(dict.fromkeys(names))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


@dataclass(frozen=True)
class Column:
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

    def cell(self, row: Row) -> tuple[str, str]:
        """The number, and what stands below it: the base's value or the interval."""
        value, base = row.get(self.key), row.get(self.base_key)
        if self.key == "certificate":
            return certificate_cell(value)
        if value is None:
            return "–", ""
        low, high = row.get(f"{self.key}_low"), row.get(f"{self.key}_high")
        below = ""
        if base is not None:
            below = f"base {self.number(base)}"
        elif self.interval and low is not None and high is not None and low != high:
            below = f"{self.number(low)} – {self.number(high)}"
        return self.number(value), below


def certificate_cell(certificate: Row | None) -> tuple[str, str]:
    if not certificate:
        return "–", ""
    bound = f"≥ {100 * certificate['lower_bound']:+.1f} points".replace("-", MINUS)
    return "passed" if certificate["held"] else "not passed", bound


COLUMNS = (
    Column("Acc %", "acc", 1, "share of responses that are right", interval=True),
    Column("Tokens", "len", 1, "mean generated tokens per response", interval=True),
    Column("Thinking", "thinking", 1, "tokens up to the end of the thinking, where it is marked"),
    Column("Answer", "answer", 1, "the tokens after it"),
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
    Column(
        *("Certificate", "certificate", 1),
        "accuracy − the base's: its one-sided 95 % lower bound, paired over problems",
    ),
)


def result_table(rows: Sequence[Row], columns: Sequence[Column] = COLUMNS) -> Row:
    """The one table; of a long series some rows are in sight and all are folded away."""
    columns = [c for c in columns if any(row.get(c.key) is not None for row in rows)]
    body = [
        {
            "name": row["name"],
            "is_result": bool(row.get("is_result")),
            "cells": [column.cell(row) for column in columns],
        }
        for row in rows
    ]
    places = spaced(len(body), MOST_ROWS)
    some = [row for i, row in enumerate(body) if i in places or row["is_result"]]
    return {"columns": columns, "rows": some, "all_rows": body}


def contract_rows(data: ReportData) -> list[list[str]]:
    """A row per line of the contract, its certificate last."""
    group = summary.best_group(data)
    return [
        [
            result.line.name,
            *(number(cell, 2, False).replace("-", MINUS) for cell in cells_of(result)),
        ]
        for result in (group.contract if group and not data.methods else ())
    ]


def contract_note(data: ReportData) -> str:
    """At which level the lines are judged."""
    group = summary.best_group(data)
    run = group.run if group else None
    if group is None or run is None:
        return ""
    unknown = [f"{r.line.name}: {r.note}." for r in group.contract if r.note]
    return " ".join([level_note(run.config.contract), *unknown])


def _warnings(data: ReportData) -> list[str]:
    points = [point for group in data.groups for point in group.points]
    warnings = [f"{p.name}: {warning}" for p in points for warning in p.evaluation.warnings]
    warnings = list(dict.fromkeys([*warnings, *data.notes]))
    more = len(warnings) - MOST_WARNINGS
    return warnings[:MOST_WARNINGS] + ([f"and {more} more"] if more > 0 else [])


def reproduction(data: ReportData) -> str:
    """The commands that do it all again, beside what is there."""
    again = {run.path: f"{run.path}-again" for run in data.runs[:MOST_RUNS]}
    lines: list[str] = []
    for run in data.runs[:MOST_RUNS]:
        names = ",".join(run.config.evaluation.data) or "NAME"
        lines.append(f"crt train {run.path}/config.json --out {again[run.path]}")
        lines.append(f"crt eval {again[run.path]} --all-checkpoints --data {names}")
    if not data.methods:
        points = [p for group in data.groups if group.run is None for p in group.points]
        lines += [_eval_command(point) for point in points]
    lines.append(f"crt report {' '.join(str(again.get(path, path)) for path in data.paths)}")
    return "\n".join(dict.fromkeys(lines))


def _eval_command(point: EvaluationPoint) -> str:
    manifest = point.evaluation.manifest
    data = ",".join(entry["name"] for entry in manifest["data"])
    given = {key.replace("_", "-"): manifest["sampling"].get(key) for key in SAMPLING}
    options = " ".join(f"--{name} {value}" for name, value in given.items() if value is not None)
    model = manifest["model"].get("name") or "MODEL"
    return f"crt eval {model} --data {data} {options} --name {point.name}"
