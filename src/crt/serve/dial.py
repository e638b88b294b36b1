"""From a request to a level: the model's name, a token target, effort, or verbosity."""

from dataclasses import dataclass

from crt.errors import did_you_mean
from crt.serve.family import Family, Level
from crt.serve.faults import ApiError
from crt.serve.protocol import Dialled

EFFORT = {  # how far along the dial, from the shortest (0) to the base (1)
    "none": 0.0,
    "minimal": 0.0,
    "low": 1 / 3,
    "medium": 2 / 3,
    "high": 1.0,
    "xhigh": 1.0,
}
VERBOSITY = {"low": 0.0, "medium": 0.5, "high": 1.0}


@dataclass(frozen=True)
class Setting:
    """The level that was chosen, and what chose it."""

    level: Level
    by: str  # model, token_target, reasoning_effort, verbosity or default


def choose_level(family: Family, request: Dialled, default: Level) -> Setting:
    """The first of these that says something: model name, token target, effort, verbosity."""
    named = named_level(family, request.model)
    if named is not None and request.token_target is not None:
        raise ApiError(
            400,
            f"The model {request.model!r} names a level and token_target = "
            f"{request.token_target} asks for another: give one of them, with the model "
            f"{family.name!r} for a target.",
            param="token_target",
            code="dial_conflict",
        )
    if named is not None:
        return Setting(named, "model")
    if request.token_target is not None:
        return Setting(nearest(family, request.token_target), "token_target")
    if request.reasoning_effort is not None:
        return Setting(at(family, EFFORT[request.reasoning_effort]), "reasoning_effort")
    if request.verbosity is not None:
        return Setting(at(family, VERBOSITY[request.verbosity]), "verbosity")
    return Setting(default, "default")


def named_level(family: Family, model: str) -> Level | None:
    """The level in `NAME:LEVEL`; None for `NAME` alone, 404 for anything else."""
    name, colon, level = model.partition(":")
    found = family.level(level) if colon else None
    if name != family.name or (colon and found is None):
        raise ApiError(
            404,
            f"There is no model {model[:80]!r}. {did_you_mean(model, model_ids(family))}",
            param="model",
            code="model_not_found",
        )
    return found


def model_ids(family: Family) -> list[str]:
    """What `/v1/models` lists: the family, whose dial is in the request, and each level."""
    return [family.name, *(f"{family.name}:{level.name}" for level in family.levels)]


def at(family: Family, share: float) -> Level:
    """The level that far along the dial; between two, the shorter one."""
    place = int(share * (len(family.levels) - 1) + 1e-9)
    return family.levels[place]


def nearest(family: Family, tokens: int) -> Level:
    """The level whose measured mean length is nearest; of two equally near, the shorter one."""
    return min(family.levels, key=lambda level: (abs(level.len.value - tokens), level.len.value))
