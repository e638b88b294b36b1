import json

import numpy as np
import pytest

from crt.algorithm.batch import Batch
from crt.algorithm.objectives import LengthOnly, PrimalDual, Shorten
from crt.algorithm.step import logged_metrics, signal, weight_by_length


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
    assert signal(Shorten(), batch, batch)[0].row["short_wrong_rewarded"] == 0.0


def test_the_row_counts_groups_that_say_nothing():
    batch = Batch(("a", "b"), [[1, 1], [1, 1]], [[20, 20], [40, 20]])
    assert signal(LengthOnly(), batch, batch)[0].row["zero_advantage_groups"] == 0.5


def test_the_row_shows_the_multiplier_the_step_used():
    batch = Batch(("a",), [[1, 0]], [[20, 10]])
    objective = PrimalDual(multiplier=2.5, multiplier_rate=1.0)
    step, after = signal(objective, batch, Batch(("a",), [[1, 1]], [[9, 9]]))
    assert step.row["multiplier"] == 2.5
    assert after.multiplier == 3.0
    assert signal(LengthOnly(), batch, batch)[0].row["multiplier"] is None


def test_the_row_is_json():
    batch = Batch(("a",), [[1, 0]], [[20, 10]], truncated=[[1, 0]])
    row = signal(Shorten(), batch, batch)[0].row
    assert json.loads(json.dumps(row)) == row
    assert row["truncated"] == 0.5


def test_the_estimator_is_a_choice():
    batch = Batch(("a",), [[1, 0]], [[20, 10]])
    worse = Batch(("a",), [[1, 1]], [[20, 10]])
    centred = signal(Shorten(rule="switch"), batch, worse, "centred")[0].advantages
    assert centred.tolist() == [[0.5, -0.5]]
    standard = signal(Shorten(rule="switch"), batch, worse)[0].advantages
    assert standard == pytest.approx(np.array([[1, -1]]), abs=1e-5)


def test_the_gap_is_also_shown_where_nobody_was_cut_off():
    # b is truncated for the reference, c for the policy; on a the reference leads by 1.0 − 0.5
    batch = Batch(
        ("a", "b", "c"), [[1, 0], [1, 1], [0, 0]], [[9] * 2] * 3, [[0, 0], [0, 0], [1, 0]]
    )
    reference = Batch(
        ("a", "b", "c"), [[1, 1], [0, 0], [1, 1]], [[9] * 2] * 3, [[0, 0], [1, 1], [0, 0]]
    )
    assert signal(Shorten(), batch, reference)[0].row["gap_untruncated"] == 0.5
    everywhere = Batch(("a",), [[0, 0]], [[9, 9]], [[1, 0]])
    assert signal(Shorten(), everywhere, reference)[0].row["gap_untruncated"] is None


def test_weights_by_quartile_of_length_shortest_first():
    lengths = np.array([800.0, 100, 400, 300, 200, 700, 600, 500])
    weights = np.array([0.2, 1.0, 0.8, 0.9, 1.0, 0.4, 0.6, 0.8])
    # quartiles: 100, 200 | 300, 400 | 500, 600 | 700, 800
    assert weight_by_length(weights, lengths) == pytest.approx([1.0, 0.85, 0.7, 0.3])
    assert weight_by_length(weights[:3], lengths[:3]) is None


def test_a_product_of_token_ratios_is_a_length_bias_and_token_ratios_are_not():
    # trl#5814: noise of 0.03 per token, one response of 4,000 tokens among three of 200
    rng = np.random.default_rng(0)
    lengths = np.array([200] * 30 + [4000] * 10, dtype=float)
    ratios = [np.exp(rng.normal(0, 0.03, int(n))) for n in lengths]
    product = np.array([p if (p := np.prod(r)) <= 3 else 0.0 for r in ratios])  # sequence_mask
    token = np.array([np.minimum(r, 2.0).mean() for r in ratios])  # token_truncate
    biased, fair = weight_by_length(product, lengths), weight_by_length(token, lengths)
    assert biased is not None and biased[3] < 0.8 * biased[0]
    assert fair == pytest.approx([1.0] * 4, abs=0.01)


def test_loggers_get_numbers_and_nothing_for_what_is_absent():
    row = {"goal": "length", "margin": 0.02, "multiplier": None, "weight_by_length": [1, 1, 1, 0.5]}
    assert logged_metrics(row, 2) == {
        "crt/stage": 2, "crt/goal_length": 1, "crt/goal_accuracy": 0, "crt/margin": 0.02,
        "crt/weight_q1": 1, "crt/weight_q2": 1, "crt/weight_q3": 1, "crt/weight_q4": 0.5,
    }  # fmt: skip
