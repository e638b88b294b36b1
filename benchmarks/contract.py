"""What a contract keeps: three tabular worlds, with and without the line that each of them needs.

    python benchmarks/contract.py                        the table of docs/guides/contract.md
    python benchmarks/contract.py --json docs/results/contract.json

Every style's accuracy and length is known, so the figures are exact: the change against the base,
mean and worst of the seeds. Each step repairs the line that is most in debt.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crt.algorithm.contract import Line, under_contract
from crt.algorithm.objectives import Shorten
from crt.algorithm.tabular import Policy, Task, Training, fit
from crt.io import write_json

Array = NDArray[np.float64]
Rule = Literal["multiplier", "switch"]
SEEDS = range(4)
TRAINING = Training(steps=300, group_size=16, rate=0.5, problems_per_step=32)
PROBLEMS = 64
KEPT = Line("accuracy", at_least="reference")


def spread(rng: np.random.Generator) -> Array:
    """(P, 1) How hard the problems are."""
    return rng.uniform(0.0, 1.0, (PROBLEMS, 1))


def two_sets(rng: np.random.Generator) -> Policy:
    """`sums` gains by shortening, for its long styles talk themselves out of what is right;
    `proofs` loses by it, gradually."""
    difficulty = spread(rng)
    is_sum = np.arange(PROBLEMS) % 2 == 0
    sums = np.array([0.90, 0.86, 0.80, 0.74]) - 0.1 * difficulty
    proofs = np.array([0.20, 0.55, 0.80, 0.90]) - 0.1 * difficulty
    accuracy = np.where(is_sum[:, None], sums, proofs)
    length = np.array([60.0, 200.0, 500.0, 1000.0]) * (0.6 + 0.8 * difficulty)
    within = {"sums": is_sum, "proofs": ~is_sum}
    shares = np.tile(np.log([0.1, 0.2, 0.3, 0.4]), (PROBLEMS, 1))
    return Policy(Task(accuracy, length, {}, within), shares)


def sure_or_lost(rng: np.random.Generator) -> Policy:
    """The short style is sure of two problems in three and lost on the others; the long one solves
    every problem now and then. So mean accuracy can be kept while pass@4 falls."""
    sure = rng.permutation(PROBLEMS) % 3 > 0
    short = np.where(sure, 0.97, 0.02)[:, None]
    accuracy = np.hstack([short, np.full((PROBLEMS, 1), 0.6)])
    length = np.array([150.0, 900.0]) * (0.6 + 0.8 * spread(rng))
    return Policy(Task(accuracy, length), np.tile(np.log([0.15, 0.85]), (PROBLEMS, 1)))


def parts(rng: np.random.Generator, cost: str = "tokens") -> Policy:
    """Short or long thinking, with a bare or an explained answer. Accuracy does not depend on the
    explanation, so whoever shortens tokens leaves it out."""
    difficulty = spread(rng)
    thinking = np.array([100.0, 100.0, 600.0, 600.0]) * (0.6 + 0.8 * difficulty)
    answer = np.array([15.0, 120.0, 15.0, 120.0]) * np.ones((PROBLEMS, 1))
    lost = 0.4 * np.maximum(0.0, difficulty - 0.6)  # by short thinking, on what is hard
    accuracy = 0.92 - 0.15 * difficulty - np.hstack([lost, lost, 0 * lost, 0 * lost])
    numbers = {"tokens": thinking + answer, "thinking": thinking, "answer": answer}
    numbers["answered"] = answer  # as a line `at_least` counts it: here every response has one
    shares = np.tile(np.log([0.1, 0.2, 0.2, 0.5]), (PROBLEMS, 1))
    return Policy(Task(accuracy, numbers[cost], numbers), shares)


def expected(policy: Policy, metric: str, data: str = "") -> float:
    """A metric of a policy, not sampled."""
    task, share = policy.task, policy.probabilities
    rows = task.within[data] if data else np.ones(len(share), dtype=bool)
    solved = (share * task.accuracy).sum(axis=1)
    if metric.startswith("pass@"):
        return float((1 - (1 - solved) ** int(metric[5:]))[rows].mean())
    if metric == "accuracy":
        return float(solved[rows].mean())
    values = task.numbers.get(metric, task.length)
    return float((share * values).sum(axis=1)[rows].mean())


@dataclass(frozen=True)
class Case:
    """A world, what is promised, and the metrics to look at: (metric, data set)."""

    world: str
    promise: str
    make: Callable[[np.random.Generator], Policy]
    lines: tuple[Line, ...]
    watched: tuple[tuple[str, str], ...]


SETS = (("accuracy", ""), ("accuracy", "sums"), ("accuracy", "proofs"), ("tokens", ""))
PASSED = (("accuracy", ""), ("pass@4", ""), ("tokens", ""))
PARTS = (("accuracy", ""), ("thinking", ""), ("answer", ""), ("tokens", ""))
EACH = tuple(Line("accuracy", at_least="reference", data=name) for name in ("sums", "proofs"))
CASES = (
    Case("two data sets", "accuracy", two_sets, (KEPT,), SETS),
    Case("two data sets", "accuracy of each", two_sets, EACH, SETS),
    Case("sure or lost", "accuracy", sure_or_lost, (KEPT,), PASSED),
    Case("sure or lost", "accuracy and pass@4", sure_or_lost,
         (KEPT, Line("pass@4", at_least="reference")), PASSED),
    Case("thinking and answer", "accuracy", parts, (KEPT,), PARTS),
    Case("thinking and answer", "accuracy and answer", parts,
         (KEPT, Line("answer", at_least="0.95 * reference")), PARTS),
    Case("thinking and answer", "accuracy; cost: thinking", lambda rng: parts(rng, "thinking"),
         (KEPT,), PARTS),
)  # fmt: skip


def changes(case: Case, seed: int, rule: Rule = "multiplier") -> list[float]:
    """After training, against the base: points of a share, % of a number of tokens."""
    rng = np.random.default_rng([seed, 28])
    base = case.make(rng)
    reference, _ = base.sample(TRAINING.reference_rollouts, rng)
    objective = under_contract(Shorten(rule=rule), case.lines)
    policy, _ = fit(base, objective, reference, TRAINING, rng)
    found: list[float] = []
    for metric, data in case.watched:
        before, after = (expected(each, metric, data) for each in (base, policy))
        is_share = metric == "accuracy" or metric.startswith("pass@")
        found.append(100 * (after - before if is_share else after / before - 1))
    return found


def measure(cases: Sequence[Case] = CASES, rule: Rule = "multiplier") -> list[dict[str, object]]:
    """A row per case: name of a metric → mean and worst change of the seeds."""
    rows: list[dict[str, object]] = []
    for case in cases:
        runs = np.array([changes(case, seed, rule) for seed in SEEDS])  # (S, M)
        for number, (metric, data) in enumerate(case.watched):
            name = f"{metric} of {data}" if data else metric
            column = runs[:, number]
            rows.append(
                {"world": case.world, "promise": case.promise, "rule": rule, "metric": name,
                 "mean": float(column.mean()), "lowest": float(column.min())}
            )  # fmt: skip
    return rows


def show(rows: Sequence[dict[str, object]]) -> str:
    """As Markdown: a line per case, its metrics beside each other."""
    lines = ["| world | lines | change against the base: mean (lowest) |", "|---|---|---|"]
    for key in dict.fromkeys((row["world"], row["promise"]) for row in rows):
        own = [row for row in rows if (row["world"], row["promise"]) == key]
        figures = "; ".join(
            f"{row['metric']} {row['mean']:+.1f} ({row['lowest']:+.1f})" for row in own
        )
        lines.append(f"| {key[0]} | {key[1]} | {figures} |".replace("-", "−"))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    args = parser.parse_args()
    rules: tuple[Rule, Rule] = ("multiplier", "switch")
    rows = {rule: measure(rule=rule) for rule in rules}
    for rule, found in rows.items():
        print(f"rule = {rule}\n{show(found)}\n")
    if args.json:
        write_json(args.json, [row for found in rows.values() for row in found])


if __name__ == "__main__":
    main()
