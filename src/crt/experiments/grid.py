"""Settings to try: `key=v1,v2` on the command line, or a file with a table a recipe."""

import tomllib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from crt.errors import ConfigError

Grid = dict[str, list[Any]]  # setting → values; settings joined by + are turned together
Values = dict[str, Any]  # setting → the value tried


def parsed(words: Sequence[str]) -> Grid:
    """`--grid section.key=v1,v2,…`; values are TOML, bare words are text."""
    grid: Grid = {}
    for word in words:
        key, equals, values = word.partition("=")
        if not equals or not key.strip() or not values.strip():
            raise ConfigError(f"--grid {word}: write it as section.key=value,value,….")
        if key.strip() in grid:
            raise ConfigError(f"--grid {key.strip()} is given twice: name all its values in one.")
        grid[key.strip()] = _values(values)
    return grid


def from_file(path: Path) -> dict[str, Grid]:
    """Recipe's name → its grid, from a TOML file: `[name]` and `"section.key" = [v1, v2]`."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a file of grids: {error}.") from None
    for name, grid in found.items():
        if not isinstance(grid, dict) or not all(isinstance(v, list) and v for v in grid.values()):
            raise ConfigError(
                f'{path}: [{name}] is not a grid; write "section.key" = [value, value] in it.'
            )
    return found


def every_combination(grid: Grid) -> list[Values]:
    """The whole grid; without a setting the recipe as it is."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def one_at_a_time(grid: Grid) -> Iterator[Values]:
    """Each value of each setting alone, the others as the recipe has them."""
    for key, values in grid.items():
        for value in values:
            yield {key: value}


def overrides(values: Values) -> list[str]:
    """The values as `--set` takes them."""
    return [f"{key}={toml(value)}" for keys, value in values.items() for key in apart(keys)]


def apart(keys: str) -> list[str]:
    """`one.key+other.key` is two settings that have the same value."""
    return [key.strip() for key in keys.split("+")]


def toml(value: Any) -> str:
    """A value as it is written in a recipe."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value)


def _values(text: str) -> list[Any]:
    try:
        return tomllib.loads(f"values = [{text}]")["values"]
    except tomllib.TOMLDecodeError:
        return [_value(part.strip()) for part in text.split(",")]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
