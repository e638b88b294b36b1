"""Writing a report: the page, figures for print, and the page again while a run goes on."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from crt.errors import ConfigError, CrtError, DataError
from crt.io import write_text, written_whole
from crt.reporting.load import ReportData, load_report_data
from crt.reporting.page import BUDGET, figures_of, page
from crt.reporting.style import Figure, render

FORMATS = ("svg", "pdf", "png")
WATCHED = (
    *("steps.jsonl", "progress.json", "checkpoints/*/record.json", "methods.json"),
    *("evaluations/*/figures.json", "evaluations/*/series.json", "runs/*/steps.jsonl"),
)


@dataclass(frozen=True)
class ReportOptions:
    """What a report is made of, and where it goes."""

    paths: tuple[Path, ...]
    out: Path
    figures: Path | None = None
    formats: tuple[str, ...] = FORMATS
    budget: int = BUDGET


def write_report(
    options: ReportOptions, refresh: int = 0, now: datetime | None = None
) -> ReportData:
    """Writes the page, and the figures if they are wanted; each file whole or not at all."""
    data = load_report_data(options.paths)
    figures = figures_of(data)
    _make_folder(options.out.parent)
    moment = now or datetime.now(UTC)
    write_text(options.out, page(data, figures, moment, options.budget, refresh))
    if options.figures is not None:
        save_figures(figures, options.figures, options.formats)
    return data


def save_figures(figures: Sequence[Figure], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Every figure in every format; further choices of one have a number: `training-2.svg`."""
    _make_folder(folder)
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


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path} cannot be made: {error.strerror}.") from None
