"""verl's batch to advantages: the same signal as TRL's, for every objective."""

import numpy as np
import pytest

from crt.algorithm.batch import Batch
from crt.algorithm.objectives import PrimalDual, Refine, Shorten
from crt.algorithm.registry import METHODS
from crt.training.trl.trainer import CRTTrainer
from crt.training.verl.advantages import decide_batch
from crt.types import Rollout, Verdict

NAMES = ("a", "b", "c")
CORRECT = [[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 1, 1]]
LENGTH = [[80, 120, 40, 200], [90, 90, 90, 90], [300, 256, 10, 44]]
CUT = [[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
SINGLE = [METHODS[name]() for name in METHODS if name != "crt"]


def reference(right: float, tokens: int) -> Batch:
    rng = np.random.default_rng(0)
    shape = (len(NAMES), 8)
    return Batch(NAMES, rng.random(shape) < right, rng.integers(tokens, 2 * tokens, shape))


def rollouts(budget: int | None = None) -> list[Rollout]:
    return [
        Rollout(
            name, "", length, "length" if cut else "eos",
            Verdict.CORRECT if right else Verdict.WRONG, budget=budget,
        )
        for name, *groups in zip(NAMES, CORRECT, LENGTH, CUT, strict=True)
        for right, length, cut in zip(*groups, strict=True)
    ]  # fmt: skip


def through_trl(objective, frozen: Batch, estimator, truncated_as, budget=None):
    """The override of TRL's trainer, with a batch as TRL has gathered it."""
    trainer = CRTTrainer.__new__(CRTTrainer)  # the model and the data have no part in it
    trainer.objective, trainer.reference = objective, frozen.select
    trainer.estimator, trainer.truncated_as = estimator, truncated_as
    trainer.rollouts = rollouts(budget)
    trainer._decide()
    return trainer.advantages.reshape(-1), trainer.objective


@pytest.mark.parametrize("truncated_as", ["wrong", "grade", "mask"])
@pytest.mark.parametrize("estimator", ["group_std", "centred", "batch", "whitened"])
@pytest.mark.parametrize("right", [0.1, 0.95])
@pytest.mark.parametrize("objective", [*SINGLE, Refine()], ids=lambda each: type(each).__name__)
def test_one_batch_through_both_engines_is_one_signal(objective, right, estimator, truncated_as):
    frozen = reference(right, 60)
    budget = 100 if hasattr(objective, "budget_styles") else None
    ours, after = through_trl(objective, frozen, estimator, truncated_as, budget)
    found, there = decide_batch(objective, rollouts(budget), frozen, 4, estimator, truncated_as)
    assert found.values == ours.tolist()
    assert there == after


def test_verls_order_is_kept():
    """verl spreads a problem's rollouts over its workers by length."""
    frozen, order = reference(0.1, 60), np.random.default_rng(1).permutation(12)
    straight, _ = decide_batch(Shorten(), rollouts(), frozen, 4)
    mixed = [rollouts()[place] for place in order]
    found, _ = decide_batch(Shorten(), mixed, frozen, 4)
    assert found.values == pytest.approx([straight.values[place] for place in order])


def test_a_lost_rollout_and_filling_rows_take_no_part():
    frozen = reference(0.1, 60)
    found, _ = decide_batch(Shorten(), [*rollouts()[1:], None, None], frozen, 4)
    assert found.step.left_out == ("a",)
    assert found.values[:3] == [0.0] * 3 and found.values[-2:] == [0.0] * 2
    assert any(found.values[7:11])  # problem c


def test_problems_without_a_signal_are_masked():
    found, _ = decide_batch(Shorten(), rollouts(), reference(0.1, 60), 4)
    # b: four equal lengths, nothing to prefer
    assert found.masked == [False] * 4 + [True] * 4 + [False] * 4


def test_muted_rows_are_masked():
    frozen = reference(0.1, 60)
    found, _ = decide_batch(Shorten(), rollouts(), frozen, 4, truncated_as="mask")
    # c: its second response is cut off
    assert found.masked == [False] * 4 + [True] * 4 + [False, True, False, False]


def test_an_ungraded_reference_leaves_its_problem_out():
    partly = reference(0.5, 60).select(["a", "c"])
    found, _ = decide_batch(PrimalDual(), rollouts(), partly, 4)
    assert found.step.left_out == ("b",)
    nothing, objective = decide_batch(PrimalDual(), rollouts(), None, 4)
    assert nothing.step.signal is None and nothing.values == [0.0] * 12
    assert objective == PrimalDual()


def test_lambda_follows_its_formula():
    # reference 1.0, batch 5 of 12 correct (one of c is cut off and wrong anyway): 1 + 1·(1 − 6/12)
    all_right = Batch(NAMES, np.ones((3, 2)), np.full((3, 2), 100))
    objective = PrimalDual(multiplier=1.0, multiplier_rate=1.0)
    found, after = decide_batch(objective, rollouts(), all_right, 4)
    assert found.step.signal is not None and found.step.signal.row["multiplier"] == 1.0
    assert after.multiplier == pytest.approx(1 + (1 - 6 / 12))
