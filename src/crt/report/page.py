"""One self-contained page: words, figures and packed answers in a single file."""

import base64
import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any

from crt.report import measured, sections, summary
from crt.report.answers import Texts, index_of, questions_of, texts
from crt.report.figures import (
    case_study,
    failure_modes,
    plane,
    redundancy,
    sensitivity,
    stability,
    training,
    trajectories,
)
from crt.report.html import data_json, escape, tag
from crt.report.palette import DARK, LIGHT
from crt.report.sampled import sampled
from crt.report.sources import LineUp, Material, Row
from crt.version import __version__

BUDGET = 4_000_000  # bytes of packed answers in a page
MOST_LINEUPS = 12  # in the explorer
NAMES = {  # in the bar above the page
    "sensitivity": "Settings",
    "plane": "Trade-off",
    "trajectories": "Course",
    "stability": "Stability",
    "redundancy": "Redundancy",
    "case_study": "Cases",
    "failure_modes": "Failures",
    "training": "Training",
}


@dataclass(frozen=True)
class Drawing:
    """A figure of the page: one picture, or several to choose from, and what it was made of."""

    key: str
    title: str
    choices: tuple[tuple[str, Any, list[Row], str], ...]  # label, module, rows, caption


def drawings(material: Material) -> list[Drawing]:
    """Every figure that there is something to show of, in the order of reading."""
    found = [
        _single("sensitivity", sensitivity, sensitivity.rows(material)),
        _single("plane", plane, plane.rows(material)),
        _single("trajectories", trajectories, trajectories.rows(material)),
        _single("stability", stability, stability.rows(material)),
        _single("redundancy", redundancy, redundancy.rows(material)),
        *_by_lineup(measured.courses(material)),
        Drawing("training", training.TITLE, tuple(_trainings(material))),
    ]
    return [drawing for drawing in found if drawing.choices]


def _single(key: str, module: Any, rows: list[Row]) -> Drawing:
    known = len(rows) > 1
    return Drawing(key, module.TITLE, (("", module, rows, module.caption(rows)),) if known else ())


def _by_lineup(lineups: Iterable[LineUp]) -> Iterator[Drawing]:
    cases: list[tuple[str, Any, list[Row], str]] = []
    modes: list[tuple[str, Any, list[Row], str]] = []
    for lineup in lineups:
        asked = questions_of(lineup)
        rows = case_study.rows(lineup, asked)
        if rows:
            cases.append((lineup.label, case_study, rows, case_study.caption(rows, len(asked))))
        failed = failure_modes.rows(lineup, asked)
        if failed:
            told = failure_modes.caption(failure_modes.counts(lineup))
            modes.append((lineup.label, failure_modes, failed, told))
    yield Drawing("case_study", case_study.TITLE, tuple(cases))
    yield Drawing("failure_modes", failure_modes.TITLE, tuple(modes))


def _trainings(material: Material) -> Iterator[tuple[str, Any, list[Row], str]]:
    for run in material.runs:
        rows = training.rows(run)
        if rows:
            label = f"{run.name}, seed {run.config.seed}"
            yield label, training, rows, training.caption(rows)


def page(
    material: Material,
    figures: Iterable[Drawing],
    now: datetime,
    budget: int = BUDGET,
    refresh: int = 0,
) -> str:
    """The whole file; with `refresh` it loads itself again after so many seconds."""
    figures = list(figures)
    explorer, chunks = _explorer(material, budget)
    library = _asset("vega/vega.min.js")
    script = "\n".join(_asset(name) for name in ("charts.js", "explorer.js", "page.js"))
    payload = {
        "palette": {"light": LIGHT, "dark": DARK},
        "refresh": refresh,
        "figures": {
            drawing.key: [
                {"label": label, "caption": caption, "spec": rounded(module.spec(rows))}
                for label, module, rows, caption in drawing.choices
            ]
            for drawing in figures
        },
        "explorer": explorer,
    }
    return _filled(
        {
            "title": escape(_title(material)),
            "hashes": f"{_hash(script)} {_hash(library)}",
            "style": _asset("page.css"),
            "sentences": tag("p", _lead(material), class_="lead"),
            "badge": sections.badge(material),
            "table": sections.result_table(summary.table(material)),
            "doubts": sections.doubts(material),
            "nav": _navigation(figures, bool(explorer["lineups"])),
            "figures": "".join(_figure(drawing) for drawing in figures),
            "explorer": _asset("explorer.html") if explorer["lineups"] else "",
            "configuration": sections.configuration(material),
            "reproduction": sections.reproduction(material),
            "made": escape(f"crt {__version__}, {now:%Y-%m-%d %H:%M} UTC"),
            "live": "live" if refresh else "still",
            "payload": data_json(payload),
            "chunks": "".join(_chunk(i, text) for i, text in enumerate(chunks)),
            "library": _squeezed(library),
            "script": script,
        }
    )


def _lead(material: Material) -> str:
    """The sentences, with numbers that stay on the line of their unit."""
    return " ".join(summary.sentences(material)).replace(" %", "\N{NO-BREAK SPACE}%")


def _explorer(material: Material, budget: int) -> tuple[Row, list[str]]:
    """The index of every line-up, and packed questions by number."""
    courses = measured.courses(material)
    rest = [lineup for lineup in material.lineups if lineup not in courses]
    lineups = [*courses, *rest][:MOST_LINEUPS]
    found: list[Row] = []
    chunks: list[str] = []
    for place, lineup in enumerate(lineups):
        left = budget - sum(map(len, chunks))
        held = _texts(lineup, left // (len(lineups) - place))
        ids = {key: len(chunks) + i for i, key in enumerate(held.packed)}
        found.append(index_of(lineup, held, ids))
        chunks += held.packed.values()
    if not lineups and material.runs:
        index, chunks = sampled(material.runs[0], 0, budget)
        found += [index] if index["questions"] else []
    return {"lineups": found}, chunks


def _texts(lineup: LineUp, budget: int) -> Texts:
    """The questions of the case study and the failure modes are packed first."""
    asked = questions_of(lineup)
    rows = [*case_study.rows(lineup, asked), *failure_modes.rows(lineup, asked)]
    return texts(lineup, list(dict.fromkeys(row["question"] for row in rows)), budget)


def rounded(value: Any) -> Any:
    """The same with six digits to a number: nobody sees more, and pages stay small."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _title(material: Material) -> str:
    names = [run.name for run in material.runs] or [lineup.label for lineup in material.lineups]
    if material.methods:
        what = "settings turned" if material.turned else f"{len(set(names))} methods compared"
        names = [f"{place.name}: {what}" for place in material.places]
    names = list(dict.fromkeys(names))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _navigation(figures: list[Drawing], explorer: bool) -> str:
    parts = {"summary": "Summary", **{each.key: NAMES[each.key] for each in figures}}
    parts |= {"explorer": "Answers"} if explorer else {}
    parts |= {"configuration": "Configuration", "reproduction": "Reproduce"}
    return "".join(tag("a", title, href=f"#{key}") for key, title in parts.items())


def _figure(drawing: Drawing) -> str:
    head = tag("h2", drawing.title)
    return tag("section", head, tag("figure", data_figure=drawing.key), id=drawing.key)


def _chunk(number: int, text: str) -> str:
    return f'<script type="text/plain" id="chunk-{number}">{text}</script>\n'


def _hash(script: str) -> str:
    """By which the browser knows our scripts, and runs no other."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _squeezed(text: str) -> str:
    squeezed = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(squeezed.compress(text.encode()) + squeezed.flush()).decode()


def _asset(name: str) -> str:
    return (resources.files("crt") / "assets" / "report" / name).read_text(encoding="utf-8")


def _filled(parts: dict[str, str]) -> str:
    """The template with its parts in one pass: what is put in is not looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))
