"""Figures that users act on, computed a second time from their definitions.

Plain Python and exact fractions, rollout by rollout, with nothing of numpy and nothing of ours.
"""

import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crt.algorithm.batch import Batch
from crt.algorithm.metrics import AES1, AES2, aes, transitions
from crt.algorithm.objectives import Guarded, Shorten
from crt.algorithm.statistics import bootstrap, gaffke_bound, non_inferiority, pass_at_k
from crt.evaluation.metrics import interval

OUTCOMES = st.lists(st.booleans(), min_size=1, max_size=7)
ROLLOUTS = st.lists(st.tuples(st.booleans(), st.integers(0, 300)), min_size=3, max_size=3)
PROBLEMS = st.lists(st.tuples(ROLLOUTS, ROLLOUTS), min_size=1, max_size=8)
TWENTIETHS = st.integers(-20, 20).map(lambda n: Fraction(n, 20))

Rollouts = list[tuple[bool, int]]


def mean(values: Sequence[int | bool | Fraction]) -> Fraction:
    return sum(map(Fraction, values), Fraction(0)) / len(values)


# --- pass@k: the chance that k of the n rollouts, drawn without replacement, hold a right one -----


@given(OUTCOMES, st.data())
def test_pass_at_k_counts_all_draws(outcomes, data):
    k = data.draw(st.integers(1, len(outcomes)))
    draws = [any(draw) for draw in itertools.combinations(outcomes, k)]
    found = pass_at_k([sum(outcomes)], [len(outcomes)], k)
    assert found[0] == pytest.approx(float(mean(draws)), abs=1e-12)


# --- AES, AD, AP, AI: from the rollouts themselves ------------------------------------------------


def by_definition(problems: list[tuple[Rollouts, Rollouts]], gamma: int) -> Fraction:
    """The score of the paper: saved tokens, and accuracy by what it is worth or costs."""
    acc, base_acc = (mean([mean([r for r, _ in p[i]]) for p in problems]) for i in (0, 1))
    length, base_length = (mean([mean([n for _, n in p[i]]) for p in problems]) for i in (0, 1))
    saved = 1 - length / base_length
    gained = acc / base_acc - 1
    return saved + (3 * gained if gained >= 0 else -gamma * abs(gained))


def arrays(problems: list[tuple[Rollouts, Rollouts]]) -> list[list[float]]:
    """Accuracy and length by problem, ours and then the base's."""
    return [
        [float(mean([rollout[part] for rollout in problem[who]])) for problem in problems]
        for who in (0, 1)
        for part in (0, 1)
    ]


@given(PROBLEMS)
def test_aes_of_rollouts(problems):
    means = [float(np.mean(values)) for values in arrays(problems)]
    assume(means[2] > 0 and means[3] > 0)
    for weights, gamma in ((AES1, 5), (AES2, 10)):
        expected = float(by_definition(problems, gamma))
        assert aes(*means, weights) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(PROBLEMS)
def test_transitions_of_rollouts(problems):
    kinds = {"fell": 0, "stayed": 0, "rose": 0}
    for ours, base in problems:
        if sum(n for _, n in ours) < sum(n for _, n in base):
            now, before = sum(r for r, _ in ours), sum(r for r, _ in base)
            kinds["fell" if now < before else "rose" if now > before else "stayed"] += 1
    found = transitions(*arrays(problems))
    assert (found.decreased, found.preserved, found.improved) == tuple(kinds.values())
    if sum(kinds.values()):
        shares = [100 * count / sum(kinds.values()) for count in kinds.values()]
        assert found.percent == pytest.approx(tuple(shares))


# --- The certificate: Gaffke's bound from the exact law of a Dirichlet mean -----------------------


def chance_at_most(points: Sequence[Fraction], at: Fraction) -> Fraction:
    """P(Σ w·points ≤ at) with w uniform on the simplex and all points different (a B-spline)."""
    degree = len(points) - 1
    above = Fraction(0)
    for here in points:
        if here > at:
            others = math.prod(here - other for other in points if other != here)
            above += (here - at) ** degree / others
    return 1 - above


def bound_by_definition(differences: Sequence[Fraction], level: Fraction) -> float:
    """The (1 − level)-quantile, by halving."""
    points = [Fraction(-1), *differences]
    low, high = Fraction(-1), max(differences)
    for _ in range(34):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_at_most(points, middle) < 1 - level else (low, middle)
    return float(low)


@settings(deadline=None)
@given(
    st.lists(TWENTIETHS.filter(lambda x: x > -1), min_size=1, max_size=7, unique=True),
    st.sampled_from([Fraction(9, 10), Fraction(19, 20), Fraction(99, 100)]),
)
def test_the_bound_is_the_exact_quantile(differences, level):
    expected = bound_by_definition(differences, level)
    ours = [float(difference) for difference in differences]
    assert gaffke_bound([np.array(ours)], float(level)) == pytest.approx(expected, abs=1e-6)
    found = non_inferiority(ours, [0.0] * len(ours), tolerance=0.05, level=float(level))
    assert found.lower_bound == pytest.approx(expected, abs=1e-6)
    assert found.difference == pytest.approx(float(mean(differences)))
    assert found.passed == (found.lower_bound >= -0.05 - 1e-9)


def weighted_mean(sample: Sequence[float], rng: random.Random) -> float:
    """Of the sample and the worst case under random weights, by the gaps of uniform numbers."""
    cuts = sorted(rng.random() for _ in sample)
    gaps = [b - a for a, b in itertools.pairwise([0.0, *cuts, 1.0])]
    return math.fsum(gap * value for gap, value in zip(gaps, [-1.0, *sample], strict=True))


def test_the_bound_of_two_data_sets_is_the_quantile_of_drawn_weights():
    rng = random.Random(1)
    sets = [[rng.choice([-0.5, 0.0, 0.0, 0.25]) for _ in range(n)] for n in (40, 15)]
    drawn = [statistics.fmean(weighted_mean(sample, rng) for sample in sets) for _ in range(20_000)]
    expected = statistics.quantiles(drawn, n=20)[0]
    centre = statistics.fmean(statistics.fmean(sample) for sample in sets)
    found = gaffke_bound([np.array(sample) for sample in sets], 0.95)
    assert found == pytest.approx(expected, abs=0.03 * (centre - expected))


# --- Intervals: the percentile bootstrap with nothing left to chance ------------------------------


@pytest.mark.parametrize("values", [(0.0, 0.1, 0.35, 0.8, 1.0), (1.0, 2.0, 4.0, 8.0, 16.0)])
def test_the_interval_s_ends_are_quantiles_of_all_draws(values):
    """Five problems can be drawn in 5⁵ ways; each end must leave 2.5 % of them outside."""
    drawn = [math.fsum(draw) / 5 for draw in itertools.product(values, repeat=5)]
    found = bootstrap(np.asarray, values, seed=3, resamples=40_000)
    for end, outside in (
        (found.low, lambda d: d < found.low),
        (found.high, lambda d: d > found.high),
    ):
        strictly = statistics.fmean(map(outside, drawn))
        with_ties = strictly + statistics.fmean(math.isclose(d, end) for d in drawn)
        assert strictly <= 0.025 + 0.004 and with_ties >= 0.025 - 0.004
    assert found.value == pytest.approx(statistics.fmean(values))


def macro_draws(
    statistic: Callable[..., float], sets: Sequence[Sequence[tuple[float, float]]], rng
) -> list[float]:
    """Problems are redrawn within each set; then the mean over sets of both figures."""
    found = []
    for _ in range(4000):
        drawn = [rng.choices(problems, k=len(problems)) for problems in sets]
        ours, base = (
            statistics.fmean(statistics.fmean(p[i] for p in problems) for problems in drawn)
            for i in (0, 1)
        )
        found.append(statistic(ours, base))
    return found


def test_the_interval_of_a_macro_average():
    rng = random.Random(7)
    sets = [[(rng.gauss(60, 25), rng.gauss(100, 30)) for _ in range(n)] for n in (50, 120)]
    drawn = statistics.quantiles(macro_draws(lambda a, b: 1 - a / b, sets, rng), n=40)
    strata = [
        [(np.array([p[i] for p in problems]), np.ones(len(problems))) for i in (0, 1)]
        for problems in sets
    ]
    found = interval(lambda a, b: 1 - a / b, strata)
    near = 0.12 * (drawn[-1] - drawn[0])  # two times 2,000 to 4,000 draws
    assert found.low == pytest.approx(drawn[0], abs=near)
    assert found.high == pytest.approx(drawn[-1], abs=near)


# --- The multiplier of Stage I and of the guard: λ step by step -----------------------------------


def next_multiplier(
    now: float, variance: float | None, gaps: Sequence[Fraction], rate: float, tolerance: float
) -> tuple[float, float]:
    """λ ← [λ + κ·(mean gap − ε)/SE]₊ with SE² averaged as 0.9 of the past and 0.1 of the new."""
    new = statistics.variance(map(float, gaps)) / len(gaps)
    variance = new if variance is None else 0.9 * variance + 0.1 * new
    move = rate * (float(mean(gaps)) - tolerance) / max(1e-3, math.sqrt(variance))
    return min(100.0, max(0.0, now + move)), variance


STEPS = st.lists(
    st.lists(st.tuples(*[st.booleans()] * 6), min_size=2, max_size=5), min_size=1, max_size=12
)


@given(STEPS, st.sampled_from([0.5, 2.0]), st.sampled_from([0.0, 0.05]))
def test_the_multiplier_step_by_step(steps, rate, tolerance):
    stage: Shorten | Guarded
    for stage in (Shorten(tolerance, rate=rate), Guarded(tolerance=tolerance, rate=rate)):
        multiplier, variance = stage.multiplier, None
        for problems in steps:
            names = tuple(f"p{i}" for i in range(len(problems)))
            ones = np.ones((len(problems), 3))
            batch = Batch(names, [p[:3] for p in problems], ones)
            reference = Batch(names, [p[3:] for p in problems], ones)
            decision, stage = stage.step(batch, reference)
            gaps = [mean(p[3:]) - mean(p[:3]) for p in problems]
            assert decision.multiplier == pytest.approx(multiplier, rel=1e-9, abs=1e-9)
            assert decision.margin == pytest.approx(tolerance - float(mean(gaps)), abs=1e-12)
            multiplier, variance = next_multiplier(multiplier, variance, gaps, rate, tolerance)
        assert stage.multiplier == pytest.approx(multiplier, rel=1e-9, abs=1e-9)
