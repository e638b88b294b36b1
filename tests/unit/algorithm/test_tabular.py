"""The learning test: what the paper says of each method, seen on a policy known exactly."""

import numpy as np
import pytest

from crt.algorithm.objectives import AccuracyOnly, LengthOnly, PrimalDual, Refine, Shorten
from crt.algorithm.tabular import Training, fit, fit_two_stages, make_base
from crt.algorithm.two_stage import Saturation

SEEDS = range(5)
TRAINING = Training()
SLACK = 0.01


def start(seed: int):
    rng = np.random.default_rng(seed)
    base = make_base(32, rng)
    reference, _ = base.sample(TRAINING.reference_rollouts, rng)
    return base, reference, rng


def trained(objective, seed: int):
    base, reference, rng = start(seed)
    policy, rows = fit(base, objective, reference, TRAINING, rng)
    return base, policy, rows


def oscillation(objective) -> float:
    """How far expected accuracy moves about once it has fallen below the floor; mean over seeds."""
    spreads = []
    for seed in SEEDS:
        base, _, rows = trained(objective, seed)
        path = np.array([row["expected_accuracy"] for row in rows])
        spreads.append(path[np.argmax(path < base.accuracy - SLACK) :].std())
    return float(np.mean(spreads))


@pytest.mark.parametrize("seed", SEEDS)
def test_length_only_collapses(seed):
    base, policy, _ = trained(LengthOnly(), seed)
    assert policy.length < 0.1 * base.length
    assert policy.accuracy < 0.4 * base.accuracy


@pytest.mark.parametrize("seed", SEEDS)
def test_accuracy_only_does_not_shorten(seed):
    base, policy, _ = trained(AccuracyOnly(), seed)
    assert policy.accuracy > base.accuracy
    assert policy.length > base.length


@pytest.mark.parametrize("seed", SEEDS)
def test_stage_one_halves_the_length_and_holds_the_floor(seed):
    base, policy, rows = trained(Shorten(slack=SLACK), seed)
    assert policy.length < 0.5 * base.length
    # 32 × 16 rollouts: one batch's standard error is about two points, so the path crosses the
    # floor, but the guard brings it back
    assert policy.accuracy > base.accuracy - SLACK - 0.03
    goals = {row["goal"] for row in rows}
    assert goals == {"length", "accuracy"}


@pytest.mark.parametrize("seed", SEEDS)
def test_stage_two_regains_accuracy_inside_the_length(seed):
    base, _, rng = start(seed)
    short, refined, rows = fit_two_stages(
        base, Shorten(slack=SLACK), Refine(), Saturation(), TRAINING, rng
    )
    assert len(rows) == TRAINING.steps
    assert refined.accuracy > short.accuracy + 0.01
    assert refined.length < 1.1 * short.length
    assert refined.length < 0.5 * base.length


@pytest.mark.parametrize(
    "primal_dual",
    [
        PrimalDual(),
        PrimalDual(multiplier=0.0),
        PrimalDual(multiplier_rate=0.2),
        PrimalDual(multiplier_rate=5.0),
    ],
    ids=["default", "from 0", "slow", "fast"],
)
def test_primal_dual_oscillates_more_than_the_switch(primal_dual):
    # the multiplier has to build up and to wear off, in waves; the switch answers at once
    assert oscillation(primal_dual) > 1.3 * oscillation(Shorten(slack=SLACK))


def test_a_seed_repeats_a_run():
    one, other = trained(Shorten(), 3)[2], trained(Shorten(), 3)[2]
    assert one == other


def test_a_sample_has_the_policys_accuracy_and_length():
    base, _, rng = start(0)
    batch, _ = base.sample(2000, rng)
    assert batch.accuracy == pytest.approx(base.accuracy, abs=0.01)
    assert batch.mean_length == pytest.approx(base.length, rel=0.02)
