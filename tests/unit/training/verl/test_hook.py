"""verl's batch to advantages: the same signal as TRL's, for every objective."""

import numpy as np
import pytest

from crt.algorithm.batch import Batch
from crt.algorithm.objectives import PrimalDual, Refine, Shorten
from crt.algorithm.registry import METHODS
from crt.training.trl.trainer import CRTTrainer
from crt.training.verl.hook import Row, decided, reference_columns, reference_of
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


def rows(frozen: Batch | None, budget: int | None = None) -> list[Row]:
    told = []
    for name, right, lengths, cuts in zip(NAMES, CORRECT, LENGTH, CUT, strict=True):
        info = {"problem_id": name, "budget": budget, **reference_columns(frozen, name)}
        for one, length, cut in zip(right, lengths, cuts, strict=True):
            verdict = Verdict.CORRECT if one else Verdict.WRONG
            told.append(Row(info, "", length, "length" if cut else "eos", verdict, None))
    return told


def through_trl(objective, frozen: Batch, estimator, truncated_as, budget=None):
    """The override of TRL's trainer, with a batch as TRL has gathered it."""
    trainer = CRTTrainer.__new__(CRTTrainer)  # the model and the data have no part in it
    trainer.objective, trainer.reference = objective, frozen.select
    trainer.estimator, trainer.truncated_as = estimator, truncated_as
    correct = [Verdict.CORRECT if one else Verdict.WRONG for group in CORRECT for one in group]
    trainer.rollouts = [
        Rollout(row.problem_id, "", row.tokens, row.stop, verdict, None, budget)
        for row, verdict in zip(rows(None), correct, strict=True)
    ]
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
    found, there = decided(objective, rows(frozen, budget), 4, estimator, truncated_as)
    assert found.advantages == ours.tolist()
    assert there == after


def test_verls_order_is_kept():
    """verl spreads a problem's rollouts over its workers by length."""
    frozen, order = reference(0.1, 60), np.random.default_rng(1).permutation(12)
    straight, _ = decided(Shorten(), rows(frozen), 4)
    mixed = [rows(frozen)[place] for place in order]
    found, _ = decided(Shorten(), mixed, 4)
    assert found.advantages == pytest.approx([straight.advantages[place] for place in order])


def test_a_lost_rollout_and_filling_rows_take_no_part():
    frozen = reference(0.1, 60)
    found, _ = decided(Shorten(), [*rows(frozen)[1:], None, None], 4)
    assert found.step.left_out == ("a",)
    assert found.advantages[:3] == [0.0] * 3 and found.advantages[-2:] == [0.0] * 2
    assert any(found.advantages[7:11])  # problem c


def test_problems_without_a_signal_are_masked():
    found, _ = decided(Shorten(), rows(reference(0.1, 60)), 4)
    # b: four equal lengths, nothing to prefer
    assert found.masked == [False] * 4 + [True] * 4 + [False] * 4


def test_muted_rows_are_masked():
    found, _ = decided(Shorten(), rows(reference(0.1, 60)), 4, truncated_as="mask")
    # c: its second response is cut off
    assert found.masked == [False] * 4 + [True] * 4 + [False, True, False, False]


def test_the_columns_carry_mean_and_spread():
    frozen = reference(0.6, 100)
    infos = [{"problem_id": name, **reference_columns(frozen, name)} for name in NAMES]
    back = reference_of(infos)
    assert back is not None and back.problem_ids == NAMES
    assert (back.length == frozen.length).all() and (back.correct == frozen.correct).all()


def test_an_ungraded_reference_leaves_its_problem_out():
    found, _ = decided(PrimalDual(), rows(reference(0.5, 60).select(["a", "c"])), 4)
    assert found.step.left_out == ("b",)
    nothing, objective = decided(PrimalDual(), rows(None), 4)
    assert nothing.step.signal is None and nothing.advantages == [0.0] * 12
    assert objective == PrimalDual()


def test_lambda_follows_its_formula():
    # reference 1.0, batch 5 of 12 correct (one of c is cut off and wrong anyway): 1 + 1·(1 − 6/12)
    all_right = Batch(NAMES, np.ones((3, 2)), np.full((3, 2), 100))
    found, after = decided(PrimalDual(multiplier=1.0, multiplier_rate=1.0), rows(all_right), 4)
    assert found.step.signal is not None and found.step.signal.row["multiplier"] == 1.0
    assert after.multiplier == pytest.approx(1 + (1 - 6 / 12))
