"""What holds for every method in the table, and for every recipe of a method."""

import json
from pathlib import Path

import numpy as np
import pytest

from crt.algorithm.batch import Batch
from crt.algorithm.objectives import state_fields, state_of, with_state
from crt.algorithm.registry import METHODS, TwoStage, budget_styles, budgets, name_of
from crt.algorithm.step import signal
from crt.algorithm.tabular import Training, fit, make_base
from crt.config import RunConfig
from crt.recipes import load_recipe

RECIPES = sorted((Path(__file__).parents[3] / "recipes" / "methods").glob("*.toml"))
ONE_STAGE = [name for name, kind in METHODS.items() if kind is not TwoStage]


def objective_of(config: RunConfig):
    return config.method.shorten if isinstance(config.method, TwoStage) else config.method


def some_batch(objective, seed: int) -> Batch:
    """Eight problems: easy ones, hard ones, one never solved and one always, one of one length."""
    rng = np.random.default_rng(seed)
    correct = rng.random((8, 6)) < rng.random((8, 1))
    correct[0], correct[1] = False, True
    length = rng.integers(1, 300, (8, 6)).astype(float)
    length[2] = 50.0
    ids = tuple(f"p{i}" for i in range(8))
    return Batch(ids, correct, length, budget=budgets(objective, seed, 3, ids))


@pytest.mark.parametrize("estimator", ["group_std", "centred", "batch", "whitened"])
@pytest.mark.parametrize("name", ONE_STAGE)
def test_advantages_are_finite_and_a_reward_without_spread_gives_none(name, estimator):
    objective = METHODS[name]()
    for seed in range(5):
        batch = some_batch(objective, seed)
        step, _ = signal(objective, batch, some_batch(None, seed + 100), estimator)
        assert np.isfinite(step.advantages).all()
        assert json.loads(json.dumps(step.row)) == step.row
        if estimator != "whitened":
            assert step.advantages.sum(axis=1) == pytest.approx(0, abs=1e-9)
            silent = np.ptp(step.decision.reward, axis=1) == 0
            if len(step.decision.terms) == 1:
                assert not step.advantages[silent].any()


@pytest.mark.parametrize("name", ONE_STAGE)
def test_equal_responses_teach_nothing(name):
    ids = ("p", "q")
    objective = METHODS[name]()
    same = Batch(ids, np.ones((2, 4)), np.full((2, 4), 80.0), budget=budgets(objective, 0, 0, ids))
    step, _ = signal(objective, same, same)
    assert not step.advantages.any()


@pytest.mark.parametrize("name", ONE_STAGE)
def test_shuffled_responses_have_shuffled_advantages(name):
    objective = METHODS[name]()
    batch, reference = some_batch(objective, 1), some_batch(None, 2)
    order = np.array([3, 1, 5, 0, 4, 2])
    shuffled = Batch(
        batch.problem_ids, batch.correct[:, order], batch.length[:, order], budget=batch.budget
    )
    one, _ = signal(objective, batch, reference)
    other, _ = signal(objective, shuffled, reference)
    assert one.advantages[:, order] == pytest.approx(other.advantages)


@pytest.mark.parametrize("name", ONE_STAGE)
def test_a_memory_survives_json(name):
    objective = METHODS[name]()
    for seed in range(3):
        _, objective = signal(objective, some_batch(objective, seed), some_batch(None, 9))
    saved = json.loads(json.dumps(state_of(objective)))
    assert with_state(METHODS[name](), saved) == objective
    assert bool(state_fields(objective)) == bool(saved)


def test_every_method_has_a_recipe_and_a_page():
    docs = Path(__file__).parents[3] / "docs" / "reference" / "methods"
    named = {name_of(load_recipe(path).method) for path in RECIPES}
    assert named == set(METHODS)
    for name in METHODS:
        assert (docs / f"{name}.md").is_file(), name
        assert f"]({name}.md)" in (docs / "README.md").read_text(), name


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_trains_the_tabular_policy(path):
    config = load_recipe(path)
    objective = objective_of(config)
    assert config.prompt.budget in budget_styles(objective)
    rng = np.random.default_rng(0)
    base = make_base(8, rng)
    reference, _ = base.sample(16, rng)
    training = Training(steps=4, group_size=8)
    policy, rows = fit(base, objective, reference, training, rng)
    assert len(rows) == 4
    assert not np.array_equal(policy.logits, base.logits)
    assert np.isfinite(policy.logits).all()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_differ_in_the_method_and_what_it_prescribes_alone(path):
    pocket = load_recipe(path.parents[1] / "pocket.toml")
    config = load_recipe(path)
    same = {"name", "method", "prompt", "optim", "sampling", "trl"}
    assert config.model_dump(exclude=same) == pocket.model_dump(exclude=same)
    assert set(config.trl) <= {"importance_sampling_level"}
    free = {"estimator", "loss", "kl"}
    assert config.optim.model_dump(exclude=free) == pocket.optim.model_dump(exclude=free)
    assert config.sampling.model_dump(exclude={"source"}) == pocket.sampling.model_dump(
        exclude={"source"}
    )
    unstated = {"budget", "budget_tokens"}
    for name, value in vars(pocket.prompt).items():
        assert name in unstated or getattr(config.prompt, name) == value
