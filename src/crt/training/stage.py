"""One stage of training, whichever engine carries it out: what it optimises, asks, and its end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crt.algorithm.objectives import Objective
from crt.algorithm.registry import budgets
from crt.algorithm.two_stage import TwoStage
from crt.config import RunConfig
from crt.data.prompts import Prompt, render
from crt.run import Run
from crt.training.budget import Budget
from crt.training.context import Workshop
from crt.training.order import problem_order
from crt.types import Problem

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Stage:
    """What is optimised, from which model, over which of the run's steps."""

    number: int
    objective: Objective
    start: str  # the model it starts from, by name or folder
    first: int  # the run's step before its first
    steps: int  # at most
    guarded: bool = True
    over: Callable[[Rows], bool] = lambda rows: False


class Interrupted(Exception):
    """The process was asked to end; what is done is saved."""


def stage_of(run: Run) -> Stage:
    """The one a run is in, by its configuration and its progress."""
    if "stage_one_ended" not in run.progress or not isinstance(run.config.method, TwoStage):
        return first_stage(run.config)
    ended, schedule = run.progress["stage_one_ended"], run.config.schedule
    start = str(run.checkpoint(run.progress["stage_two_from"]))
    over = Budget.after(schedule.tokens, run.steps, ended).spent
    return Stage(2, run.config.method.refine, start, ended, schedule.steps - ended, over=over)


def first_stage(config: RunConfig) -> Stage:
    """Stage I, or the only one."""
    method, start = config.method, config.model.name
    steps, tokens = config.schedule.steps, config.schedule.tokens
    if not isinstance(method, TwoStage):
        return Stage(1, method, start, 0, steps, method.guarded, Budget(tokens).spent)
    saturation = method.saturation

    def saturated(rows: Rows) -> bool:
        lengths = [row["tokens"] for row in rows if "tokens" in row]
        return saturation.reached(lengths, steps, Budget(tokens).share(rows))

    return Stage(1, method.shorten, start, 0, int(saturation.latest * steps), over=saturated)


def order_of(workshop: Workshop, stage: Stage) -> list[list[Problem]]:
    """The problems of each of its steps."""
    config, steps = workshop.config, stage.first + stage.steps
    per_step = config.schedule.problems_per_step
    return problem_order(workshop.problems[0], per_step, steps, config.seed)[stage.first :]


def prompts_of(workshop: Workshop, stage: Stage, order: list[list[Problem]]) -> list[Prompt]:
    """What is sent in each step; a problem may come again with another budget."""
    template, seed = workshop.template, workshop.config.seed
    rendered: dict[tuple[str, int | None], Prompt] = {}
    sent: list[Prompt] = []
    for number, problems in enumerate(order, stage.first):
        asked: list[int | None] = [None] * len(problems)
        if template.settings.budget != "none":
            ids = [problem.id for problem in problems]
            asked = [int(each) for each in budgets(stage.objective, seed, number, ids)]
        for problem, budget in zip(problems, asked, strict=True):
            if (problem.id, budget) not in rendered:
                rendered[problem.id, budget] = render(problem, template, budget)
            sent.append(rendered[problem.id, budget])
    return sent


def ended_at(run: Run, stage: Stage, step: int) -> bool:
    """Whether the stage was over at this saved step: a kill came before the run could note it."""
    rows = [row for row in run.steps if row["stage"] == stage.number and row["step"] <= step]
    return step == stage.first + stage.steps or stage.over(rows)
