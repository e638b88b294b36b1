"""How sure a figure is: bootstrap intervals over problems and the non-inferiority certificate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, log, log1p
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crt.algorithm.batch import Array
from crt.algorithm.guard import EDGE

WORST = -1.0  # the least accuracy difference of a problem: always right before, never now
POWER = 0.8  # chance with which an equally good policy should pass
DRAWS = 100_000  # for the certificate of several data sets


class Interval(NamedTuple):
    """A figure with its 95 % interval and the number of problems it rests on."""

    value: float
    low: float
    high: float
    problems: int


def bootstrap(
    statistic: Callable[..., Array],
    *by_problem: ArrayLike,
    seed: int,
    resamples: int = 2000,
    level: float = 0.95,
) -> Interval:
    """A function of means over problems, resampled over problems, all arrays alike.

    `by_problem` are (P,) arrays of the same problems; `statistic` takes the mean of each and must
    work element by element. Problems are drawn, not rollouts: those of a problem depend on it.
    """
    values = np.array([np.asarray(a, dtype=float) for a in by_problem])  # (K, P)
    if values.ndim != 2 or values.shape[1] == 0 or not np.isfinite(values).all():
        raise ValueError("A bootstrap needs one finite number for each of at least one problem.")
    problems = values.shape[1]
    counts = np.random.default_rng(seed).multinomial(
        problems, np.full(problems, 1.0 / problems), size=resamples
    )  # (R, P): how often each problem is drawn
    drawn = statistic(*(values @ counts.T / problems))
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    value = float(statistic(*values.mean(axis=1)))
    return Interval(value, min(float(low), value), max(float(high), value), problems)


def mean_interval(by_problem: ArrayLike, seed: int) -> Interval:
    """The mean over problems, with its interval."""
    return bootstrap(np.asarray, by_problem, seed=seed)


def two_level(
    values: ArrayLike, drawn: ArrayLike, problems: int, seed: int, level: float = 0.95
) -> Interval:
    """The mean of a figure over training seeds, with an interval over seeds and problems.

    `values` (S,) is the figure of each seed; `drawn` (S, R) the same with the problems of each
    seed's evaluation drawn anew, the same problems for all seeds in a resample because all of
    them were asked the same. Every resample then draws S seeds too, with replacement.
    """
    figure, resampled = np.asarray(values, dtype=float), np.asarray(drawn, dtype=float)
    seeds = figure.size
    if figure.ndim != 1 or not seeds or resampled.ndim != 2 or resampled.shape[0] != seeds:
        raise ValueError("A two-level bootstrap needs (S,) values and (S, R) resamples of them.")
    value = float(figure.mean())
    if not np.isfinite(resampled).all() or not np.isfinite(value):
        return Interval(value, float("nan"), float("nan"), problems)
    counts = np.random.default_rng(seed).multinomial(
        seeds, np.full(seeds, 1.0 / seeds), size=resampled.shape[1]
    )  # (R, S): how often each seed is drawn
    means: Array = np.sum(counts.T * resampled, axis=0) / seeds
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, min(float(low), value), max(float(high), value), problems)


@dataclass(frozen=True)
class Certificate:
    """Is the accuracy within `tolerance` of the reference's? Passed only when the data show it."""

    difference: float  # accuracy − reference accuracy
    lower_bound: float  # one-sided, of the difference
    tolerance: float  # ε
    level: float
    problems: int
    needed: int | None  # problems that an equally good policy needs to pass with POWER; None: never

    @property
    def passed(self) -> bool:
        """The lower bound is at −ε or above."""
        return self.lower_bound >= -self.tolerance - EDGE


def non_inferiority(
    accuracy: ArrayLike, reference_accuracy: ArrayLike, tolerance: float, level: float = 0.95
) -> Certificate:
    """Paired over problems: each problem's mean accuracy under both policies, (P,) each."""
    difference = np.asarray(accuracy, dtype=float) - np.asarray(reference_accuracy, dtype=float)
    return macro_non_inferiority([difference], tolerance, level)


def macro_non_inferiority(
    differences: Sequence[Array], tolerance: float, level: float = 0.95
) -> Certificate:
    """Of the mean over data sets; each is the (P,) accuracy differences of its problems.

    For `needed`, several sets count as one set of their harmonic mean size.
    """
    if not differences or any(d.ndim != 1 or not d.size for d in differences):
        raise ValueError("A certificate needs both accuracies for each of at least one problem.")
    if not all((np.abs(d) <= 1 + EDGE).all() for d in differences):  # NaN fails, too
        raise ValueError("Accuracy differences are finite and from −1 to 1.")
    sizes = np.array([d.size for d in differences])
    harmonic = 1 / float(np.mean(1 / sizes))
    variance = float(np.sum([d.var() / d.size for d in differences])) / len(sizes) ** 2
    needed = problems_needed(tolerance, (variance * harmonic) ** 0.5, level)
    return Certificate(
        difference=float(np.mean([d.mean() for d in differences])),
        lower_bound=gaffke_bound(differences, level),
        tolerance=tolerance,
        level=level,
        problems=int(sizes.sum()),
        needed=needed and ceil(needed / harmonic * sizes.sum() - EDGE),
    )


def gaffke_bound(samples: Sequence[Array], level: float, worst: float = WORST) -> float:
    """Gaffke's one-sided lower bound of a mean of bounded variables; of several, of their mean.

    The (1 − level)-quantile of the weighted mean of the sample and one point more, the least
    possible value, under weights drawn from Dirichlet(1, …, 1) (Gaffke 2005; Learned-Miller and
    Thomas 2019). Of one sample it is exact to 1e-9. Of several it is drawn `DRAWS` times
    with a fixed seed, which moves it by less than 1 % of its distance from the mean.
    """
    points = [np.unique(np.append(sample, worst), return_counts=True) for sample in samples]
    if len(points) > 1:
        rng = np.random.default_rng(0)
        drawn: Array = np.sum([_dirichlet_means(*each, rng) for each in points], axis=0)
        return float(np.quantile(drawn, 1 - level)) / len(points)
    (values, counts), low, high = points[0], worst, float(np.max(samples[0]))
    while high - low > 1e-9:
        middle = (low + high) / 2
        below = dirichlet_mean_cdf(values, counts, middle) < 1 - level
        low, high = (middle, high) if below else (low, middle)
    return low


def highest_bound(mean: float, problems: int, level: float) -> float:
    """Gaffke's bound if all problems had the same difference; with this mean none is higher."""
    return (mean - WORST) * (1 - level) ** (1 / problems) + WORST


def dirichlet_mean_cdf(values: Array, counts: ArrayLike, at: float) -> float:
    """P(Σ w·values ≤ at) of weights w ~ Dirichlet(counts), by numerical inversion.

    With gamma variables G of shapes `counts` it is P(Σ G·(values − at) ≤ 0). That is the integral
    of exp(K(s)) / −2πis along an upright line left of 0, K being the cumulant function
    −Σ counts·log(1 − s·(values − at)). The line goes through the integrand's saddle: no singularity
    is nearer than `width`, so the trapezoidal rule in steps of width / 5 errs by about exp(−10π).
    """
    distance, shape = values - at, np.asarray(counts, dtype=float)
    if distance.min() >= 0 or distance.max() <= 0:
        return float(distance.max() <= 0)
    low, high = 1 / distance.min(), 0.0
    for _ in range(24):  # where the slope of the integrand's logarithm changes its sign
        s = (low + high) / 2
        slope = (shape * distance / (1 - s * distance)).sum() - 1 / s
        low, high = (s, high) if slope < 0 else (low, s)
    s = (low + high) / 2
    width = ((shape * (distance / (1 - s * distance)) ** 2).sum() + s**-2) ** -0.5

    def log_integrand(nodes: Array) -> NDArray[np.complex128]:
        line = s + 1j * width * nodes
        return np.asarray(-np.log(-line) - np.log(1 - line[:, None] * distance) @ shape)

    step, end = 0.2, 8.0
    while end < 1e3 and np.ptp(log_integrand(np.array([0.0, end])).real) < 35:
        end *= 2  # a heavy tail: there are few problems, or few with a difference
    heights = np.real(np.exp(log_integrand(np.arange(0, end, step, dtype=np.float64))))
    integral = float(heights.sum() - heights[0] / 2) * step * width
    return min(1.0, max(0.0, integral / np.pi))


def _dirichlet_means(values: Array, counts: NDArray[np.intp], rng: np.random.Generator) -> Array:
    """(DRAWS,) weighted means of `values` under weights from Dirichlet(counts)."""
    gammas = rng.standard_gamma(counts, size=(DRAWS, len(counts)))
    return (gammas @ values) / gammas.sum(axis=1)


def problems_needed(
    tolerance: float, spread: float = 0.0, level: float = 0.95, power: float = POWER
) -> int | None:
    """How many problems certify an equally good policy with chance `power`; None if none do.

    `spread` is the standard deviation of the accuracy differences. Without any it is the least
    number for which a certificate is possible at all: as many problems without a difference.
    """
    if tolerance <= EDGE:
        return None
    luck = NormalDist().inv_cdf(power)  # with this chance the mean seen is no more errors below 0

    def passes(problems: int) -> bool:
        mean = -luck * spread / problems**0.5
        values = np.array([WORST, mean - spread, mean + spread])
        counts = [1, problems / 2, problems / 2]
        return dirichlet_mean_cdf(values, counts, -tolerance) <= 1 - level

    high = ceil(log(1 - level) / log1p(-tolerance)) if tolerance < 1 else 1
    low = high - 1  # with fewer problems the chance of (1 − tolerance) each is too high
    while spread > 0 and not passes(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def equal_policies_spread(accuracy: float, rollouts: int) -> float:
    """Of the differences of two equal policies, each problem being solved with this chance.

    It is the largest there is: problems of different difficulty leave less to chance.
    """
    return (2 * accuracy * (1 - accuracy) / rollouts) ** 0.5


def shortfall(tolerance: float, problems: int, needed: int | None) -> str:
    """A sentence if a certificate needs more problems than there were, else nothing."""
    if needed is not None and problems >= needed:
        return ""
    within = f"{100 * tolerance:g} point{'' if abs(tolerance - 0.01) < EDGE else 's'}"
    if needed is None:
        return f"No number of problems certifies an equally good policy within {within}."
    return (
        f"To certify an equally good policy within {within} needs about {needed:,} problems "
        f"({100 * POWER:.0f} % power); this evaluation has {problems:,}."
    )


def pass_at_k(correct: ArrayLike, rollouts: ArrayLike, k: int) -> Array:
    """1 − C(n−c, k)/C(n, k) for each problem with c of n correct: unbiased (Chen et al., 2021).

    (P,) each; NaN where a problem has fewer than k rollouts.
    """
    right = np.asarray(correct, dtype=float)[..., None]  # (P, 1)
    total = np.asarray(rollouts, dtype=float)[..., None]
    if k < 1 or not ((right >= 0) & (right <= total)).all():
        raise ValueError("pass@k needs k of 1 or more and 0 to n correct of n rollouts.")
    drawn = np.arange(k)  # the ratio of the binomials is Π (n−c−i)/(n−i)
    left = np.maximum(total - right - drawn, 0.0)
    all_wrong = np.prod(left / np.maximum(total - drawn, 1.0), axis=-1)
    return np.where(total[..., 0] >= k, 1.0 - all_wrong, np.nan)
