"""A configuration in words: what a run would do, before anyone pays for it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crt.algorithm.objectives import Dataclass, Guarded, setting_fields
from crt.algorithm.two_stage import TwoStage
from crt.config import ContractConfig, RunConfig
from crt.data.datasets import parse
from crt.data.sources import READERS
from crt.grading.verifiers import PLACES


def what_would_run(config: RunConfig) -> Iterator[str]:
    """One sentence for each thing a run would do, in order."""
    sampling, schedule, prompt = config.sampling, config.schedule, config.prompt
    rollouts = schedule.problems_per_step * sampling.group_size
    yield (
        f"Train {config.model.name} on {' + '.join(config.data.train)} with the {config.engine} "
        f"engine, seed {config.seed}."
    )
    yield (
        f"Each of {schedule.steps:,} steps samples {schedule.problems_per_step} problems × "
        f"{sampling.group_size} rollouts = {rollouts:,} responses of at most "
        f"{sampling.max_tokens:,} tokens."
    )
    if schedule.tokens is not None:
        tokens = f"{schedule.tokens:,} tokens"
        yield f"The run ends sooner when the policy has generated {tokens} in training."
    often = "anew in every step" if config.reference.mode == "fresh" else "once"
    times = config.reference.rollouts
    yield f"The frozen reference answers each problem {times} times, {often}."
    if sampling.source == "reference":
        yield "Offline: the model a stage starts from writes the responses, frozen as it was."
    if prompt.budget != "none":
        yield (
            f"The prompt states a token budget ({prompt.budget}), chosen by the method; "
            f"checkpoints are measured with {prompt.budget_tokens}. The reference is told none."
        )
    if config.optim.estimator != "group_std":
        yield f"Advantages by the estimator {config.optim.estimator}."
    yield from _stages(config)
    if config.contract != ContractConfig():
        lines = "; ".join(
            line.promise.name + (f" (tolerance {line.tolerance:g})" if line.tolerance else "")
            for line in config.contract.lines
        )
        kept = f"while it keeps {lines}" if lines else "while the method keeps its own guard"
        yield f"The contract: lower {config.contract.cost} {kept}."
    every = "step" if schedule.save_every == 1 else f"{schedule.save_every} steps"
    mean = f" A stage's last one is the mean of {schedule.average}." if schedule.average > 1 else ""
    yield f"A checkpoint every {every}.{mean} {_evaluation(config)}"


def _stages(config: RunConfig) -> Iterator[str]:
    method, schedule = config.method, config.schedule
    if not isinstance(method, TwoStage):
        yield _describe(method)
        return
    end = method.saturation
    tokens = f" or {end.latest:.0%} of the tokens" if schedule.tokens else ""
    last = f"Stage I has at most {int(end.latest * schedule.steps)} steps{tokens}"
    sooner = (
        f", and ends when length improved less than {end.improvement:.0%} over {end.window} steps, "
        f"not before step {end.at_least}"
    )
    yield f"{_describe(method.shorten)} {last}{sooner if end.window else ''}."
    yield f"{_describe(method.refine)} From the shortest {method.start} checkpoint of Stage I."


def _describe(method: Dataclass) -> str:
    """The first sentence of its docstring, which holds the formula, and its settings."""
    summary = (type(method).__doc__ or type(method).__name__).splitlines()[0]
    settings = {name: getattr(method, name) for name in setting_fields(method)}
    if isinstance(method, Guarded):
        return f"{summary} The inner method: {_describe(settings['inner'])}"
    given = ", ".join(f"{name} = {_plain(value)}" for name, value in settings.items())
    return f"{summary} Settings: {given}." if given else summary


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


def doubts(config: RunConfig) -> Iterator[str]:
    """A sentence for what would go wrong, as far as it can be seen without running anything."""
    for name in (*config.data.train, *config.validation.data, *config.evaluation.data):
        file = Path(parse(name).name)
        if file.suffix in READERS and not file.is_file():
            yield f"{file} does not exist."
    grading, prompt = config.grading, config.prompt
    asked = f"{prompt.instruction} {prompt.system} {prompt.plain}"
    if (grading.answer or PLACES.get(grading.verifier)) == "boxed" and "boxed" not in asked:
        yield (
            f"the verifier {grading.verifier} looks into \\boxed{{}}, and the prompt does not ask "
            "for it: responses may have no answer. Ask for it in prompt.instruction, or say in "
            "grading.answer where the answer stands."
        )


def as_toml(config: RunConfig) -> str:
    """The resolved configuration as TOML; loading it gives the same configuration."""
    return "\n".join(_table(config.model_dump(mode="json"), ""))


def _table(values: dict[str, Any], path: str) -> Iterator[str]:
    """Values first, then sections; a setting without a value is left out."""
    sections = [key for key, value in values.items() if isinstance(value, dict)]
    lists = [
        key
        for key, value in values.items()
        if value and isinstance(value, list) and isinstance(value[0], dict)
    ]
    for key, value in values.items():
        if key not in (*sections, *lists) and value is not None:
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
    yield ""
    for key in sections:
        yield f"[{path}{key}]"
        yield from _table(values[key], f"{path}{key}.")
    for key in lists:
        for section in values[key]:
            yield f"[[{path}{key}]]"
            yield from _table(section, f"{path}{key}.")
