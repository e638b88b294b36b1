"""The steps of training, the lines of a contract and the checkpoints on the way, as rows."""

from datetime import UTC, datetime

import pytest

from crt.reporting import summary
from crt.reporting.figures import training
from crt.reporting.load import load_report_data
from crt.reporting.report import contract_rows, figures_of, page


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


# ---- A contract: every line has its curve, and its row in the page

LINES = {
    "lines": [
        {"metric": "accuracy", "at_least": "reference", "tolerance": 0.01},
        {"metric": "tokens", "at_most": 95},
    ]
}
ACCURACY, TOKENS = "accuracy at least reference", "tokens at most 95.0"


def stands(step: int) -> dict:
    error = {"standard_error": 0.02, "multiplier": 1.0}
    return {
        ACCURACY: {"value": 0.8, "bound": 0.75, "margin": 0.06, **error},
        TOKENS: {"value": 98.0 - step, "bound": 95.0, "margin": step - 3.0, **error},
    }


def contracted_run(make_run, make_series, answers, folder):
    run = make_run(folder / "run", steps=4, finished=True, method={"type": "crt_1s"},
                   contract=LINES)  # fmt: skip
    for step in range(5, 9):
        run.add_step({**run.steps[-1], "step": step, "lines": stands(step - 4)})
    courses = [(step, answers(100 - 10 * step, [2] * 40)) for step in (0, 2, 4)]
    make_series(run.path / "evaluations" / "own", courses)
    return run.path


def test_a_panel_per_line(make_run, make_series, answers, tmp_path):
    data = load_report_data([contracted_run(make_run, make_series, answers, tmp_path)])
    [figure] = [f for f in training.figures(data) if f.key == "contract"]
    assert [panel["title"]["text"] for panel in figure.spec["vconcat"]] == [ACCURACY, TOKENS]
    rows = training.line_rows(data.runs[0])
    # shares in %, and the bound with what is tolerated
    assert (rows[ACCURACY][0]["value"], rows[ACCURACY][0]["bound"]) == (80.0, 74.0)
    assert [row["state"] for row in rows[TOKENS]] == ["broken", "broken", "kept", "kept"]


def test_the_page_has_a_row_per_line_and_the_badge_counts_them(
    make_run, make_series, answers, tmp_path
):
    data = load_report_data([contracted_run(make_run, make_series, answers, tmp_path)])
    rows = {name: words for name, *words in contract_rows(data)}
    assert rows[TOKENS][-1] == "passed"  # 60 tokens in every response
    assert rows[ACCURACY][-1] == "not passed"  # 40 problems are too few for a point
    badge = summary.certificate(data)
    assert badge.state == "open" and badge.badge == "contract not certified · 1 of 2 lines"
    text = page(data, figures_of(data), datetime(2026, 1, 2, tzinfo=UTC))
    assert TOKENS in text and "(Bonferroni)" in text


def test_a_run_without_a_contract_shows_none(the_run):
    data = load_report_data([the_run])
    assert "contract" not in [figure.key for figure in training.figures(data)]
    assert contract_rows(data) == []
