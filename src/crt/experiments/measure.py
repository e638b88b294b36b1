"""Evaluates one run's checkpoints, or the base: python -m crt.experiments.measure DIR NAME."""

import sys
from dataclasses import replace
from pathlib import Path

from crt.config import RunConfig
from crt.errors import CrtError
from crt.evaluation.evaluator import Plan, evaluate
from crt.experiments.collect import is_evaluated, read_outcome
from crt.experiments.plan import Comparison, Job, open_comparison
from crt.processes import silence_libraries
from crt.run import Run


def measure_base(comparison: Comparison, seed: int) -> None:
    """Evaluates the model as it was; no budget is stated to it."""
    config = next(job.config for job in comparison.jobs if job.seed == seed)
    prompt = replace(config.prompt, budget="none", budget_tokens=None)
    plan = plan_for(config.model_copy(update={"prompt": prompt}), config.model.name)
    evaluate(plan, comparison.base(seed), name="base", note=print)


def measure_run(comparison: Comparison, job: Job) -> None:
    """Evaluates the recommended checkpoint and the last; once if they are the same."""
    run = Run.open(comparison.run(job))
    for step in dict.fromkeys(read_outcome(run.path).checkpoints.values()):
        folder = comparison.evaluation(job, step)
        if not is_evaluated(folder):
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
        grading=config.grading,
        load={"folder": config.data.folder, "skip_bad": config.data.skip_bad},
    )


def main(folder: str, name: str) -> None:
    """Evaluates one run by its name, or `base-seedN`."""
    silence_libraries()
    comparison = open_comparison(Path(folder))
    seeds = {comparison.base(seed).name: seed for seed in comparison.seeds}
    if name in seeds:
        measure_base(comparison, seeds[name])
    else:
        measure_run(comparison, next(job for job in comparison.jobs if job.name == name))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except CrtError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
