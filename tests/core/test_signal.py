import json

import numpy as np
import pytest

from crt.core.batch import Batch
from crt.core.objectives import LengthOnly, PrimalDual, Shorten
from crt.core.signal import signal, weight_by_length


def test_the_reference_is_found_by_problem_not_by_position():
    reference = Batch(("b", "a"), [[0, 0], [1, 1]], [[5, 5], [9, 9]])
    batch = Batch(("a",), [[1, 0]], [[8, 4]])
    step, _ = signal(Shorten(), batch, reference)
    assert step.row["reference_accuracy"] == 1.0
    assert step.row["reference_tokens"] == 9.0


def test_the_row_counts_short_wrong_answers_that_were_rewarded():
    # both problems: the short answer is wrong; on a length step it has a positive advantage
    batch = Batch(("a", "b"), [[1, 0], [1, 0]], [[20, 10], [40, 20]])
    assert signal(LengthOnly(), batch, batch)[0].row["short_wrong_rewarded"] == 0.5
    guarded = signal(LengthOnly("no_credit_for_wrong"), batch, batch)[0].row
    assert guarded["short_wrong_rewarded"] == 0.0


def test_the_row_counts_groups_that_say_nothing():
    batch = Batch(("a", "b"), [[1, 1], [1, 1]], [[20, 20], [40, 20]])
    assert signal(LengthOnly(), batch, batch)[0].row["silent_groups"] == 0.5


def test_the_row_shows_the_multiplier_the_step_used():
    batch = Batch(("a",), [[1, 0]], [[20, 10]])
    step, after = signal(PrimalDual(multiplier=2.5), batch, Batch(("a",), [[1, 1]], [[9, 9]]))
    assert step.row["multiplier"] == 2.5
    assert after.multiplier == 3.0
    assert signal(Shorten(), batch, batch)[0].row["multiplier"] is None


def test_the_row_is_json():
    batch = Batch(("a",), [[1, 0]], [[20, 10]], truncated=[[1, 0]])
    row = signal(Shorten(slack="auto"), batch, batch)[0].row
    assert json.loads(json.dumps(row)) == row
    assert row["truncated"] == 0.5


def test_the_estimator_is_a_choice():
    batch = Batch(("a",), [[1, 0]], [[20, 10]])
    worse = Batch(("a",), [[1, 1]], [[20, 10]])
    centred = signal(Shorten(), batch, worse, "centred")[0].advantages
    assert centred.tolist() == [[0.5, -0.5]]
    standard = signal(Shorten(), batch, worse)[0].advantages
    assert standard == pytest.approx(np.array([[1, -1]]), abs=1e-5)


def test_weights_are_averaged_by_quartile_of_length_shortest_first():
    # by length: 10 → 1.0, 20 → 0.8, 30 → 0.6, 40 → 0.4, 50 → 0.2, 60 → 0.0, 70 → 0.5, 80 → 0.7
    lengths = [80, 10, 70, 20, 60, 30, 50, 40]
    weights = [0.7, 1.0, 0.5, 0.8, 0.0, 0.6, 0.2, 0.4]
    # (1.0 + 0.8) / 2, (0.6 + 0.4) / 2, (0.2 + 0.0) / 2, (0.5 + 0.7) / 2
    assert weight_by_length(weights, lengths) == pytest.approx([0.9, 0.5, 0.1, 0.6])


def test_weights_need_four_rollouts():
    assert weight_by_length([1.0, 1.0, 1.0], [5, 6, 7]) is None
    assert weight_by_length(None, [5, 6, 7, 8]) is None
    # five rollouts: the first quartile has two, (1.0 + 0.0) / 2
    assert weight_by_length([1.0, 0.0, 0.2, 0.3, 0.4], [1, 2, 3, 4, 5]) == [0.5, 0.2, 0.3, 0.4]
