"""Evaluates one run's checkpoints, or the base: python -m crt.experiments.measure DIR NAME."""

import sys
from dataclasses import replace
from pathlib import Path

from crt.config import RunConfig
from crt.evaluation.evaluator import Plan, evaluate
from crt.evaluation.store import FIGURES
from crt.experiments.outcome import outcome
from crt.experiments.plan import Comparison, Job, opened
from crt.run import Run


def is_measured(comparison: Comparison, job: Job) -> bool:
    """Whether nothing is left to evaluate of a run that is over."""
    chosen = outcome(comparison.run(job)).chosen or {}
    folders = [comparison.evaluation(job, step) for step in chosen.values()]
    return all((folder / FIGURES).is_file() for folder in folders)


def base_is_measured(comparison: Comparison, seed: int) -> bool:
    """Whether the base model's evaluation with this seed is there."""
    return (comparison.base(seed) / FIGURES).is_file()


def measure_base(comparison: Comparison, seed: int) -> None:
    """The model as it was: no budget is stated to it."""
    config = next(job.config for job in comparison.jobs if job.seed == seed)
    plain = replace(config.prompt, budget="none", budget_tokens=None)
    plan = plan_for(config.model_copy(update={"prompt": plain}), config.model.name)
    evaluate(plan, comparison.base(seed), name="base", note=print)


def measure(comparison: Comparison, job: Job) -> None:
    """The recommended checkpoint and the last; once if they are the same."""
    run = Run.open(comparison.run(job))
    for step in dict.fromkeys((outcome(run.path).chosen or {}).values()):
        folder = comparison.evaluation(job, step)
        if not (folder / FIGURES).is_file():
            plan = plan_for(run.config, str(run.checkpoint(step)))
            evaluate(plan, folder, name=job.method, note=print)


def plan_for(config: RunConfig, model: str) -> Plan:
    """As the recipe says, with the prompt that the method was trained with."""
    own = {"name": model} | ({} if model == config.model.name else {"revision": None})
    return Plan(
        config.model.model_copy(update=own),
        config.evaluation,
        prompt=config.prompt,
        seed=config.seed,
        truncated="grade" if config.grading.truncated == "grade" else "wrong",
        load={"folder": config.data.folder, "skip_bad": config.data.skip_bad},
    )


def main(folder: str, name: str) -> int:
    """One run by its name, or `base-seedN`."""
    from crt.processes import silence_libraries

    silence_libraries()
    comparison = opened(Path(folder))
    seeds = {comparison.base(seed).name: seed for seed in comparison.seeds}
    if name in seeds:
        measure_base(comparison, seeds[name])
    else:
        measure(comparison, next(job for job in comparison.jobs if job.name == name))
    return 0


if __name__ == "__main__":
    from crt.errors import CrtError

    try:
        sys.exit(main(*sys.argv[1:]))
    except CrtError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
