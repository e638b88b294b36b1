"""The steps of training, as rows."""

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
