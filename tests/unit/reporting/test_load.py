"""What is read from directories, and what is refused."""

import json

import pytest

from crt.errors import DataError
from crt.reporting.figures import training
from crt.reporting.load import (
    checkpoint_groups,
    group_rows,
    load_report_data,
    main_groups,
    method_rows,
)


def names(group):
    return [(point.name, point.step) for point in group.points]


def test_a_run_with_a_series(run_with_series):
    found = load_report_data([run_with_series])
    (run,), (group,) = found.runs, found.groups
    assert (run.name, run.method, run.finished, len(run.steps)) == ("small", "crt", True, 6)
    assert names(group) == [("base", 0), ("step-0002", 2), ("step-0004", 4), ("step-0006", 6)]
    assert group.points[0].versus is None
    # 100 − 60 of 100 tokens
    assert group.points[3].versus["averages"]["all"]["saved"]["value"] == pytest.approx(60)


def test_an_unfinished_run_without_anything(make_run, tmp_path):
    found = load_report_data([make_run(tmp_path / "run", steps=0).path])
    assert not found.runs[0].finished and found.runs[0].steps == [] and found.groups == ()


def test_evaluations_by_themselves_take_the_first_as_base(evaluated, answers, tmp_path):
    evaluated(tmp_path / "long", answers(100, [2, 2]))
    evaluated(tmp_path / "short", answers(50, [2, 1]))
    (group,) = load_report_data([tmp_path / "long", tmp_path / "short"]).groups
    assert names(group) == [("long", None), ("short", None)]
    assert group.points[1].versus["averages"]["all"]["changes"]["acc"]["value"] == -25


def test_evaluations_of_other_problems_stand_apart(evaluated, answers, tmp_path):
    evaluated(tmp_path / "a", answers(100, [2, 2]))
    evaluated(tmp_path / "b", answers(100, [2, 2, 2]))
    evaluated(tmp_path / "c", answers(90, [2, 2]))
    first, second = load_report_data([tmp_path / "a", tmp_path / "b", tmp_path / "c"]).groups
    assert [p.name for p in first.points] == ["a", "c"]
    assert [p.name for p in second.points] == ["b"]


def test_a_runs_own_evaluations_in_the_order_of_training(make_run, evaluated, answers, tmp_path):
    run = make_run(tmp_path / "run")
    folder = run.path / "evaluations"
    evaluated(folder / "a-late-one", answers(50, [2, 2]), model="checkpoints/step-0006")
    evaluated(folder / "early", answers(70, [2, 2]), model="checkpoints/step-0002")
    evaluated(folder / "base", answers(90, [2, 2]))
    (group,) = load_report_data([run.path]).groups
    assert names(group) == [("base", 0), ("early", 2), ("a-late-one", 6)]


def test_one_checkpoint_under_two_names_comes_as_it_was_evaluated(
    make_run, evaluated, answers, tmp_path
):
    # as `crt demo` does it when Stage II found nothing better
    run = make_run(tmp_path / "run", finished=True)
    folder, same = run.path / "evaluations", "checkpoints/step-0006"
    evaluated(folder / "base", answers(90, [2, 2]))
    evaluated(folder / "stage1", answers(50, [2, 2]), model=same, minute=1)
    evaluated(folder / "crt", answers(50, [2, 2]), model=same, minute=2)
    (group,) = load_report_data([run.path]).groups
    assert names(group) == [("base", 0), ("stage1", 6), ("crt", 6)]
    assert group.result.name == "crt"


def test_what_is_not_finished_or_damaged_is_noted(make_run, evaluated, answers, tmp_path):
    run = make_run(tmp_path / "run")
    evaluated(run.path / "evaluations" / "good", answers(50, [2]))
    evaluated(run.path / "evaluations" / "bad", answers(50, [2]))
    evaluated(run.path / "evaluations" / "begun", answers(50, [2]))
    (run.path / "evaluations" / "bad" / "by_problem.jsonl").write_text("{}\n")
    (run.path / "evaluations" / "begun" / "figures.json").unlink()
    found = load_report_data([run.path])
    assert [p.name for group in found.groups for p in group.points] == ["good"]
    assert any("bad is left out" in note and "checksum" in note for note in found.notes)
    assert any("begun is not finished" in note for note in found.notes)


def test_two_runs_of_a_recipe_are_one_curve_and_two_lines(make_run, make_series, answers, tmp_path):
    for seed in (1, 2):
        run = make_run(tmp_path / f"seed{seed}", seed=seed)
        courses_ = [(step, answers(100 - 10 * step * seed, [2, 1])) for step in (0, 2)]
        make_series(run.path / "evaluations" / "own", courses_)
    found = load_report_data([tmp_path / "seed1", tmp_path / "seed2"])
    labels = ["small, own (seed1)", "small, own (seed2)"]
    assert [group.label for group in found.groups] == labels
    rows = [row for group in main_groups(found) for row in group_rows(group)]
    assert {row["curve"] for row in rows} == {"small"}
    assert list(dict.fromkeys(row["group"] for row in rows)) == labels
    # step 2 took 80 and 60 tokens
    last = training.trajectory_rows(found)[-1]
    assert (last["len"], last["len_low"], last["len_high"], last["seeds"]) == (70, 60, 80, 2)


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="is not a run, an evaluation"):
        load_report_data([tmp_path])


def test_a_folder_with_an_empty_runs_folder_is_refused(tmp_path):
    (tmp_path / "runs").mkdir()
    with pytest.raises(DataError, match=r"and no run in runs/\.$"):
        load_report_data([tmp_path])


def test_an_empty_comparison_is_refused(tmp_path):
    (tmp_path / "methods.json").write_text("[]")
    with pytest.raises(DataError, match="has no result yet"):
        load_report_data([tmp_path])


def test_a_comparison_of_methods(make_run, evaluated, answers, tmp_path):
    for seed in (1, 2):
        make_run(tmp_path / "runs" / f"crt-seed{seed}", seed=seed)
        evaluated(tmp_path / "evaluations" / f"base-seed{seed}", answers(100, [2, 2]))
        folder = tmp_path / "evaluations" / f"crt-seed{seed}" / "step-0006"
        evaluated(folder, answers(50, [2, 2]))
    row = {"method": "crt", "checkpoint": "recommended", "step": 6, "aes2": 0.5}
    rows = [
        {**row, "seed": 1, "acc": 90.0, "len": 50.0, "base_acc": 90.0, "base_len": 100.0},
        {**row, "seed": 2, "acc": 94.0, "len": 60.0, "base_acc": 92.0, "base_len": 104.0},
        {**row, "seed": 1, "checkpoint": "last", "acc": 10.0, "len": 5.0},
    ]
    (tmp_path / "methods.json").write_text(json.dumps(rows))
    found = load_report_data([tmp_path])
    assert len(found.runs) == 2
    assert [[p.name for p in group.points] for group in found.groups] == [["base", "crt"]] * 2
    base, crt = method_rows(found)
    # the mean of 90 and 94, and of 90 and 92; the last checkpoint is not the recommended one
    assert (crt["acc"], crt["acc_low"], crt["acc_high"], crt["seeds"]) == (92, 90, 94, 2)
    assert (base["name"], base["acc"], base["len"]) == ("base", 91, 102)


def test_a_damaged_comparison_is_one_sentence(tmp_path):
    (tmp_path / "methods.json").write_text('[{"method": "crt"}]')
    with pytest.raises(DataError, match=r"methods.json is not a list of rows"):
        load_report_data([tmp_path])


def test_the_main_group_has_most_problems_and_checkpoints_are_in_the_series(
    run_with_series, evaluated, answers
):
    folder = run_with_series / "evaluations"
    evaluated(folder / "base", answers(100, [2] * 20))
    evaluated(folder / "crt", answers(40, [2] * 20), model="checkpoints/step-0006")
    found = load_report_data([run_with_series])
    assert [point.name for point in main_groups(found)[0].points] == ["base", "crt"]
    assert checkpoint_groups(found)[0].is_series
    assert main_groups(found)[0].data_label == "20 problems of own"


def test_a_smaller_evaluation_does_not_replace_the_series(run_with_series, evaluated, answers):
    folder = run_with_series / "evaluations"
    evaluated(folder / "base", answers(100, [2, 2]))
    evaluated(folder / "crt", answers(40, [2, 2]), model="checkpoints/step-0006")
    found = load_report_data([run_with_series])
    assert [group.num_problems for group in main_groups(found)] == [12]
