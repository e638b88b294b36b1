"""What goes with verl's checkpoint: the objective's memory, and what it was set to."""

from collections.abc import Mapping
from typing import Any, TypeVar

from crt.algorithm.objectives import (
    Objective,
    Refine,
    setting_fields,
    state_fields,
    state_of,
    with_state,
)
from crt.algorithm.registry import METHODS
from crt.config import read_dataclass, settings_of
from crt.errors import ConfigError, did_you_mean

STATE_FILE = "crt.json"
OBJECTIVES: dict[str, Any] = {
    **{name: kind for name, kind in METHODS.items() if name != "crt"},
    "refine": Refine,  # Stage II of `crt`; Stage I is `crt_1s`
}

AnyObjective = TypeVar("AnyObjective", bound=Objective)


def described(objective: Objective) -> dict[str, Any]:
    """An objective's name and settings, as plain values."""
    name = next(name for name, kind in OBJECTIVES.items() if isinstance(objective, kind))
    return {"type": name, **settings_of(objective)}


def objective_from(settings: Mapping[str, Any]) -> Objective:
    """The objective of such plain values."""
    rest = dict(settings)
    name = rest.pop("type", None)
    if name not in OBJECTIVES:
        raise ConfigError(f"crt.objective.type = {name!r}. {did_you_mean(str(name), OBJECTIVES)}")
    try:
        return read_dataclass(OBJECTIVES[name], rest)
    except ValueError as error:
        raise ConfigError(f"crt.objective: {error}") from None


def saved(
    objective: Objective,
    start: Mapping[str, Any],
    stage: int,
    checkpoints: Mapping[int, Mapping[str, Any]],
    reference: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything a resumed stage needs besides verl's own files.

    `start` are the settings it was configured with, `checkpoints` the records so far, from which
    the feasible ones are chosen, `reference` the frozen policy's columns of each problem.
    """
    return {
        "stage": stage,
        "objective": dict(start),
        "memory": state_of(objective),
        "checkpoints": {str(step): dict(record) for step, record in checkpoints.items()},
        "reference": dict(reference),
    }


def restored(objective: AnyObjective, kept: Mapping[str, Any]) -> tuple[AnyObjective, list[str]]:
    """The configured objective with the saved memory, and a word about every changed setting.

    Where a setting was changed since, the configuration wins, also if it says where a memory
    begins.
    """
    now, before = described(objective), kept["objective"]
    if now["type"] != before["type"]:
        raise ConfigError(
            f"the checkpoint was saved by {before['type']!r}, not by {now['type']!r}: go on with "
            "the method it was begun with, or start anew."
        )
    changed = [name for name in setting_fields(objective) if _plain(now, name) != before.get(name)]
    memory = kept["memory"] | {
        name: getattr(objective, name) for name in changed if name in state_fields(objective)
    }
    words = [
        f"{name} was {before.get(name)!r} when this was saved and is {now[name]!r} now: the "
        "configuration counts."
        for name in changed
    ]
    return with_state(objective, memory), words


def frozen(kept: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The reference's columns as the stage was begun with, and a word if the data file has others.

    They are statistics of a frozen policy: a stage that changed them midway would compare with two.
    """
    others = [name for name, columns in kept["reference"].items() if now.get(name) != columns]
    words = [
        f"the data file has other reference rollouts for {len(others)} problems, for example "
        f"{others[0]!r}, than the checkpoint: those of the checkpoint count."
    ] if others else []  # fmt: skip
    return {**now, **kept["reference"]}, words


def _plain(settings: Mapping[str, Any], name: str) -> Any:
    """As JSON gives it back: a tuple is a list there."""
    value = settings[name]
    return list(value) if isinstance(value, tuple) else value
