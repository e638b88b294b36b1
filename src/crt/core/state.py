"""An objective's memory as JSON, saved with every checkpoint and restored exactly."""

from dataclasses import Field, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar


class Dataclass(Protocol):
    """Any dataclass: its fields are visible, and so is what it remembers."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=Dataclass)


def state_of(objective: Dataclass) -> dict[str, Any]:
    """The fields that change from step to step, as JSON values; empty without a memory."""
    return {name: getattr(objective, name) for name in state_fields(objective)}


def with_state(objective: T, saved: dict[str, Any]) -> T:
    """The objective with a saved memory; its settings stay as they are configured now."""
    names = state_fields(objective)
    if set(saved) != set(names):
        raise ValueError(
            f"The saved state has {sorted(saved)}, {type(objective).__name__} has {sorted(names)}: "
            "it was saved by another method."
        )
    return replace(objective, **saved)


def state_fields(objective: Dataclass | type[Dataclass]) -> tuple[str, ...]:
    """Names of the fields marked as state."""
    return tuple(f.name for f in fields(objective) if f.metadata.get("state"))


def setting_fields(objective: Dataclass | type[Dataclass]) -> tuple[str, ...]:
    """Names of the fields a recipe may set."""
    return tuple(f.name for f in fields(objective) if f.metadata.get("setting", True))
