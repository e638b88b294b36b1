"""From a graded rollout to a number: what may be shortened, and what a line may be about.

A measure is one function of a rollout: one of `MEASURES`, or a function of the user's as
`package.module:function` or `path/file.py:function`. It runs in the process that trains.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from crt.errors import ConfigError, GradingError, did_you_mean
from crt.grading.verifiers import source_of
from crt.grading.workers import load_function
from crt.types import Rollout, Verdict

Measure = Callable[[Rollout], float | None]


def tokens(rollout: Rollout) -> float | None:
    """All that the model generated."""
    return rollout.length


def thinking(rollout: Rollout) -> float | None:
    """Up to the end of the thinking; all of a response that never ends it."""
    return rollout.thinking


def answer(rollout: Rollout) -> float | None:
    """What follows the thinking. A response without any is no short one: it counts whole."""
    if rollout.length is None or rollout.thinking is None:
        return None
    return rollout.length - rollout.thinking or rollout.length


def answered(rollout: Rollout) -> float | None:
    """What follows the thinking, 0 without any: no long answer, where answers may not get short."""
    if rollout.length is None or rollout.thinking is None:
        return None
    return rollout.length - rollout.thinking


def form(rollout: Rollout) -> float:
    """1 if there is an answer where it has to be, right or wrong."""
    return float(rollout.verdict is not Verdict.NO_ANSWER and rollout.stop != "length")


MEASURES: dict[str, Measure] = {
    "tokens": tokens,
    "thinking": thinking,
    "answer": answer,
    "answered": answered,
    "format": form,
}


COSTS = ("tokens", "thinking", "answer")  # of them; fewer answers in their place are no gain


def check_measure(name: str, where: str, others: Iterable[str] = ()) -> None:
    """Raises ConfigError for what is neither a cost, one of the others, nor a function."""
    if ":" in name:
        if not Path(name.rpartition(":")[0]).is_absolute():  # of a run, which is read without it
            source_of(name, where)
    elif name not in (*COSTS, *others):
        hint = did_you_mean(name, (*COSTS, *others))
        raise ConfigError(
            f"{name!r} is not known. {hint} Your own function of a rollout is "
            "`package.module:function` or `path/file.py:function`."
        )


def measure_of(name: str) -> Callable[[Rollout], float]:
    """By name; the number is checked, for a cost that is no number would train on nothing."""
    return partial(_number, name, MEASURES[name] if name in MEASURES else _own(name))


def _own(name: str) -> Measure:
    loaded: Any = load_function
    source_of(name, "contract")
    try:
        return loaded(name)
    except Exception as error:  # the user's module may raise anything
        raise ConfigError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from None


def _number(name: str, measure: Measure, rollout: Rollout) -> float:
    try:
        value = measure(rollout)
    except Exception as error:
        raise _unmeasured(name, rollout, f"raised {type(error).__name__}: {error}") from None
    if value is None and name in MEASURES:
        raise _unmeasured(name, rollout, "is not known: its tokens were not counted")
    try:
        number = float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise _unmeasured(name, rollout, f"is {value!r:.60}, not a finite number of 0 or more")
    return number


def _unmeasured(name: str, rollout: Rollout, what: str) -> GradingError:
    return GradingError(f"{name} of a response to problem {rollout.problem_id!r} {what}.")
