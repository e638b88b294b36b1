"""How well does validation find the shortest feasible checkpoint? A simulation, in seconds.

Eight checkpoints of falling length and known true accuracy gap to the reference are measured as a
run measures them; `python benchmarks/validation.py` prints how often one is called feasible, and
how far below the reference the chosen one truly is. Problems are as hard as the pocket model finds
its own at temperature 1: mean accuracy 0.884, spread 0.165 over problems.
"""

import argparse
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crt.algorithm.batch import Batch
from crt.algorithm.guard import paired_gap
from crt.algorithm.two_stage import Candidate, next_to_confirm, shortest_feasible

Array = NDArray[np.float64]

HARDNESS = (2.44, 0.32)  # of the Beta distribution with that mean and spread
DIFFERS = 0.06  # how unequally problems share a checkpoint's gap
LENGTHS = (103, 93, 80, 71, 66, 64, 62, 60)
PATHS = {  # true gaps in points
    "none is worse": (0, 0, 0, 0, 0, 0, 0, 0),
    "a dip on the way": (1, 2, 3, 2, 0.5, 0, 0.5, 0.5),
    "the last ones are worse": (0, 0, 0.2, 0.5, 1, 2, 4, 6),
    "all are worse": (3, 4, 5, 5, 5, 5, 6, 6),
}


@dataclass(frozen=True)
class Plan:
    """Problems, rollouts of the reference and of a checkpoint, and of the few measured again."""

    problems: int
    reference: int
    rollouts: int
    finalists: int = 0
    final_rollouts: int = 0


PLANS = (
    Plan(80, 8, 4),
    Plan(160, 8, 2),
    Plan(320, 8, 1),
    Plan(80, 8, 2, 4, 8),
    Plan(160, 8, 1, 4, 4),
    Plan(160, 8, 1, 4, 8),
    Plan(200, 8, 2, 6, 4),  # the demo's
    Plan(128, 16, 2, 6, 16),  # the default
    Plan(1000, 16, 8, 6, 16),  # the paper's recipes
)


def drawn(rng: np.random.Generator, chance: Array, rollouts: int) -> Batch:
    """A batch in which problem i is solved with `chance[i]`."""
    right = rng.random((len(chance), rollouts)) < chance[:, None]
    return Batch(tuple(map(str, range(len(chance)))), right, np.ones(right.shape))


def shifts(rng: np.random.Generator, gaps: Array) -> Array:
    """What to take from every problem's accuracy so that the mean gap is as wanted."""
    base = rng.beta(*HARDNESS, 100_000)
    noise = rng.normal(0.0, DIFFERS, base.size)
    grid = np.linspace(-0.15, 0.15, 61)
    gap = [float((base - np.clip(base - shift - noise, 0, 1)).mean()) for shift in grid]
    return np.interp(gaps, gap, grid)


def candidate(step: int, batch: Batch, reference: Batch) -> Candidate:
    """A checkpoint as a run's records have it, judged with a slack of one point."""
    gap = paired_gap(batch, reference)
    margin = 0.01 - gap.mean
    return Candidate(step, batch.accuracy, LENGTHS[step], margin, gap.standard_error)


def chosen(rng: np.random.Generator, plan: Plan, shift: Array) -> tuple[Candidate, int]:
    """The checkpoint a run would recommend, and the rollouts that took, the reference's aside."""
    base = rng.beta(*HARDNESS, plan.problems)
    truth = [np.clip(base - rng.normal(each, DIFFERS, base.size), 0, 1) for each in shift]
    reference = drawn(rng, base, plan.reference)
    found = {
        i: candidate(i, drawn(rng, chance, plan.rollouts), reference)
        for i, chance in enumerate(truth)
    }
    final: dict[int, Candidate] = {}
    for _ in range(plan.finalists):
        best = next_to_confirm(list(found.values()), final, "feasible").step
        if best in final:
            break
        batch = drawn(rng, truth[best], plan.final_rollouts)
        found[best] = final[best] = candidate(best, batch, reference)
    cost = len(found) * plan.rollouts + len(final) * plan.final_rollouts
    return shortest_feasible(list((final or found).values())), cost * plan.problems


def main() -> None:
    """A table for every path of true gaps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for name, points in PATHS.items():
        gaps = np.array(points) / 100
        print(f"\n{name}: true gaps {points}")
        print("problems ref rollouts final   rollouts used  feasible  and >1.5 worse  gap   tokens")
        for plan in PLANS:
            rng = np.random.default_rng(args.seed)
            shift = shifts(rng, gaps)
            found = [chosen(rng, plan, shift) for _ in range(args.repeats)]
            feasible = np.array([best.feasible for best, _ in found])
            gap = np.array([points[best.step] for best, _ in found])
            print(
                f"{plan.problems:8d} {plan.reference:3d} {plan.rollouts:8d} "
                f"{plan.finalists}x{plan.final_rollouts:<4d} "
                f"{plan.problems * plan.reference:6d}+{np.mean([c for _, c in found]):<8.0f} "
                f"{feasible.mean():8.2f} {(feasible & (gap > 1.5)).mean():14.3f} "
                f"{gap.mean():6.2f} {np.mean([best.length for best, _ in found]):7.1f}"
            )


if __name__ == "__main__":
    main()
