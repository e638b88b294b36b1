"""What must be the same for methods to be compared; the first difference is named."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from crt.config import RunConfig
from crt.errors import ConfigError

SAME = (
    "engine", "model", "data", "prompt", "sampling.max_tokens", "sampling.temperature",
    "sampling.top_p", "grading", "reference", "validation", "evaluation", "schedule.tokens",
    "schedule.save_every",
)  # fmt: skip
WITHOUT_BUDGET = ("schedule.steps", "schedule.problems_per_step", "sampling.group_size")


def check(configs: Sequence[tuple[str, RunConfig]], varied: Collection[str] = ()) -> None:
    """Refuses recipes that would not do the same work; `varied` settings are meant to differ."""
    (first, one), *rest = configs
    for name, other in rest:
        found = difference(one, other, varied)
        if found:
            key, ours, theirs = found
            raise ConfigError(
                f"{first} and {name} differ in {key}: {_short(ours)} and {_short(theirs)}. "
                f"A comparison is on the same work: change a recipe, or set it for all with "
                f"--set {key}=…."
            )
    if not one.evaluation.data:
        raise ConfigError(
            f"{first} has no evaluation.data: name held-out problems, for example "
            "--set 'evaluation.data=[\"pocket/test:200\"]'."
        )


def difference(
    one: RunConfig, other: RunConfig, varied: Collection[str] = ()
) -> tuple[str, Any, Any] | None:
    """The first setting that should be the same and is not, with both values."""
    paths = SAME if one.schedule.tokens else (*SAME, *WITHOUT_BUDGET)
    ours, theirs = _work(one), _work(other)
    for path in paths:
        a, b = (dict(_flat(_at(each, path), path)) for each in (ours, theirs))
        for key in [*a, *(key for key in b if key not in a)]:
            if a.get(key) != b.get(key) and key not in varied:
                return key, a.get(key), b.get(key)
    return None


def first_change(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """Where two whole configurations differ."""
    a, b = dict(_flat(one, "")), dict(_flat(other, ""))
    for key in [*a, *(key for key in b if key not in a)]:
        if a.get(key) != b.get(key):
            return key, a.get(key), b.get(key)
    return None


def _work(config: RunConfig) -> dict[str, Any]:
    """The settings as plain values; a budget in the prompt is the method's own."""
    plain = replace(config.prompt, budget="none", budget_tokens=None)
    return config.model_copy(update={"prompt": plain}).model_dump(mode="json")


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value[key]
    return value


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _flat(below, f"{path}.{key}" if path else key)
    else:
        yield path, value


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
