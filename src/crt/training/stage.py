"""One stage, whichever engine carries it out: what it optimises, which problems, and its end."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crt.algorithm.contract import under_contract
from crt.algorithm.objectives import Objective
from crt.algorithm.registry import budgets
from crt.algorithm.two_stage import TwoStage, guard_of
from crt.config import RunConfig
from crt.data.prompts import Prompt, render
from crt.run import Run
from crt.training.context import RunContext
from crt.types import Problem


def problem_order(
    problems: Sequence[Problem], per_step: int, steps: int, seed: int
) -> list[list[Problem]]:
    """A list of problems a step; every pass through the data is shuffled anew.

    A pass ends where a whole step no longer fits, so that no step has a problem twice.
    """
    steps_a_pass = len(problems) // per_step
    order: list[list[Problem]] = []
    for number in range(steps):
        epoch, place = divmod(number, steps_a_pass)
        shuffled = np.random.default_rng([seed, epoch]).permutation(len(problems))
        chosen = shuffled[place * per_step : (place + 1) * per_step]
        order.append([problems[i] for i in chosen])
    return order


Row = Mapping[str, Any]


def generated(rows: Iterable[Row]) -> int:
    """Tokens that the policy generated in these steps; the reference's do not count."""
    return sum(row["generated_tokens"] for row in rows)


@dataclass(frozen=True)
class Budget:
    """A run's tokens; `used` were generated before the stage that asks. None is no limit."""

    tokens: int | None
    used: int = 0

    @classmethod
    def after(cls, tokens: int | None, rows: Sequence[Row], step: int) -> "Budget":
        """What is there for a stage that begins after this step of the run."""
        return cls(tokens, generated(row for row in rows if row["step"] <= step) if tokens else 0)

    def share(self, rows: Sequence[Row]) -> float:
        """How much of it is used after these rows of the stage; 0 without a limit."""
        return (self.used + generated(rows)) / self.tokens if self.tokens else 0.0

    def spent(self, rows: Sequence[Row]) -> bool:
        """Whether the run is over."""
        return self.share(rows) >= 1.0


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
    refine = guarded_by(run.config, run.config.method.refine)
    return Stage(2, refine, start, ended, schedule.steps - ended, over=over)


def guarded_by(config: RunConfig, objective: Objective) -> Objective:
    """A stage's objective under the recipe's contract, if it has one."""
    return under_contract(objective, config.contract.promises, guard_of(config.method).slack)


def first_stage(config: RunConfig) -> Stage:
    """Stage I, or the only one."""
    method, start = config.method, config.model.name
    steps, tokens = config.schedule.steps, config.schedule.tokens
    if not isinstance(method, TwoStage):
        objective = guarded_by(config, method)
        return Stage(1, objective, start, 0, steps, objective.guarded, Budget(tokens).spent)
    saturation = method.saturation

    def saturated(rows: Rows) -> bool:
        lengths = [row.get("cost", row["tokens"]) for row in rows if "tokens" in row]
        return saturation.reached(lengths, steps, Budget(tokens).share(rows))

    shorten = guarded_by(config, method.shorten)
    return Stage(1, shorten, start, 0, int(saturation.latest * steps), over=saturated)


def order_of(context: RunContext, stage: Stage) -> list[list[Problem]]:
    """The problems of each of its steps."""
    config, steps = context.config, stage.first + stage.steps
    per_step = config.schedule.problems_per_step
    return problem_order(context.problems[0], per_step, steps, config.seed)[stage.first :]


def prompts_of(context: RunContext, stage: Stage, order: list[list[Problem]]) -> list[Prompt]:
    """What is sent in each step; a problem may come again with another budget."""
    template, seed = context.template, context.config.seed
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
