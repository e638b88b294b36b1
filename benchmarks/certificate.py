"""How often the certificate passes a policy that is too bad, and one that is good.

    python benchmarks/certificate.py [--trials 2000]

Prints the tables of docs/notes/certificate.md. Each row is one made-up world with `trials`
evaluations of n problems. A cell is the share of them that pass "within 1 point, 95 %", first by
Student's bound, then by Gaffke's.
"""

import argparse
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from crt.algorithm.statistics import WORST, dirichlet_mean_cdf, gaffke_bound

TOLERANCE, ALPHA = 0.01, 0.05
Draw = Callable[[np.random.Generator, int], np.ndarray]  # accuracy differences of n problems


def sparse(broken: float, accuracy: float, rollouts: int) -> Draw:
    """The base, sampled anew, except that a share of problems is never right again.

    No rollouts: the unbroken problems are answered exactly as before.
    """

    def draw(rng: np.random.Generator, problems: int) -> np.ndarray:
        lost = rng.random(problems) < broken
        if not rollouts:
            return np.where(lost, -(rng.random(problems) < accuracy).astype(float), 0.0)
        base = rng.binomial(rollouts, accuracy, problems) / rollouts
        again = rng.binomial(rollouts, accuracy, problems) / rollouts
        return np.where(lost, 0.0, again) - base

    return draw


def dense(accuracy: float, rollouts: int, change: float) -> Draw:
    """Every problem is solved with the same chance, which the policy changes by `change`."""

    def draw(rng: np.random.Generator, problems: int) -> np.ndarray:
        base = rng.binomial(rollouts, accuracy, problems)
        return (rng.binomial(rollouts, accuracy + change, problems) - base) / rollouts

    return draw


def mixed(rollouts: int, change: float) -> Draw:
    """Problems from easy to hard: chances from Beta(4, 1), lowered on one problem in ten."""

    def draw(rng: np.random.Generator, problems: int) -> np.ndarray:
        chance = rng.beta(4, 1, problems)
        lowered = np.where(rng.random(problems) < 0.1, -10 * change / 0.8, 0.0)  # the mean is 0.8
        base = rng.binomial(rollouts, chance, problems)
        return (rng.binomial(rollouts, chance * (1 - lowered), problems) - base) / rollouts

    return draw


def passes_student(differences: np.ndarray) -> bool:
    """By Student's bound, with the normal quantile's first two corrections."""
    degrees, z = differences.size - 1, NormalDist().inv_cdf(1 - ALPHA)
    quantile = z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    error = differences.std(ddof=1) / differences.size**0.5
    return bool(differences.mean() - quantile * error >= -TOLERANCE - 1e-9)


def passes_gaffke(differences: np.ndarray) -> bool:
    """By Gaffke's bound, from the distribution itself instead of a search for its quantile."""
    values, counts = np.unique(np.append(differences, WORST), return_counts=True)
    return dirichlet_mean_cdf(values, counts, -TOLERANCE) <= ALPHA


def table(title: str, worlds: dict[str, Draw], sizes: list[int], trials: int) -> None:
    """A row per world, a column per number of problems: Student's share, then Gaffke's."""
    print(f"\n{title}\n\n| world | " + " | ".join(f"n = {n}" for n in sizes) + " |")
    print("|---|" + "---|" * len(sizes))
    for name, draw in worlds.items():
        cells: list[str] = []
        for problems in sizes:
            rng = np.random.default_rng(problems)
            drawn = [draw(rng, problems) for _ in range(trials)]
            student = np.mean([passes_student(each) for each in drawn])
            gaffke = np.mean([passes_gaffke(each) for each in drawn])
            cells.append(f"{student:.3f} → {gaffke:.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def macro_table(trials: int) -> None:
    """Averages of several sets; every set is beyond the tolerance, or one of them alone."""
    print("\nAverages of data sets, Gaffke\n\n| sets | passed |\n|---|---|")
    cases = {
        "2 × 400, 2 % broken in both": [(sparse(0.02, 0.9, 0), 400)] * 2,
        "2 × 400, 1.25 % broken in both": [(sparse(0.0125, 0.8, 0), 400)] * 2,
        "1319 and 100, 2 % broken in the larger": [
            (sparse(0.02, 1.0, 0), 1319),
            (sparse(0.0, 0.8, 0), 100),
        ],
        "1319 and 100, 2 % broken in the smaller": [
            (sparse(0.0, 0.8, 0), 1319),
            (sparse(0.02, 1.0, 0), 100),
        ],
        "3 × 800, 4 rollouts, all lose 1 point": [(dense(0.8, 4, -0.01), 800)] * 3,
        "6 × 300, 3 % broken in two": [(sparse(0.03, 1.0, 0), 300)] * 2
        + [(sparse(0.0, 1.0, 0), 300)] * 4,
    }
    for name, sets in cases.items():
        rng = np.random.default_rng(0)
        passed = 0
        for _ in range(trials):
            drawn = [draw(rng, problems) for draw, problems in sets]
            passed += gaffke_bound(drawn, 1 - ALPHA) >= -TOLERANCE - 1e-9
        print(f"| {name} | {passed / trials:.3f} |", flush=True)


def main() -> None:
    """All tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    trials = parser.parse_args().trials
    sizes = [10, 50, 100, 200, 400, 800, 1319]
    bad = {
        f"{100 * broken:g} % broken, accuracy {accuracy}, "
        + (f"{k} rollouts" if k else "else identical"): sparse(broken, accuracy, k)
        for broken, accuracy in ((0.02, 0.6), (0.02, 0.8), (0.02, 1.0), (0.01, 1.0), (0.015, 0.8))
        for k in ((0,) if accuracy == 1.0 else (0, 4, 16))
    }
    table("Too bad: may pass in 5 %", bad, sizes, trials)
    edge = {
        f"accuracy {accuracy}, {k} rollouts, exactly −1 point": dense(accuracy, k, -0.01)
        for accuracy in (0.6, 0.9, 0.99)
        for k in (1, 4, 16)
    }
    edge |= {f"mixed, {k} rollouts, exactly −1 point": mixed(k, -0.01) for k in (4, 16)}
    table("Exactly at the tolerance: may pass in 5 %", edge, sizes, trials)
    good = {
        f"accuracy {accuracy}, {k} rollouts, equal": dense(accuracy, k, 0.0)
        for accuracy in (0.6, 0.9)
        for k in (1, 4, 16)
    }
    good |= {"accuracy 0.9, 4 rollouts, 1 point better": dense(0.9, 4, 0.01)}
    good |= {"mixed, 16 rollouts, equal": mixed(16, 0.0), "never different": sparse(0.0, 0.8, 0)}
    table("Good: the more pass the better", good, [200, 299, 400, 800, 1319, 3000], trials)
    macro_table(max(200, trials // 8))


if __name__ == "__main__":
    main()
