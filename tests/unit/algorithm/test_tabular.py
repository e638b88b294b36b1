"""The learning test: what the paper says of each method, seen on a policy known exactly."""

from itertools import product

import numpy as np
import pytest

from crt.algorithm.objectives import AccuracyOnly, LengthOnly, Refine, Shorten
from crt.algorithm.tabular import WORLDS, Training, fit, fit_two_stages, make_base, optimum
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


SWITCH = Shorten(slack=SLACK, rule="switch")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("objective", [Shorten(), SWITCH], ids=["multiplier", "switch"])
def test_stage_one_halves_the_length_and_holds_the_floor(objective, seed):
    base, policy, _ = trained(objective, seed)
    assert policy.length < 0.5 * base.length
    # 32 × 16 rollouts: one batch's standard error is about two points, so the path crosses the
    # floor, but the guard brings it back
    assert policy.accuracy > base.accuracy - SLACK - 0.03


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rule", ["multiplier", "switch"])
def test_stage_two_regains_what_the_switch_lost_inside_the_length(rule, seed):
    base, _, rng = start(seed)
    short, refined, rows = fit_two_stages(
        base, SWITCH, Refine(rule=rule), Saturation(window=20), TRAINING, rng
    )
    assert len(rows) == TRAINING.steps
    assert refined.accuracy > short.accuracy + 0.01
    assert refined.length < 1.1 * short.length
    assert refined.length < 0.5 * base.length


@pytest.mark.parametrize("world", ["checks", "smooth", "hard"])
def test_the_multiplier_ends_nearer_to_the_base_than_the_switch(world):
    """Where shorter costs accuracy, on average of three seeds."""
    ends = {rule: [end_of(rule, world, seed) for seed in range(3)] for rule in RULES}
    points = {rule: np.mean([gap for gap, _ in ends[rule]]) for rule in RULES}
    assert points["multiplier"] > points["switch"] + 0.5
    assert abs(points["multiplier"]) < 1.5
    saved = np.mean([share for _, share in ends["multiplier"]])
    assert 0.5 < saved < 1.1  # of what the optimum saves


RULES = ("multiplier", "switch")


def end_of(rule, world: str, seed: int) -> tuple[float, float]:
    """Points of accuracy against the base, and the share of the possible saving."""
    rng = np.random.default_rng(seed)
    base = make_base(32, rng, WORLDS[world])
    reference, _ = base.sample(TRAINING.reference_rollouts, rng)
    policy, _ = fit(base, Shorten(rule=rule), reference, TRAINING, rng)
    possible = base.length - optimum(base)[1]
    return 100 * (policy.accuracy - base.accuracy), (base.length - policy.length) / possible


@pytest.mark.parametrize("world", WORLDS)
def test_the_optimum_is_the_shortest_that_is_as_accurate(world):
    base = make_base(4, np.random.default_rng(1), WORLDS[world])
    accuracy, length = optimum(base)
    assert accuracy >= base.accuracy - 1e-9
    # every choice of a style for each of the four problems
    styles = np.array(list(product(range(base.logits.shape[1]), repeat=4)))
    every = [
        np.take_along_axis(values, styles.T, axis=1).mean(axis=0)
        for values in (base.task.accuracy, base.task.length)
    ]
    best = every[1][every[0] >= base.accuracy].min()
    # a price finds the convex hull of all choices: at most a step of one problem above the best
    steps = np.abs(np.diff(base.task.length, axis=1)).max() / 4
    assert best - 1e-9 <= length <= best + steps


def test_a_seed_repeats_a_run():
    one, other = trained(Shorten(), 3)[2], trained(Shorten(), 3)[2]
    assert one == other


def test_a_sample_has_the_policys_accuracy_and_length():
    base, _, rng = start(0)
    batch, _ = base.sample(2000, rng)
    assert batch.accuracy == pytest.approx(base.accuracy, abs=0.01)
    assert batch.mean_length == pytest.approx(base.length, rel=0.02)
