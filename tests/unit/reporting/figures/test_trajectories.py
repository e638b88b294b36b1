"""Accuracy and length over checkpoints, as rows."""

import pytest

from crt.reporting.figures import trajectories
from crt.reporting.load import load_report_data


def test_seeds_become_a_mean_and_a_range():
    row = {"sets": "g", "curve": "crt", "step": 10, "len_low": 0, "len_high": 0}
    rows = [
        {**row, "seed": 1, "acc": 90.0, "acc_low": 80, "acc_high": 99, "len": 50.0},
        {**row, "seed": 2, "acc": 94.0, "acc_low": 85, "acc_high": 99, "len": 70.0},
    ]
    (merged,) = trajectories.merge_seeds(rows)
    assert (merged["acc"], merged["acc_low"], merged["acc_high"]) == (92, 90, 94)
    assert (merged["len"], merged["len_low"], merged["len_high"]) == (60, 50, 70)


def test_one_seed_keeps_its_interval():
    row = {"sets": "g", "curve": "c", "step": 1, "acc": 9.0, "acc_low": 8, "acc_high": 10}
    (kept,) = trajectories.merge_seeds([{**row, "len": 5.0, "len_low": 4, "len_high": 6}])
    assert (kept["acc_low"], kept["acc_high"], kept["seeds"]) == (8, 10, 1)


def test_a_run_without_a_series_shows_its_validation(make_run, tmp_path):
    rows = trajectories.make_rows(load_report_data([make_run(tmp_path / "run").path]))
    assert [(r["step"], r["len"], r["acc"]) for r in rows] == [
        (0, 110.0, 92.0),  # the reference
        (2, 98.0, 90.0),
        (4, 96.0, 90.0),
        (6, 94.0, 90.0),
    ]
    # ±1.96 × 0.01, in points
    assert rows[1]["acc_low"] == pytest.approx(90 - 1.96)


def test_a_second_series_on_the_same_problems_is_not_a_second_seed(
    run_with_series, make_series, answers
):
    make_series(run_with_series / "evaluations" / "so-again", [(0, answers(10, [2] * 12))])
    start = trajectories.make_rows(load_report_data([run_with_series]))[0]
    assert (start["len"], start["seeds"]) == (100, 1)


def test_the_recommended_checkpoint_is_marked(run_with_series):
    rows = trajectories.make_rows(load_report_data([run_with_series]))
    assert [row["step"] for row in rows if row["recommended"]] == [6]
