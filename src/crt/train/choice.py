"""Which checkpoint a run hands over: the shortest feasible one, by a measurement of its own."""

from collections.abc import Callable, Sequence
from typing import Any

from crt.core.batch import batch_of
from crt.core.feasible import Candidate, candidates_of, shortest_feasible, shortest_plausible
from crt.core.methods import Start
from crt.errors import DataError, GradingError
from crt.files import write_sealed
from crt.run import RECORD, Run
from crt.train.measure import Floor, figures
from crt.train.states import check, set_aside
from crt.train.workshop import Workshop

FINAL_DRAW = 2  # another stream of random numbers than that of the first measurement

Choose = Callable[[Sequence[Candidate]], Candidate]
RULES: dict[Start, Choose] = {"feasible": shortest_feasible, "plausible": shortest_plausible}


def confirmed(run: Run, workshop: Workshop, floor: Floor, rule: Start = "feasible") -> Candidate:
    """The shortest feasible checkpoint, measured again with `validation.final_rollouts`.

    The shortest of many that seem feasible is often one that was lucky. So the one in question is
    drawn anew and more finely; if it fails, the next is in question, a few times at most.
    """
    settings, choose = run.config.validation, RULES[rule]
    if not settings.final_rollouts:
        return chosen(run.checkpoints, choose)
    for _ in range(settings.finalists):
        step = chosen(still_in_question(run.checkpoints, rule), shortest_plausible).step
        if run.checkpoints[step].get("final"):
            break
        if is_sound(run, workshop, step):
            measure_again(run, workshop, step, floor)
    final = {step: record for step, record in run.checkpoints.items() if record.get("final")}
    return chosen(final, choose)


def still_in_question(records: dict[int, dict[str, Any]], rule: Start) -> dict[int, dict[str, Any]]:
    """Checkpoints without those whose final measurement failed the rule; all if none is left."""
    passed = {c.step for c in candidates_of(records) if getattr(c, rule)}
    left = {step: r for step, r in records.items() if step in passed or not r.get("final")}
    return left or records


def is_sound(run: Run, workshop: Workshop, step: int) -> bool:
    """Whether a checkpoint's files are as they were written; a damaged one leaves the choice."""
    folder = run.checkpoint(step)
    if workshop.ranks.writes:
        try:
            check(folder, folder / RECORD)
        except DataError as error:
            set_aside(run, step, error)
    workshop.ranks.wait()
    return folder.is_dir()


def measure_again(run: Run, workshop: Workshop, step: int, floor: Floor) -> None:
    """A finer measurement in place of the first, which stays in the record beside it."""
    folder, copies = run.checkpoint(step), run.config.validation.final_rollouts
    asked = len(workshop.problems[1])
    workshop.say(f"Measuring {folder.name} again on {asked} problems × {copies}.")
    model = workshop.load(str(folder))
    how = workshop.validation_sampling
    engine = workshop.frozen(model, how)
    policy = workshop.policy(model, sampler=engine, sampling=how)
    rollouts = workshop.measured(policy, copies, step, FINAL_DRAW)
    workshop.release()
    batch, left_out = batch_of(rollouts, run.config.grading.truncated)
    if workshop.ranks.writes:
        record = run.checkpoints[step]
        first = {name: record[name] for name in ("accuracy", "tokens", "margin", "rollouts")}
        found = figures(batch, left_out, floor) | {"final": True, "first": first}
        write_sealed(folder / RECORD, record | found)
    workshop.ranks.wait()


def chosen(records: dict[int, dict[str, Any]], choose: Choose) -> Candidate:
    """The checkpoint to choose by these records, step → record."""
    candidates = candidates_of(records)
    if not candidates:
        raise GradingError(
            f"none of {len(records)} checkpoints could be graded on the validation problems, so "
            "none can be chosen: look at the grader's settings and at the rollouts."
        )
    return choose(candidates)
