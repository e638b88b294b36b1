"""The steps of training and the checkpoints on the way, as rows."""

import pytest

from crt.reporting.figures import training
from crt.reporting.load import load_report_data


def test_a_step_against_its_floor(make_run, tmp_path):
    rows = training.make_rows(load_report_data([make_run(tmp_path / "run").path]).runs[0])
    # accuracy 80, reference 75: the gap is 5; the margin is 7 points, so the floor is at −2
    assert rows[0]["gap"] == pytest.approx(5) and rows[0]["floor"] == pytest.approx(-2)
    assert (rows[0]["gap_low"], rows[0]["gap_high"]) == (pytest.approx(3), pytest.approx(7))
    assert rows[4]["floor"] is None  # Stage II guards length
    # a line stands where Stage II begins
    stage_two = training.spec(rows)["vconcat"][1]["layer"][-1]["data"]["values"]
    assert stage_two == [{"step": 5, "label": "Stage II"}]
    # 99, then 0.8 × 99 + 0.2 × 98
    assert rows[1]["smooth_tokens"] == pytest.approx(98.8)


def test_many_steps_are_thinned_out():
    rows = [{"step": i, "until": i + 1} for i in range(10)]
    # every third of ten: 0, 3, 6, 9
    assert training.thin_out(rows, 4) == [
        {"step": 0, "until": 3},
        {"step": 3, "until": 6},
        {"step": 6, "until": 9},
        {"step": 9, "until": 10},
    ]
    assert training.thin_out(rows, 10) == rows and training.thin_out([], 10) == []


def test_a_method_without_a_guard_has_no_floor(make_run, tmp_path):
    run = make_run(tmp_path / "run", method={"type": "grpo"})
    rows = training.make_rows(load_report_data([run.path]).runs[0])
    assert all(row["floor"] is None for row in rows)


def test_a_multiplier_gets_its_own_panel(make_run, tmp_path):
    run = make_run(tmp_path / "run", method={"type": "primal_dual"})
    rows = training.make_rows(load_report_data([run.path]).runs[0])
    assert len(training.spec(rows)["vconcat"]) == 3
    with_multiplier = [{**row, "multiplier": 1.5} for row in rows]
    panel = training.spec(with_multiplier)["vconcat"][3]
    assert panel["encoding"]["y"]["field"] == "multiplier"
    assert panel["encoding"]["x"]["title"] == "training step"  # under the lowest panel


def test_seeds_become_a_mean_and_a_range():
    row = {"sets": "g", "curve": "crt", "step": 10, "len_low": 0, "len_high": 0}
    rows = [
        {**row, "seed": 1, "acc": 90.0, "acc_low": 80, "acc_high": 99, "len": 50.0},
        {**row, "seed": 2, "acc": 94.0, "acc_low": 85, "acc_high": 99, "len": 70.0},
    ]
    (merged,) = training.merge_seeds(rows)
    assert (merged["acc"], merged["acc_low"], merged["acc_high"]) == (92, 90, 94)
    assert (merged["len"], merged["len_low"], merged["len_high"]) == (60, 50, 70)


def test_one_seed_keeps_its_interval():
    row = {"sets": "g", "curve": "c", "step": 1, "acc": 9.0, "acc_low": 8, "acc_high": 10}
    (kept,) = training.merge_seeds([{**row, "len": 5.0, "len_low": 4, "len_high": 6}])
    assert (kept["acc_low"], kept["acc_high"], kept["seeds"]) == (8, 10, 1)


def test_a_run_without_a_series_shows_its_validation(make_run, tmp_path):
    rows = training.trajectory_rows(load_report_data([make_run(tmp_path / "run").path]))
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
    start = training.trajectory_rows(load_report_data([run_with_series]))[0]
    assert (start["len"], start["seeds"]) == (100, 1)


def test_the_recommended_checkpoint_is_marked(run_with_series):
    rows = training.trajectory_rows(load_report_data([run_with_series]))
    assert [row["step"] for row in rows if row["recommended"]] == [6]
