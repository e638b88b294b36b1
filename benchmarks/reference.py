"""How many reference rollouts does the guard need? Decisions and trained policies, in a minute.

    python benchmarks/reference.py
    python benchmarks/reference.py --run runs/demo

Nothing is cached: the reference is drawn anew in every step. The first tables ask for decisions:
problems as hard as the pocket model finds its own, a policy of known true gap, and the guard of
Stage I, the paper's switch; then that of Stage II. The last one trains the tabular policy, whose
accuracy is known exactly, with so many fresh reference rollouts, and says how far below the base
it ends and how short it becomes.
"""

import argparse
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from validation import DIFFERS, HARDNESS, drawn, shifts

from crt.algorithm.batch import Batch, batch_of
from crt.algorithm.objectives import Refine, Shorten
from crt.algorithm.step import signal
from crt.algorithm.tabular import make_base
from crt.data.datasets import load_mixture
from crt.run import Run
from crt.training.reference import Store
from crt.types import Rollout, Verdict

Array = NDArray[np.float64]

GROUP = 16
FULL = 16  # reference rollouts a problem, as in the paper
GAPS = (0.0, 0.02, 0.05)  # of true accuracy
LONGER = (0.0, 0.1, 0.25)  # than the reference
SWITCH = Shorten(rule="switch", slack=0.03)  # about a standard error at 32 × 16


@dataclass(frozen=True)
class Guard:
    """A number of reference rollouts a problem."""

    rollouts: int

    def __str__(self) -> str:
        return f"{self.rollouts:2d}"


GUARDS = (
    Guard(16),
    Guard(8),
    Guard(4),
    Guard(2),
)


def first(batch: Batch, rollouts: int) -> Batch:
    """The same batch with fewer rollouts."""
    return Batch(batch.problem_ids, batch.correct[:, :rollouts], batch.length[:, :rollouts])


def repaired(
    rng: np.random.Generator, guards: Sequence[Guard], problems: int, shift: float, steps: int
) -> NDArray[np.bool_]:
    """(guards + 1, steps) whether each guard repairs; all see the same steps.

    The last row is the first guard again with another draw of the reference: two draws of the
    whole number do not agree always either.
    """
    objectives = [SWITCH] * (len(guards) + 1)
    found = np.zeros((len(objectives), steps), dtype=bool)
    for step in range(steps):
        base = rng.beta(*HARDNESS, problems)
        policy = np.clip(base - rng.normal(shift, DIFFERS, problems), 0, 1)
        batch, reference, other = (
            drawn(rng, chance, GROUP if chance is policy else FULL)
            for chance in (policy, base, base)
        )
        seen = [first(reference, guard.rollouts) for guard in guards]
        for i, against in enumerate((*seen, first(other, guards[0].rollouts))):
            decision, objectives[i] = objectives[i].step(batch, against)
            found[i, step] = decision.goal == "accuracy"
    return found


def decisions(problems: int, steps: int, seed: int) -> None:
    """How often each guard repairs at each true gap, and agrees with the paper's number."""
    rng = np.random.default_rng(seed)
    shift = shifts(rng, np.array(GAPS))
    tables = [repaired(rng, GUARDS, problems, float(each), steps) for each in shift]
    print(
        f"\n{problems} problems × {GROUP} rollouts a step, slack {SWITCH.slack:g}, "
        f"{steps} steps each"
    )
    print("reference rollouts     repairs when 0 / 2 / 5 points worse    as with 16, drawn alike")
    for i, name in enumerate([*map(str, GUARDS), "16 again, another draw"]):
        shares = " / ".join(f"{100 * table[i].mean():4.1f}" for table in tables)
        same = np.mean([(table[i] == table[0]).mean() for table in tables])
        print(f"{name:<24} {shares:^36} {100 * same:20.1f} %")


def lengths(problems: int, steps: int, seed: int) -> None:
    """Stage II's guard: how often it shortens a policy that is longer by so much."""
    rng = np.random.default_rng(seed)
    print(f"\nStage II, tabular policy, {problems} problems × {GROUP} a step, {steps} steps each")
    print(f"reference rollouts     shortens when {' / '.join(f'{x:+.0%}' for x in LONGER)} tokens")
    for rollouts in (16, 8, 4, 2):
        shares = [_shortened(rng, problems, rollouts, longer, steps) for longer in LONGER]
        print(f"{rollouts:2d} {' / '.join(f'{100 * share:5.1f}' for share in shares):>45}")


def _shortened(
    rng: np.random.Generator, problems: int, rollouts: int, longer: float, steps: int
) -> float:
    found = 0
    for _ in range(steps):
        base = make_base(problems, rng)
        batch, _ = base.sample(GROUP, rng)
        reference, _ = base.sample(rollouts, rng)
        decision, _ = Refine().step(replace(batch, length=batch.length * (1 + longer)), reference)
        found += decision.goal == "length"
    return found / steps


def trained(guard: Guard, seed: int, steps: int) -> tuple[float, float, float]:
    """Points below the base's accuracy at the end and in the worst step, and tokens."""
    rng = np.random.default_rng(seed)
    base = make_base(32, rng)
    policy, objective = base, Shorten()
    below: list[float] = []
    for _ in range(steps):
        batch, style = policy.sample(GROUP, rng)
        reference, _ = base.sample(guard.rollouts, rng)
        step, objective = signal(objective, batch, reference)
        policy = policy.stepped(style, step.advantages, 0.25)
        below.append(base.accuracy - policy.accuracy)
    return 100 * float(np.mean(below[-50:])), 100 * max(below), policy.length / base.length


def training(seeds: int, steps: int) -> None:
    """The tabular policy under each guard."""
    print(f"\ntabular policy, 32 problems × {GROUP}, {steps} steps, {seeds} seeds: mean (error)")
    print("reference rollouts       points below, last 50 steps    at worst      tokens, % of base")
    for guard in GUARDS:
        found = np.array([trained(guard, seed, steps) for seed in range(seeds)])
        mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(seeds)
        print(
            f"{guard!s:<24} {mean[0]:12.2f} ({error[0]:.2f}) {mean[1]:18.2f} ({error[1]:.2f}) "
            f"{100 * mean[2]:14.1f} ({100 * error[2]:.1f})"
        )


def recorded(path: Path) -> list[tuple[Batch, Batch]]:
    """Every step of a run's Stage I: the policy's batch, and the reference's from the cache."""
    run = Run.open(path)
    asked = {problem.id: problem for problem in load_mixture(run.config.data.train).problems}
    stores = [_store(file) for file in sorted((path.parent / "references").glob("*.sqlite"))]
    found: list[tuple[Batch, Batch]] = []
    for step in [row["step"] for row in run.steps if row["stage"] == 1]:
        said = [
            Rollout(r["problem_id"], "", r["tokens"], r["stop"], Verdict(r["verdict"]), None)
            for r in run.rollouts(step)
        ]
        batch = batch_of(said)[0]
        if batch is None:
            continue
        problems = [asked[problem_id] for problem_id in batch.problem_ids]
        kept = next(got for store in stores if len(got := store.get(problems)) == len(problems))
        reference = batch_of([one for p in problems for one in kept[p.id]])[0]
        if reference is not None:
            both = [each for each in batch.problem_ids if each in set(reference.problem_ids)]
            found.append((batch.select(both), reference.select(both)))
    return found


def _store(file: Path) -> Store:
    with closing(sqlite3.connect(file)) as database:
        about = dict(database.execute("select name, value from about").fetchall())
    return Store(file.parent, {name: json.loads(value) for name, value in about.items()})


def on_a_run(path: Path, seed: int, draws: int = 100) -> None:
    """A real run's steps, judged again with a part of its reference rollouts."""
    steps, rng = recorded(path), np.random.default_rng(seed)
    whole = steps[0][1].correct.shape[1]
    full = _goals(steps, Guard(whole), rng)
    print(f"\n{path}: {len(steps)} steps of Stage I, {draws} draws from {whole} kept rollouts")
    print("reference rollouts       repairs      as with all")
    for guard in (Guard(whole), *(each for each in GUARDS if each.rollouts < whole)):
        found = np.array([_goals(steps, guard, rng) for _ in range(draws)])
        same = (found == full).mean()
        print(f"{guard!s:<24} {100 * found.mean():5.1f} % {100 * same:13.1f} %")


def _goals(
    steps: Sequence[tuple[Batch, Batch]], guard: Guard, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which steps repair with so many of the reference's rollouts, drawn without replacement."""
    objective = SWITCH
    goals: list[bool] = []
    for batch, reference in steps:
        order = rng.permutation(reference.correct.shape[1])
        mixed = replace(
            reference,
            correct=reference.correct[:, order],
            length=reference.length[:, order],
            truncated=reference.truncated[:, order],
        )
        decision, objective = objective.step(batch, first(mixed, guard.rollouts))
        goals.append(decision.goal == "accuracy")
    return np.array(goals)


def main() -> None:
    """All tables, or that of a run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000, help="of the table of decisions")
    parser.add_argument("--seeds", type=int, default=20, help="of the trained policies")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path, help="judge this run's Stage I again, and no more")
    args = parser.parse_args()
    if args.run:
        on_a_run(args.run, args.seed)
        return
    for problems in (16, 128):
        decisions(problems, args.steps, args.seed)
    lengths(16, args.steps, args.seed)
    training(args.seeds, 400)


if __name__ == "__main__":
    main()
