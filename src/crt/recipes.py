"""From a recipe file to a checked configuration, with errors that say what to do."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from crt.config import RunConfig, Table, sentences, unknown_settings
from crt.errors import ConfigError, did_you_mean
from crt.io import CHECKSUM, write_text

PACKAGED = Path(__file__).parent / "assets" / "recipes"  # those that come with the package


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The configuration of a TOML recipe, or of a run's `config.json`, with `key=value` changes.

    A name alone, such as `pocket` or `methods/kimi`, is a recipe inside the package.
    """
    if not path.is_file():
        path = packaged_recipes().get(str(path), path)
    data = _with_base(path, read_table(path))
    for name in ("versions", CHECKSUM):  # what a run's config.json says besides
        data.pop(name, None)
    for override in overrides:
        _override(data, override)
    return config_of(data, where=str(path))


def packaged_recipes() -> dict[str, Path]:
    """Name → file of the recipes inside the package."""
    files = sorted(PACKAGED.rglob("*.toml"))
    return {file.relative_to(PACKAGED).with_suffix("").as_posix(): file for file in files}


def list_recipes() -> list[str]:
    """A line per recipe: its name, and the first line of its comment; not what recipes share."""
    return [
        f"{name:<36}{file.read_text(encoding='utf-8').partition(chr(10))[0].lstrip('# ')}"
        for name, file in packaged_recipes().items()
        if file.parent.name != "base"
    ]


def copy_recipe(name: str, target: Path) -> None:
    """Writes a recipe of the package to a file; its base is named, so that it is found anywhere."""
    recipes = packaged_recipes()
    if name not in recipes:
        raise ConfigError(f"no recipe {name!r} in the package. {did_you_mean(name, recipes)}")
    if target.exists():
        raise ConfigError(f"{target} is there already: give another name with --out.")
    file, text = recipes[name], recipes[name].read_text(encoding="utf-8")
    base = read_table(file).get("base")
    if base is not None:
        place = (file.parent / base).resolve().relative_to(PACKAGED.resolve())
        text = text.replace(f'base = "{base}"', f'base = "{place.with_suffix("").as_posix()}"')
    write_text(target, text)


def with_overrides(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """The configuration with `key=value` changes, checked again."""
    data = config.model_dump(mode="json")
    for override in overrides:
        _override(data, override)
    return config_of(data)


def recipe_files(paths: Sequence[Path]) -> list[Path]:
    """The files themselves, and of a folder the recipes in it; those below are not meant."""
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.toml")) if path.is_dir() else [path]
        if not inside:
            raise ConfigError(f"{path} has no recipe (.toml) in it.")
        files += inside
    return files


def config_of(data: Table, where: str = "the configuration") -> RunConfig:
    """Checked, or refused with a sentence for every mistake."""
    if mistakes := list(unknown_settings(data, RunConfig)):
        raise ConfigError(f"{where}: " + "\n".join(mistakes))
    try:
        return RunConfig.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "\n".join(sentences(error))) from None


def _with_base(path: Path, data: Table, above: tuple[Path, ...] = ()) -> Table:
    """With `base = "other.toml"` a recipe says only what it changes; its [method] is its own.

    A base may have a base itself, or be the name of a recipe inside the package.
    """
    base = data.pop("base", None)
    if base is None:
        return data
    named = packaged_recipes()
    if not isinstance(base, str) or not (base.endswith(".toml") or base in named):
        raise ConfigError(
            f"{path}: base = {base!r} should be the path of a recipe (.toml), or the name of one "
            "in the package (crt recipe list)."
        )
    above = (*above, path.resolve())
    parent = named.get(base) or path.parent / base
    if parent.resolve() in above:
        raise ConfigError(f"{path}: its base {base} is based on it in turn: take one of them out.")
    below = _with_base(parent, read_table(parent), above)
    if "method" in data:
        below.pop("method", None)  # settings of one method mean nothing to another
    return _merged(below, data)


def _merged(below: Table, above: Table) -> Table:
    """The sections of both, value by value; what is above wins."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            value = _merged(old, value)
        both[key] = value
    return both


def read_table(path: Path) -> Table:
    """A TOML or JSON file as it stands."""
    try:
        text = path.read_bytes().decode("utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. Is the path right?") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}."
        ) from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a valid recipe: {error}.") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds {type(data).__name__}, a recipe is a table of settings.")
    return data


def _override(data: Table, override: str) -> None:
    """Sets `section.key=value`; the value is TOML, and a bare word is text."""
    key, equals, value = override.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise ConfigError(f"--set {override}: write it as section.key=value.")
    for name in names[:-1]:
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise ConfigError(f"--set {override}: {name} is a value, not a section.")
    data[names[-1]] = parse_value(value)


def parse_value(text: str) -> Any:
    """A value in TOML; a bare word is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()
