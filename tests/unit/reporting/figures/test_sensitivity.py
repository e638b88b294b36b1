"""A study of sensitivity as rows, sentences and panels."""

import json

import pytest

from crt.errors import DataError
from crt.reporting import summary
from crt.reporting.figures import sensitivity
from crt.reporting.load import (
    ReportData,
    load_report_data,
    sensitivity_rows,
    setting_title,
    table_rows,
    variant_names,
)
from crt.reporting.report import figures_of

SLACK, LENGTH = "method.shorten.slack", "method.shorten.length_on+method.refine.length_on"


def row(setting: str, value: object, seed: int, acc: float, tokens: float, own: bool = False):
    method = "crt" if own else f"crt {setting}={value}"
    figures = {"acc": acc, "len": tokens, "aes2": 0.5, "base_acc": 90.0, "feasible": acc >= 90}
    return {
        "setting": setting,
        "value": value,
        "seed": seed,
        "method": method,
        "own": own,
    } | figures


STUDY = (
    row(SLACK, 0.01, 1, 92.0, 50.0),
    row(SLACK, 0.01, 2, 88.0, 60.0),
    row(SLACK, "auto", 1, 91.0, 52.0, own=True),
    row(LENGTH, "all", 1, 80.0, 40.0),
    row(LENGTH, "correct_only", 1, 91.0, 52.0, own=True),
)


def test_seeds_are_a_mean_and_a_range():
    first, own, *_ = sensitivity_rows(STUDY)
    # 92 and 88, 50 and 60 tokens; the guard was kept at one seed of two
    assert (first["acc"], first["acc_low"], first["acc_high"], first["len"]) == (90, 88, 92, 55)
    assert (first["seeds"], first["feasible"], first["own"]) == (2, "1 of 2", False)
    assert (own["value"], own["own"], own["seeds"]) == ("auto", True, 1)


def test_variants_are_called_by_what_is_different():
    assert variant_names(STUDY) == {
        "crt method.shorten.slack=0.01": "slack η = 0.01",
        "crt": "as in the recipe",
        f"crt {LENGTH}=all": "length counted on = all",
    }
    assert setting_title("optim.learning_rate") == "learning rate"


def test_panels_of_a_measure_share_one_scale():
    found = sensitivity.make_rows(ReportData((), sensitivity=STUDY))
    views = sensitivity.spec(found)["concat"]
    assert len(views) == 2 * 3  # settings times measures
    # accuracies from 80 to 92, with 8 % of margin; the base's 90 is within
    for view in views[::3]:
        assert view["encoding"]["y"]["scale"]["domain"] == pytest.approx([80 - 0.96, 92 + 0.96])


def test_a_line_joins_numbers_alone():
    tolerance = [row("a.tolerance", value, 1, 90.0, 50.0) for value in (0.0, 0.1)]
    found = sensitivity.make_rows(ReportData((), sensitivity=(*tolerance, *STUDY)))
    marks = [
        [layer["mark"]["type"] for layer in view["layer"]]
        for view in sensitivity.spec(found)["concat"][::3]
    ]
    assert ["line" in kinds for kinds in marks] == [True, False, False]  # auto is no number


def test_a_value_without_a_score_is_left_out_of_its_panel():
    unknown = {**row(SLACK, 0.03, 1, 90.0, 50.0), "aes2": None}
    found = sensitivity.make_rows(ReportData((), sensitivity=(*STUDY, unknown)))
    # scores of 0.5 and the dashed line at 0, with 8 % of margin
    assert sensitivity.domain(found, "aes2") == pytest.approx([-0.04, 0.54])
    assert sensitivity.spec(found)["concat"]


def test_the_page_of_a_study(evaluated, answers, tmp_path):
    """Its folder holds methods.json too, with runs named by their files."""
    named = {"checkpoint": "recommended", "step": 6}
    rows = [each for each in STUDY if each["setting"] == SLACK and each["seed"] == 1]
    methods = [{**each, **named, "run": f"run-{i}"} for i, each in enumerate(rows)]
    (tmp_path / "methods.json").write_text(json.dumps(methods))
    (tmp_path / "sensitivity.json").write_text(json.dumps(STUDY))
    evaluated(tmp_path / "evaluations" / "base-seed1", answers(100, [2, 2]))
    for i in range(len(rows)):
        folder = tmp_path / "evaluations" / f"run-{i}" / "step-0006"
        evaluated(folder, answers(50, [2, 2]))
    found = load_report_data([tmp_path])
    (group,) = found.groups
    names = ["base", "slack η = 0.01", "as in the recipe"]
    assert [point.name for point in group.points] == names
    assert [each["name"] for each in table_rows(found)] == names
    assert figures_of(found)[0].key == "sensitivity"
    sentences = summary.sentences(found)
    assert sentences[1] == (
        "Accuracy goes from 80.0 % (length counted on = all) to 91.0 % (slack η = auto)."
    )


def test_a_damaged_study_is_one_sentence(tmp_path):
    (tmp_path / "methods.json").write_text("[]")
    (tmp_path / "sensitivity.json").write_text('[{"setting": "a"}]')
    with pytest.raises(DataError, match=r"sensitivity\.json is not a list of rows with acc, aes2"):
        load_report_data([tmp_path])
