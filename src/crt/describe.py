"""A configuration in words: what a run would do, before anyone pays for it."""

import json
import math
from collections.abc import Iterator
from typing import Any

from crt.algorithm.objectives import (
    AccuracyOnly,
    Guarded,
    LengthOnly,
    PrimalDual,
    Refine,
    Shorten,
    setting_fields,
)
from crt.algorithm.registry import Method
from crt.algorithm.two_stage import Saturation, TwoStage
from crt.config import RunConfig


def what_would_run(config: RunConfig) -> list[str]:
    """One sentence for each thing a run would do, in order."""
    sampling, schedule = config.sampling, config.schedule
    rollouts = schedule.problems_per_step * sampling.group_size
    return [
        f"Train {config.model.name} on {' + '.join(config.data.train)} with the {config.engine} "
        f"engine, seed {config.seed}.",
        f"Each of {schedule.steps:,} steps samples {schedule.problems_per_step} problems × "
        f"{sampling.group_size} rollouts = {rollouts:,} responses of at most "
        f"{sampling.max_tokens:,} tokens.{_budget(schedule.tokens)}",
        _reference(config),
        *_prescribed(config),
        *_stages(config.method, schedule.steps, schedule.tokens),
        f"A checkpoint every {_counted(schedule.save_every)}. {_evaluation(config)}",
    ]


def _counted(steps: int) -> str:
    return "step" if steps == 1 else f"{steps} steps"


def _budget(tokens: int | None) -> str:
    if tokens is None:
        return ""
    return f" The run ends sooner when the policy has generated {tokens:,} tokens in training."


def _reference(config: RunConfig) -> str:
    rollouts = config.reference.rollouts
    if config.reference.mode == "fresh":
        return f"The frozen reference answers every problem {rollouts} times anew in every step."
    return f"The frozen reference answers each problem {rollouts} times, once; the result is kept."


def _prescribed(config: RunConfig) -> Iterator[str]:
    """What a method asks for besides its reward."""
    if config.sampling.source == "reference":
        yield "Offline: the model a stage starts from writes the responses, frozen as it was."
    if config.prompt.budget != "none":
        yield (
            f"The prompt states a token budget ({config.prompt.budget}), chosen by the method; "
            f"checkpoints are measured with {config.prompt.budget_tokens}. The reference is told "
            "none."
        )
    if config.optim.estimator != "group_std":
        yield f"Advantages by the estimator {config.optim.estimator}."


def _stages(method: Method, steps: int, tokens: int | None) -> list[str]:
    if isinstance(method, TwoStage):
        end = method.saturation
        return [
            f"Stage I, at most {int(end.latest * steps)} steps"
            f"{f' or {end.latest:.0%} of the tokens' if tokens else ''}: "
            f"{_objective(method.shorten)} "
            f"{_saturation(end)}",
            f"Stage II, the rest, from the shortest {method.start} checkpoint: "
            f"{_objective(method.refine)}",
        ]
    return [_objective(method)]


def _saturation(end: Saturation) -> str:
    if not end.window:
        return "It uses them all."
    return (
        f"It ends when length improved less than {end.improvement:.0%} over {end.window} "
        f"steps, not before step {end.at_least}."
    )


def _objective(method: Method | Refine) -> str:
    match method:
        case Shorten():
            if method.rule == "switch":
                return (
                    "shorten while accuracy is at least the reference's − "
                    f"{method.tolerance:g} − slack ({method.slack:g}), otherwise restore accuracy."
                )
            return (
                "shorten and keep accuracy in every step: r = c·(2 + λ − L/mean L), where λ moves "
                f"by {method.rate:g} for each standard error that accuracy is below the "
                f"reference's − {method.tolerance:g}. Advantages have one scale for the batch."
            )
        case Refine():
            allowed = method.length_tolerance + method.length_slack
            return (
                f"raise accuracy while normalised length is at most Stage I's + {allowed:g}, "
                "otherwise shorten."
            )
        case PrimalDual():
            return (
                "Primal-dual: length and λ × accuracy in every step, λ from "
                f"{method.multiplier:g}, moved by {method.multiplier_rate:g} × the violation."
            )
        case Guarded():
            return (
                f"Guarded: {_objective(method.inner)} λ × accuracy is added, and λ moves by "
                f"{method.rate:g} for each standard error that accuracy is below the reference's − "
                f"{method.tolerance:g}."
            )
        case AccuracyOnly():
            return "Accuracy only (plain GRPO): a control without length pressure."
        case LengthOnly():
            return "Length only: a control without a guard; expect it to collapse."
        case TwoStage():
            raise AssertionError("a stage is not made of stages")
        case _:
            return _baseline(method)


def _baseline(method: Method) -> str:
    """The first sentence of its docstring, which holds the formula, and its settings."""
    summary = (type(method).__doc__ or type(method).__name__).splitlines()[0]
    settings = {name: getattr(method, name) for name in setting_fields(method)}
    given = ", ".join(f"{name} = {_plain(value)}" for name, value in settings.items())
    return f"{summary} Settings: {given}."


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return ", then ".join(_plain(item) for item in value)
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _evaluation(config: RunConfig) -> str:
    evaluation = config.evaluation
    if not evaluation.data:
        return "No evaluation is set."
    return (
        f"Evaluation on {', '.join(evaluation.data)}: {evaluation.rollouts} rollouts per problem, "
        f"T = {evaluation.temperature:g}, top-p {evaluation.top_p:g}, "
        f"at most {evaluation.max_tokens:,} tokens."
    )


def as_toml(config: RunConfig) -> str:
    """The resolved configuration as TOML; loading it gives the same configuration."""
    return "\n".join(_table(config.model_dump(mode="json"), ""))


def _table(values: dict[str, Any], path: str) -> Iterator[str]:
    """Values first, then sections; a setting without a value is left out."""
    for key, value in values.items():
        if not isinstance(value, dict) and value is not None:
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
    yield ""
    for key, value in values.items():
        if isinstance(value, dict):
            yield f"[{path}{key}]"
            yield from _table(value, f"{path}{key}.")


def digits(value: float) -> str:
    """Three significant digits: 1,450, 64.6, 0.0123."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"


def amount(count: float) -> str:
    """A number of tokens or parameters: 646 million."""
    for size, name in ((1e9, " billion"), (1e6, " million")):
        if count >= size:
            return digits(count / size) + name
    return digits(count)


def duration(hours: float) -> str:
    """In hours, minutes or seconds, whichever is the largest that gives at least 1."""
    if hours >= 1:
        return f"{digits(hours)} h"
    if hours * 60 >= 1:
        return f"{digits(hours * 60)} min"
    return f"{digits(hours * 3600)} s"
