"""A study of sensitivity: what was turned, in words, and its figures over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crt.errors import DataError
from crt.files import read_json

SENSITIVITY = "sensitivity.json"  # beside the methods.json of such a comparison
OWN = "as in the recipe"
WORDS = {  # the last part of a setting's name → what it is called
    "tolerance": "tolerance ε",
    "slack": "slack η",
    "problems_per_step": "problems a step",
    "length_on": "length counted on",
    "mode": "reference",
}
MEASURES = ("acc", "len", "aes2")
Row = dict[str, Any]


def read(place: Path) -> list[Row]:
    """A row a setting, value and seed; none where nothing was turned."""
    if not (place / SENSITIVITY).is_file():
        return []
    rows = read_json(place / SENSITIVITY)
    needed = {"setting", "value", "method", "own", *MEASURES}
    if isinstance(rows, list) and all(isinstance(r, dict) and needed <= r.keys() for r in rows):
        return rows
    raise DataError(
        f"{place / SENSITIVITY} is not a list of rows with {', '.join(sorted(needed))}."
    )


def title(setting: str) -> str:
    """A setting in words."""
    last = setting.rpartition(".")[2]
    return WORDS.get(last, last.replace("_", " "))


def labels(turned: Sequence[Row]) -> dict[str, str]:
    """Method → what is different in it, for tables and figures of all."""
    return {
        row["method"]: OWN if row["own"] else f"{title(row['setting'])} = {row['value']}"
        for row in turned
    }


def renamed(methods: Sequence[Row], names: Mapping[str, str]) -> list[Row]:
    """Rows of a comparison under the names that say what was turned."""
    return [{**row, "method": names.get(row["method"], row["method"])} for row in methods]


def over_seeds(turned: Sequence[Row]) -> list[Row]:
    """A row a setting and value: means over seeds, with their range."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in turned:
        groups.setdefault((row["setting"], str(row["value"])), []).append(row)
    return [_mean(order, *key, group) for order, (key, group) in enumerate(groups.items())]


def _mean(order: int, setting: str, value: str, group: Sequence[Row]) -> Row:
    row: Row = {"setting": setting, "title": title(setting), "value": value, "order": order}
    row |= {"own": group[0]["own"], "seeds": len(group)}
    row["numeric"] = isinstance(group[0]["value"], int | float)
    row["feasible"] = f"{sum(bool(each.get('feasible')) for each in group)} of {len(group)}"
    for name in (*MEASURES, "base_acc"):
        row |= ranged(name, group)
    return row


def ranged(name: str, group: Sequence[Row]) -> Row:
    """The mean over seeds and their range, under three names; None is unknown."""
    known = [each[name] for each in group if isinstance(each.get(name), int | float)]
    low, high = (min(known), max(known)) if known else (None, None)
    mean = float(np.mean(known)) if known else None
    return {name: mean, f"{name}_low": low, f"{name}_high": high}
