"""The parts of the page that are words and tables, as markup."""

from collections.abc import Sequence

from crt.report import summary
from crt.report.html import Html, escape, joined, tag
from crt.report.sources import Material, Point, Row, RunView
from crt.words import as_toml

MINUS = "−"
MOST_ROWS = 24
CERTIFICATE = "accuracy − the base's: its one-sided 95 % lower bound, paired over problems"
COLUMNS = (  # title, key, digits, signed, interval, explanation
    ("Acc %", "acc", 1, False, True, "share of responses that are right"),
    ("Tokens", "len", 1, False, True, "mean generated tokens a response"),
    ("Saved %", "saved", 1, False, False, "tokens saved against the base"),
    ("AES₁", "aes1", 2, True, False, "accuracy-efficiency score; lost accuracy counts fivefold"),
    ("AES₂", "aes2", 2, True, False, "the same; lost accuracy counts tenfold"),
    ("R_zip", "r_zip", 3, False, False, "size after gzip over size before; low is redundant"),
    ("R_zip, equal length", "r_zip_matched", 3, False, False, "both cut to the shorter response"),
    ("base's there", "r_zip_matched_base", 3, False, False, "R_zip of the base at this length"),
    ("AD %", "ad", 0, False, False, "of the problems that got shorter: accuracy decreased"),
    ("AP %", "ap", 0, False, False, "of the problems that got shorter: accuracy preserved"),
    ("AI %", "ai", 0, False, False, "of the problems that got shorter: accuracy improved"),
)


def result_table(rows: Sequence[Row]) -> Html:
    """The one table; a long series shows some of its points and hides the rest behind a word."""
    if not rows:
        return Html("")
    if len(rows) <= MOST_ROWS:
        return _table(rows)
    step = (len(rows) - 1) / (MOST_ROWS - 1)
    places = {round(i * step) for i in range(MOST_ROWS)}
    some = [row for i, row in enumerate(rows) if i in places or row.get("is_result")]
    every = tag("details", tag("summary", f"all {len(rows)} rows"), _table(rows))
    return joined(_table(some), every)


def _table(rows: Sequence[Row]) -> Html:
    known = [c for c in COLUMNS if any(row.get(c[1]) is not None for row in rows)]
    judged = any(row.get("certificate") for row in rows)
    head = [tag("th", title, scope="col", title=why) for title, *_, why in known]
    if judged:
        head.append(tag("th", "Certificate", scope="col", title=CERTIFICATE))
    body = [
        tag(
            "tr",
            tag("th", row["name"], scope="row"),
            *(tag("td", _cell(row, column)) for column in known),
            *([tag("td", _held(row))] if judged else []),
            class_="result" if row.get("is_result") else None,
        )
        for row in rows
    ]
    top = tag("thead", tag("tr", tag("th", Html("&nbsp;"), scope="col"), *head))
    return tag("div", tag("table", top, tag("tbody", *body)), class_="wide", tabindex="0")


def _held(row: Row) -> Html:
    found = row.get("certificate")
    if not found:
        return tag("span", "–", class_="dim")
    bound = f"{100 * found['lower_bound']:+.1f} points".replace("-", MINUS)
    word = tag("b", "passed", class_="held") if found["held"] else tag("span", "not passed")
    return joined(word, tag("small", f"≥ {bound}"))


def _cell(row: Row, column: tuple[str, str, int, bool, bool, str]) -> Html:
    _, key, digits, signed, interval, _ = column
    value = row.get(key)
    if value is None:
        return tag("span", "–", class_="dim")
    main = escape(_number(value, digits, signed))
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    if not interval or low is None or high is None or low == high:
        return main
    both = f"{_number(low, digits, False)} – {_number(high, digits, False)}"
    return joined(main, tag("small", both))


def _number(value: float, digits: int, signed: bool) -> str:
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return text.replace("-", MINUS)


def badge(material: Material) -> Html:
    """The certificate at a glance."""
    if material.methods:  # one for each method: not one for the page
        return Html("")
    found = summary.certificate(material)
    sign = {"held": "✓", "open": "!", "none": "…"}[found.state]
    return tag("p", tag("b", sign), found.badge, class_=f"badge {found.state}")


def doubts(material: Material) -> Html:
    """What makes figures doubtful, and what could not be read."""
    points = [point for lineup in material.lineups for point in lineup.points]
    told = [f"{p.name}: {warning}" for p in points for warning in p.evaluation.warnings]
    told = list(dict.fromkeys([*told, *material.notes]))
    if not told:
        return Html("")
    shown = [tag("li", sentence) for sentence in told[:12]]
    more = [tag("li", f"and {len(told) - 12} more")] if len(told) > 12 else []
    return tag("aside", tag("ul", *shown, *more), class_="doubts")


def configuration(material: Material) -> Html:
    """Each run's resolved configuration; what evaluations rest on."""
    runs = [_folded(f"{run.name}, {run.path}", as_toml(run.config)) for run in material.runs[:24]]
    points = [point for lineup in material.lineups for point in lineup.points]
    rows = [_manifest_row(point) for point in points[:40]]
    if not rows:
        return joined(*runs)
    titles = ("evaluation", "model", "rollouts", "T", "top-p", "cap", "seed", "grader")
    head = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in titles)))
    table = tag("table", head, tag("tbody", *rows), class_="plain")
    return joined(*runs, tag("div", table, class_="wide", tabindex="0"))


def _folded(title: str, text: str) -> Html:
    return tag("details", tag("summary", title), tag("pre", text))


def _manifest_row(point: Point) -> Html:
    manifest = point.evaluation.manifest
    sampling = manifest["sampling"]
    cells = [sampling.get(key) for key in ("rollouts", "temperature", "top_p", "max_tokens")]
    values = [manifest["model"].get("name"), *cells, sampling.get("seed"), manifest["grader"]]
    shown = ["unknown" if value is None else str(value) for value in values]
    return tag("tr", tag("th", point.name, scope="row"), *(tag("td", text) for text in shown))


def reproduction(material: Material) -> Html:
    """The commands that lead here."""
    lines = [line for run in material.runs[:24] for line in _commands(run)]
    for lineup in material.lineups:
        if lineup.run is None and not material.methods:
            lines += [_evaluation(point) for point in lineup.points]
    places = " ".join(str(place) for place in material.places)
    lines.append(f"crt report {places}")
    return tag("pre", "\n".join(dict.fromkeys(lines)), class_="commands")


def _commands(run: RunView) -> list[str]:
    data = ",".join(run.config.evaluation.data) or "NAME"
    return [
        f"crt train {run.path}/config.json --out {run.path}-again",
        f"crt eval {run.path}-again --all-checkpoints --data {data}",
    ]


def _evaluation(point: Point) -> str:
    manifest = point.evaluation.manifest
    sampling = manifest["sampling"]
    data = ",".join(each["name"] for each in manifest["data"])
    options = {"rollouts": "rollouts", "temperature": "temperature", "top-p": "top_p"}
    options |= {"max-tokens": "max_tokens", "seed": "seed"}
    given = {name: sampling.get(key) for name, key in options.items()}
    told = " ".join(f"--{name} {value}" for name, value in given.items() if value is not None)
    model = manifest["model"].get("name") or "MODEL"
    return f"crt eval {model} --data {data} {told} --name {point.name}"
