"""Figures as pure functions of rows: known answers, and what ends up on paper."""

import io
import itertools
import math

import numpy as np
import pytest

from crt.algorithm.metrics import AES1, AES2, aes
from crt.report.figures import (
    case_study,
    failure_modes,
    grid,
    labels,
    plane,
    plane_rows,
    redundancy,
    stability,
    style,
    training,
    trajectories,
)
from crt.report.figures.training_rows import thinned
from crt.report.page import drawings
from crt.report.palette import looks
from crt.report.sources import Material, gather


def test_the_front_holds_who_nobody_beats():
    # (length, accuracy): the second is shorter and as right as the first, the third shortest
    assert plane_rows.pareto([(100, 90), (60, 90), (40, 80), (70, 85)]) == [
        False,
        True,
        True,
        False,
    ]


def test_equal_points_are_both_on_the_front():
    assert plane_rows.pareto([(50, 90), (50, 90)]) == [True, True]


@pytest.mark.parametrize("weights", [AES1, AES2])
@pytest.mark.parametrize("score", [-0.5, 0.0, 0.4])
def test_a_level_line_has_its_aes_everywhere(weights, score):
    lengths = [0.0, 30.0, 80.0, 120.0]
    accuracies = plane_rows.level_line(score, lengths, (100.0, 80.0), weights)
    assert aes(accuracies, lengths, 80.0, 100.0, weights) == pytest.approx([score] * 4)


def test_levels_need_a_base():
    row = {"len": 50.0, "acc": 90.0, "acc_low": None, "acc_high": None, "is_base": False}
    assert plane_rows.levels([row]) == []
    assert {r["level"] for r in plane_rows.levels([{**row, "is_base": True}])} >= {"+0.50", "−0.50"}


def test_seeds_that_agree_are_drawn():
    # the mean of three equal accuracies may be above their maximum by a rounding error
    rows = [{"method": "m", "seed": s, "acc": 95.1, "len": 9.0, "base_acc": 0.1} for s in (1, 2, 3)]
    found = plane.rows(Material((), methods=tuple({**row, "base_len": 20.0} for row in rows)))
    assert [row["name"] for row in found] == ["base", "m"]
    assert plane.drawn(found).axes[0].get_ylim()[0] == 0  # the base's 0.1 %, with air


def methods(*lengths: float) -> tuple:
    row = {"seed": 1, "acc": 90.0, "base_acc": 90.0, "base_len": 100.0}
    return tuple({**row, "method": f"m{n}", "len": n} for n in lengths)


def texts(axis) -> set[str]:
    return {text.get_text() for text in axis.texts if text.get_text()[0] not in "+−"}


def test_names_stand_beside_their_points():
    figure = plane.drawn(plane.rows(Material((), methods=methods(20.0, 20.5, 60.0))))
    (axis,) = figure.axes
    assert figure.legends == [] and texts(axis) == {"base", "m20.0", "m20.5", "m60.0"}
    figure.draw_without_rendering()
    boxes = [t.get_window_extent() for t in axis.texts if t.get_text() in texts(axis)]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_a_crowd_is_enlarged():
    crowd = [20.0 + 0.5 * i for i in range(8)]
    figure = plane.drawn(plane.rows(Material((), methods=methods(*crowd, 60.0))))
    whole, close = figure.axes
    assert texts(whole) == {"base", "m60.0"} and texts(close) == {f"m{n}" for n in crowd}
    assert close.get_xlim() == pytest.approx((20 - 0.525, 23.5 + 0.525))
    assert figure.legends == []


def test_the_largest_crowd_counts_and_three_are_none():
    spots = {
        name: (float(x), 1.0) for name, x in zip("abcdefg", (0, 1, 2, 3, 9, 10, 11), strict=True)
    }
    assert labels.crowd(spots, (1.0, 0.5)) == list("abcd")
    assert labels.crowd({name: spots[name] for name in "abcefg"}, (1.0, 0.5)) == []
    assert labels.crowd({**spots, "b": (1.0, 1.6)}, (1.0, 0.5)) == []  # too far up: it parts them


def test_names_of_a_column_are_a_gap_apart_and_within():
    assert labels.spaced([9.0, 5.0, 4.9], 1.0, 0.0, 10.0) == [9.0, 5.0, 4.0]
    assert labels.spaced([0.2, 0.1, 0.0], 1.0, 0.0, 10.0) == [2.5, 1.5, 0.5]
    assert labels.spaced([9.9, 9.8], 1.0, 0.0, 10.0) == [9.5, 8.5]


def test_seeds_become_a_mean_and_a_range():
    row = {"group": "g", "curve": "crt", "step": 10, "len_low": 0, "len_high": 0}
    rows = [
        {**row, "seed": 1, "acc": 90.0, "acc_low": 80, "acc_high": 99, "len": 50.0},
        {**row, "seed": 2, "acc": 94.0, "acc_low": 85, "acc_high": 99, "len": 70.0},
    ]
    (merged,) = trajectories.banded(rows)
    assert (merged["acc"], merged["acc_low"], merged["acc_high"]) == (92, 90, 94)
    assert (merged["len"], merged["len_low"], merged["len_high"]) == (60, 50, 70)


def test_one_seed_keeps_its_interval():
    row = {"group": "g", "curve": "c", "step": 1, "acc": 9.0, "acc_low": 8, "acc_high": 10}
    (kept,) = trajectories.banded([{**row, "len": 5.0, "len_low": 4, "len_high": 6}])
    assert (kept["acc_low"], kept["acc_high"], kept["seeds"]) == (8, 10, 1)


def test_a_run_without_a_series_shows_its_validation(make_run, tmp_path):
    rows = trajectories.rows(gather([make_run(tmp_path / "run").path]))
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
    start = trajectories.rows(gather([run_with_series]))[0]
    assert (start["len"], start["seeds"]) == (100, 1)


def test_erosion_is_shorter_and_worse():
    accuracy = np.array([[1.0, 1.0, 1.0, 0.5], [0.5, 0.5, 0.9, 0.9]])
    length = np.array([[100.0, 100, 100, 100], [50, 120, 50, 50]])
    # lost 0.5 and shorter; lost 0.5 but longer; lost only 0.1; gained 0.4
    assert failure_modes.eroded(accuracy, length).tolist() == [True, False, False, False]
    assert failure_modes.gained(accuracy, length).tolist() == [False, False, False, True]


def test_churn_is_walking_to_and_fro():
    # 100 → 60 → 100 → 60 walks 120 for a net 40: an excess of 0.8 lengths; a straight way has none
    length = np.array([[100.0, 100], [60, 80], [100, 70], [60, 60]])
    assert failure_modes.excess(length).tolist() == pytest.approx([0.8, 0.0])
    steady = np.full((4, 2), 0.9)
    assert failure_modes.churned(steady, length).tolist() == [True, False]
    steady[1, 0] = 0.4  # its accuracy moved too: then it is not churn
    assert failure_modes.churned(steady, length).tolist() == [False, False]


def test_cases_are_spread_over_the_lengths():
    lengths = np.array([10.0, 50.0, np.nan, 30.0, 20.0, 40.0])
    assert case_study.spread(lengths, 3) == [1, 3, 0]  # 50, 30, 10
    assert case_study.spread(lengths, 9) == [1, 5, 3, 4, 0]


def test_cells_hold_length_and_accuracy(run_with_series):
    (lineup,) = gather([run_with_series]).lineups
    found = grid.course(lineup)
    assert found.columns == ("base", "2", "4", "6")
    assert found.accuracy[:, 11].tolist() == [0.5] * 4 and found.length[3, 0] == 40
    row = next(iter(grid.cells(found, [11], {})))
    assert (row["accuracy"], row["tokens"], row["to"]) == (50, 100, pytest.approx(math.pi))


def test_bars_add_up(run_with_series):
    rows = stability.rows(gather([run_with_series]))
    assert [row["share"] for row in rows[:3]] == [0, 100, 0]  # every accuracy stayed
    assert rows[2]["end"] == pytest.approx(100)
    assert rows[0]["name"] == "step-0002 (n = 12)"


def test_a_step_against_its_floor(make_run, tmp_path):
    rows = training.rows(gather([make_run(tmp_path / "run").path]).runs[0])
    # accuracy 80, reference 75: the gap is 5; the margin is 7 points, so the floor is at −2
    assert rows[0]["gap"] == pytest.approx(5) and rows[0]["floor"] == pytest.approx(-2)
    assert (rows[0]["gap_low"], rows[0]["gap_high"]) == (pytest.approx(3), pytest.approx(7))
    assert rows[4]["floor"] is None  # Stage II guards length
    assert training.stage_two(rows) == 5
    # 99, then 0.8 × 99 + 0.2 × 98
    assert rows[1]["smooth_tokens"] == pytest.approx(98.8)


def test_many_steps_are_thinned_and_said():
    rows = [{"step": i, "until": i + 1} for i in range(10)]
    # every third of ten: 0, 3, 6, 9
    assert thinned(rows, 4) == [
        {"step": 0, "until": 3},
        {"step": 3, "until": 6},
        {"step": 6, "until": 9},
        {"step": 9, "until": 10},
    ]
    assert thinned(rows, 10) == rows and thinned([], 10) == []


def test_a_method_without_a_guard_has_no_floor(make_run, tmp_path):
    run = make_run(tmp_path / "run", method={"type": "grpo"})
    assert all(row["floor"] is None for row in training.rows(gather([run.path]).runs[0]))


def test_redundancy_tells_kinds_apart(run_with_series):
    rows = redundancy.rows(gather([run_with_series]))
    assert {row["kind"] for row in rows} == {"all responses", "correct", "wrong"}


def test_names_beyond_the_palette_still_differ():
    assert len(set(looks(f"m{i:02d}" for i in range(36)).values())) == 36


def test_a_name_looks_the_same_with_and_without_the_base():
    assert looks(["grpo", "crt", "base"])["grpo"] == looks(["crt", "grpo"])["grpo"]
    assert list(looks(["grpo", "crt_1s", "base", "crt"])) == ["base", "crt", "crt_1s", "grpo"]


def test_names_that_would_cover_each_other_are_left_to_hovering():
    point = {"is_base": False, "order": 0}
    rows = [{**point, "name": n, "curve": n, "lineup": n, "len": x, "acc": 90.0} for n, x in NEAR]
    assert [row["name"] for row in plane_rows.named(rows)] == ["a", "c"]
    # half a point apart is near where the intervals make the figure 20 points high
    rows[1] |= {"acc": 90.5, "acc_low": None, "acc_high": None}
    assert [row["name"] for row in plane_rows.named(rows)] == ["a", "b", "c"]
    rows[2] |= {"acc_low": 80.0, "acc_high": 100.0}
    assert [row["name"] for row in plane_rows.named(rows)] == ["a", "c"]


NEAR = (("a", 100.0), ("b", 103.0), ("c", 50.0))


def test_the_same_rows_give_the_same_file(run_with_series):
    found = drawings(gather([run_with_series]))
    keys = [drawing.key for drawing in found]
    assert keys == [
        "plane",
        "trajectories",
        "stability",
        "redundancy",
        "case_study",
        "training",
    ]  # nothing eroded, nothing churned: no failure modes
    for drawing in found:
        _, module, rows, _ = drawing.choices[0]
        assert saved(module.drawn(rows), "svg") == saved(module.drawn(rows), "svg")
    _, module, rows, _ = found[0].choices[0]
    for form, start in {"pdf": b"%PDF", "png": b"\x89PNG"}.items():
        first, again = saved(module.drawn(rows), form), saved(module.drawn(rows), form)
        assert first == again and first.startswith(start)


def saved(figure, form: str) -> bytes:
    file = io.BytesIO()
    style.save(figure, file, form)
    return file.getvalue()


def test_circles_on_paper_are_filled_to_the_accuracy(run_with_series):
    from matplotlib.patches import Wedge

    (lineup,) = gather([run_with_series]).lineups
    figure = grid.drawn(case_study.rows(lineup, {}))
    wedges = [p for p in figure.axes[0].patches if isinstance(p, Wedge)]
    assert len(wedges) == 12 * 4
    assert sorted({round(w.theta2 - w.theta1) for w in wedges}) == [180, 360]


def test_a_multiplier_gets_its_own_panel(make_run, tmp_path):
    run = make_run(tmp_path / "run", method={"type": "primal_dual"})
    rows = training.rows(gather([run.path]).runs[0])
    assert len(training.spec(rows)["vconcat"]) == 3
    with_multiplier = [{**row, "multiplier": 1.5} for row in rows]
    assert training.spec(with_multiplier)["vconcat"][3]["encoding"]["y"]["field"] == "multiplier"
    assert len(training.drawn(with_multiplier).axes) == 4
