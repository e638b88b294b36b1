"""Settings in the words of verl's command line (Hydra's grammar)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

PLAIN = re.compile(r"[\w./@+-]+")

Overrides = dict[str, Any]


def flat(table: Mapping[str, Any], above: str = "") -> Overrides:
    """Tables below tables as dotted keys."""
    return dict(_flat(table, above))


def _flat(table: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:  # a plus, for a key that verl does not have yet, may stand at any part of it
            key = above + name
            yield "+" * ("+" in key) + key.replace("+", ""), value


def words(overrides: Overrides) -> list[str]:
    """As arguments of verl's command."""
    return [f"{key}={written(value)}" for key, value in overrides.items()]


def written(value: Any) -> str:
    """A value in the grammar of verl's command line (Hydra's)."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(written(each) for each in value) + "]"
    if PLAIN.fullmatch(str(value)):
        return str(value)
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
