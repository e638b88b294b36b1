"""What goes with verl's checkpoint: the objective's memory, and what it was set to."""

import json
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
from crt.training.verl.advantages import ReferenceColumns

STATE_FILE = "crt.json"
OBJECTIVES: dict[str, Any] = {
    **{name: kind for name, kind in METHODS.items() if name != "crt"},
    "refine": Refine,  # Stage II of `crt`; Stage I is `crt_1s`
}

AnyObjective = TypeVar("AnyObjective", bound=Objective)


def describe_objective(objective: Objective) -> dict[str, Any]:
    """An objective's name and settings, as JSON gives them back: a tuple is a list there."""
    name = next(name for name, kind in OBJECTIVES.items() if isinstance(objective, kind))
    return json.loads(json.dumps({"type": name, **settings_of(objective)}))


def read_objective(settings: Mapping[str, Any]) -> Objective:
    """The objective of such plain values."""
    rest = dict(settings)
    name = rest.pop("type", None)
    if name not in OBJECTIVES:
        raise ConfigError(f"crt.objective.type = {name!r}. {did_you_mean(str(name), OBJECTIVES)}")
    try:
        return read_dataclass(OBJECTIVES[name], rest)
    except ValueError as error:
        raise ConfigError(f"crt.objective: {error}") from None


def state_to_save(
    objective: Objective,
    settings: Mapping[str, Any],
    stage: int,
    checkpoints: Mapping[int, Mapping[str, Any]],
    reference: Mapping[str, ReferenceColumns],
) -> dict[str, Any]:
    """Everything a resumed stage needs besides verl's own files.

    `settings` are those the stage was configured with, `checkpoints` the records so far.
    """
    return {
        "stage": stage,
        "objective": dict(settings),
        "memory": state_of(objective),
        "checkpoints": {str(step): dict(record) for step, record in checkpoints.items()},
        "reference": dict(reference),
    }


def restore_objective(
    objective: AnyObjective, state: Mapping[str, Any]
) -> tuple[AnyObjective, list[str]]:
    """The configured objective with the saved memory, and a note on every changed setting.

    Where a setting was changed since, the configuration wins, also if it says where a memory
    begins.
    """
    now, before = describe_objective(objective), state["objective"]
    if now["type"] != before["type"]:
        raise ConfigError(
            f"the checkpoint was saved by {before['type']!r}, not by {now['type']!r}: go on with "
            "the method it was begun with, or start anew."
        )
    changed = [name for name in setting_fields(objective) if now[name] != before.get(name)]
    memory = state["memory"] | {
        name: getattr(objective, name) for name in changed if name in state_fields(objective)
    }
    notes = [
        f"{name} was {before.get(name)!r} when this was saved and is {now[name]!r} now: the "
        "configuration counts."
        for name in changed
    ]
    return with_state(objective, memory), notes


def restore_reference(
    current: Mapping[str, ReferenceColumns], state: Mapping[str, Any]
) -> tuple[dict[str, ReferenceColumns], list[str]]:
    """The reference's columns as the stage was begun with, and a note if the data has others.

    They are statistics of a frozen policy: a stage that changed them midway would compare with two.
    """
    saved = state["reference"]
    others = [name for name, columns in saved.items() if current.get(name) != columns]
    notes = [
        f"the data file has other reference rollouts for {len(others)} problems, for example "
        f"{name!r}, than the checkpoint: those of the checkpoint count."
        for name in others[:1]
    ]
    return {**current, **saved}, notes
