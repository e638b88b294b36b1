"""A comparison's outcome for a page of documentation: data, tables and a figure."""

from pathlib import Path
from typing import Any

from crt.errors import ConfigError, DataError
from crt.experiments.plan import Comparison
from crt.experiments.results import text_of, write_results
from crt.experiments.sensitivity import SENSITIVITY
from crt.io import read_json, write_json, write_text
from crt.reporting.figures import sensitivity, tradeoff
from crt.reporting.load import ReportData
from crt.reporting.report import save_figure


def export(comparison: Comparison, folder: Path) -> list[Path]:
    """KIND.json, KIND.md and KIND.png; what is there already is written anew."""
    if comparison.kind == "tune":
        raise ConfigError(f"{comparison.path} has chosen settings: it has no results to export.")
    found = write_results(comparison)
    if not found.results:
        raise DataError(f"{comparison.path} has no result yet: {'; '.join(found.missing[:3])}.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}.") from None
    made = _data(comparison, found.rows(), folder)
    table = folder / f"{comparison.kind}.md"
    write_text(table, text_of(found))
    return [*made, table, _picture(comparison, found.rows(), folder / f"{comparison.kind}.png")]


def _data(comparison: Comparison, rows: list[dict[str, Any]], folder: Path) -> list[Path]:
    """One object a method and seed, of the recommended checkpoints and of the last apart."""
    if comparison.kind == "sensitivity":
        parts = {"sensitivity": read_json(comparison.path / SENSITIVITY)}
    else:
        files = {"recommended": "methods", "last": "methods_last"}
        parts = {
            name: [row for row in rows if row["checkpoint"] == kind] for kind, name in files.items()
        }
    for name, part in parts.items():
        write_json(folder / f"{name}.json", part)
    return [folder / f"{name}.json" for name in parts]


def _picture(comparison: Comparison, rows: list[dict[str, Any]], path: Path) -> Path:
    """Accuracy against length, or what each setting does."""
    if comparison.kind == "sensitivity":
        varied = read_json(comparison.path / SENSITIVITY)
        (figure,) = sensitivity.figures(ReportData((), sensitivity=tuple(varied)))
    else:
        (figure,) = tradeoff.figures(ReportData((), methods=tuple(rows)))
    save_figure(figure, path)
    return path
