"""The trade-off: known answers of its lines, its front and its names."""

import pytest

from crt.algorithm.metrics import AES1, AES2, aes
from crt.reporting.figures import tradeoff
from crt.reporting.load import ReportData, load_report_data, method_rows


@pytest.mark.parametrize("weights", [AES1, AES2])
@pytest.mark.parametrize("score", [-0.5, 0.0, 0.4])
def test_a_level_line_has_its_aes_everywhere(weights, score):
    lengths = [0.0, 30.0, 80.0, 120.0]
    accuracies = tradeoff.level_line(score, lengths, (100.0, 80.0), weights)
    assert aes(accuracies, lengths, 80.0, 100.0, weights) == pytest.approx([score] * 4)


def test_level_lines_need_a_base():
    row = {"len": 50.0, "acc": 90.0, "is_base": False}
    domains = ([0.0, 60.0], [0.0, 100.0])
    assert tradeoff.level_layers([row], [0.5], domains) == []
    lines, names = tradeoff.level_layers([{**row, "is_base": True}], [0.5, -0.5], domains)
    assert {line["level"] for line in lines["data"]["values"]} == {"+0.50", "−0.50"}
    assert len(names["data"]["values"]) == 2


def methods(*lengths: float) -> ReportData:
    row = {"seed": 1, "acc": 90.0, "base_acc": 90.0, "base_len": 100.0}
    return ReportData((), methods=tuple({**row, "method": f"m{n}", "len": n} for n in lengths))


def texts(panel: dict) -> set[str]:
    return {
        row["label"]
        for layer in panel["layer"]
        if layer["mark"]["type"] == "text" and layer["encoding"]["text"]["field"] == "label"
        for row in layer["data"]["values"]
    }


def test_names_stand_beside_their_points():
    (figure,) = tradeoff.figures(methods(20.0, 20.5, 60.0))
    assert texts(figure.spec) == {"base", "m20.0", "m20.5", "m60.0"}
    points = figure.spec["layer"][-1]["encoding"]
    assert points["color"]["legend"] is None  # every name is written: nothing needs a legend


def test_a_crowd_that_has_no_room_for_names_gets_a_legend():
    crowd = [20.0 + 0.1 * i for i in range(12)]
    (figure,) = tradeoff.figures(methods(*crowd, 60.0))
    assert "m60.0" in texts(figure.spec) and len(texts(figure.spec)) < 14
    assert figure.spec["layer"][-1]["encoding"]["color"]["legend"] is not None


def test_seeds_that_agree_are_drawn():
    # the mean of three equal accuracies may be above their maximum by a rounding error
    rows = [{"method": "m", "seed": s, "acc": 95.1, "len": 9.0, "base_acc": 0.1} for s in (1, 2, 3)]
    data = ReportData((), methods=tuple({**row, "base_len": 20.0} for row in rows))
    found = tradeoff.with_front(method_rows(data))
    assert [row["name"] for row in found] == ["base", "m"]
    assert tradeoff.window(found)[1][0] == 0  # the base's 0.1 %, with a margin


def test_the_recommended_checkpoint_is_marked_and_the_problems_are_named(run_with_series):
    (figure,) = tradeoff.figures(load_report_data([run_with_series]))
    assert texts(figure.spec) >= {"base", "step-0006 (recommended)"}
    assert figure.caption.startswith("Measured on 12 problems of own.")
    assert "The ring marks the recommended checkpoint." in figure.caption


def test_most_problems_come_first_then_every_checkpoint(run_with_series, evaluated, answers):
    folder = run_with_series / "evaluations"
    evaluated(folder / "base", answers(100, [2] * 20), data="held-out")
    evaluated(folder / "crt", answers(40, [2] * 20), data="held-out", model="x/step-0006")
    found = tradeoff.figures(load_report_data([run_with_series]))
    assert [figure.label for figure in found] == [
        "20 problems of held-out",
        "every checkpoint: 12 problems of own",
    ]
    assert texts(found[0].spec) == {"base", "crt (recommended)"}
