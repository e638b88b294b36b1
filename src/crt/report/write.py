"""Writing a report: the page, figures for print, and the page again while a run goes on."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from crt.errors import ConfigError, CrtError, DataError
from crt.files import write_text, written_whole
from crt.report.figures import style
from crt.report.page import BUDGET, Drawing, drawings, page
from crt.report.sources import Material, gather, unfinished

FORMATS = ("svg", "pdf", "png")
WATCHED = ("steps.jsonl", "progress.json", "checkpoints/*/record.json", "methods.json")
WATCHED_BELOW = ("evaluations/*/figures.json", "evaluations/*/series.json", "runs/*/steps.jsonl")


@dataclass(frozen=True)
class Order:
    """What a report is to be made of, and where it goes."""

    places: tuple[Path, ...]
    out: Path
    figures: Path | None = None
    formats: tuple[str, ...] = FORMATS
    budget: int = BUDGET


def write(order: Order, refresh: int = 0, now: datetime | None = None) -> Material:
    """Writes the page, and the figures if they are wanted; whole or not at all."""
    material = gather(order.places)
    found = drawings(material)
    moment = now or datetime.now(UTC)
    _folder(order.out.parent)
    write_text(order.out, page(material, found, moment, order.budget, refresh))
    if order.figures is not None:
        save_figures(found, order.figures, order.formats)
    return material


def save_figures(found: Sequence[Drawing], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Every figure in every format; the same rows give the same files."""
    _folder(folder)
    paths: list[Path] = []
    for drawing in found:
        for number, (_, module, rows, _) in enumerate(drawing.choices):
            name = drawing.key if number == 0 else f"{drawing.key}-{number + 1}"
            figure = module.drawn(rows)
            for form in formats:
                path = folder / f"{name}.{form}"
                with written_whole(path) as file:
                    style.save(figure, file, form)
                paths.append(path)
    return paths


def watch(
    order: Order,
    every: float,
    tell: Callable[[Material], None],
    note: Callable[[str], None],
) -> Material:
    """Writes again whenever something new is there, until every run has ended."""
    refresh = max(1, round(every))
    seen = fingerprint(order.places)
    material = write(order, refresh)
    try:
        tell(material)
        while any(unfinished(material)):
            time.sleep(every)
            state = fingerprint(order.places)
            if state == seen:
                continue
            seen = state
            try:
                material = write(order, refresh)
                tell(material)
            except CrtError as error:  # a file that is just being replaced is whole next time
                note(str(error))
    finally:  # nobody will write it again: the page must not wait for it
        material = write(order)
    return material


def fingerprint(places: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    """What changes when a run or an evaluation goes on."""
    files = [
        path
        for place in places
        for pattern in (*WATCHED, *WATCHED_BELOW)
        for path in sorted(place.glob(pattern))
    ]
    return tuple((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files)


def formats_of(text: str) -> tuple[str, ...]:
    """`svg,pdf` as formats; another one is refused."""
    found = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    bad = next((part for part in found if part not in FORMATS), None)
    if bad is not None or not found:
        raise ConfigError(f"--format {text!r}: a figure is {', '.join(FORMATS)}, or some of them.")
    return found


def _folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path} cannot be made: {error.strerror}.") from None
