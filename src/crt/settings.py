"""Plain values checked against the class they are for, with sentences that say what to do."""

import json
import types
from collections.abc import Iterator
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError

from crt.algorithm.objectives import setting_fields
from crt.algorithm.registry import METHODS
from crt.errors import did_you_mean

T = TypeVar("T")

Table = dict[str, Any]


def read_dataclass(kind: type[T], settings: Table) -> T:
    """A dataclass from plain values, without silent conversions; ValueError says what is wrong."""
    mistakes = unknown_keys(settings, kind)
    if mistakes:
        raise ValueError(" ".join(mistakes))
    try:
        return TypeAdapter(kind).validate_json(json.dumps(settings), strict=True)
    except ValidationError as error:
        raise ValueError(" ".join(sentences(error))) from None


def unknown_keys(data: Table, kind: Any) -> list[str]:
    """A sentence for every key that is not a setting of `kind`, here and below."""
    return list(_unknown_keys(data, kind, ()))


def _unknown_keys(data: Table, kind: Any, path: tuple[str, ...]) -> Iterator[str]:
    known = _settings_of(kind, data)
    for key, value in data.items():
        if key not in known:
            yield _unknown(key, path, known)
        elif isinstance(value, dict) and (below := _section(known[key])) is not None:
            yield from _unknown_keys(value, below, (*path, key))


def _settings_of(kind: Any, data: Table) -> dict[str, Any]:
    """Setting → type. A method's settings depend on its `type`."""
    if kind is METHODS:
        method = METHODS.get(str(data.get("type")))
        if method is None:
            return dict.fromkeys(data, Any)  # the wrong type is the mistake to report
        return {"type": str, **_settings_of(method, data)}
    if issubclass(kind, BaseModel):
        return {
            name: METHODS if name == "method" else field.annotation
            for name, field in kind.model_fields.items()
        }
    hints = get_type_hints(kind)
    return {name: hints[name] for name in setting_fields(kind)}


def _section(annotation: Any) -> Any:
    """The class behind a section, None for a plain value."""
    if annotation is METHODS:
        return METHODS
    choices = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else ()
    for choice in (annotation, *choices):
        if isinstance(choice, type) and (
            issubclass(choice, BaseModel) or hasattr(choice, "__dataclass_fields__")
        ):
            return choice
    return None


def _unknown(key: str, path: tuple[str, ...], known: dict[str, Any]) -> str:
    where = f"[{'.'.join(path)}] " if path else ""
    return f"{where}{key} is not a setting. {did_you_mean(key, known)}"


def sentences(error: ValidationError) -> list[str]:
    """Where, which value, and what it should be: one sentence a mistake."""
    by_place: dict[str, list[Any]] = {}
    for mistake in error.errors():
        place = ".".join(str(part) for part in mistake["loc"] if not _is_branch(part))
        by_place.setdefault(place, []).append(mistake)
    return [_sentence(place, mistakes) for place, mistakes in by_place.items()]


def _sentence(place: str, mistakes: list[Any]) -> str:
    """Several mistakes at one place are a union's branches: any of them would do."""
    first = mistakes[0]
    if first["type"] == "missing":
        return f"{place} is missing: give it a value."
    if first["type"] == "value_error":
        message = first["msg"].removeprefix("Value error, ")
        return f"{place}: {message}".removeprefix(": ") + ("" if message[-1] in ".?" else ".")
    wanted = " or ".join(m["msg"].removeprefix("Input should be ") for m in mistakes)
    verb = "should be " if first["msg"].startswith("Input should be ") else "is refused: "
    given = json.dumps(first["input"], default=str, ensure_ascii=False)
    return f"{place} = {given[:80]} {verb}{wanted}."


def _is_branch(part: object) -> bool:
    """Pydantic names the branch of a union in the location; a user's file has no such key."""
    return part in ("float", "int", "str", "bool") or (
        isinstance(part, str) and not part.isidentifier()
    )
