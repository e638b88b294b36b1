"""The trade-off: known answers of its lines, its front and its names."""

import pytest

from crt.algorithm.metrics import AES1, AES2, aes
from crt.reporting.figures import tradeoff
from crt.reporting.figures.tradeoff import find_crowd, spread_apart
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


def test_a_crowd_is_enlarged():
    crowd = [20.0 + 0.5 * i for i in range(8)]
    (figure,) = tradeoff.figures(methods(*crowd, 60.0))
    whole, close = figure.spec["concat"]
    assert texts(whole) == {"base", "m60.0"} and texts(close) == {f"m{n}" for n in crowd}
    # lengths from 20 to 23.5 with 15 % of margin; names of five letters take 5 × 6.3 of 300 pixels
    left, right = close["encoding"]["x"]["scale"]["domain"]
    assert left == pytest.approx(20 - 0.525)
    assert right - left == pytest.approx((3.5 + 2 * 0.525) / (1 - 0.05 - 5 * 6.3 / 300))


def test_the_largest_crowd_counts_and_three_are_none():
    # near is 5 % of 20 tokens and 6 % of 10 points: 1 and 0.6
    domains = ([0.0, 20.0], [0.0, 10.0])
    places = zip("abcdefg", (0, 1, 2, 3, 9, 10, 11), strict=True)
    rows = {name: {"name": name, "len": float(x), "acc": 1.0} for name, x in places}
    assert [row["name"] for row in find_crowd([*rows.values()], domains)] == list("abcd")
    assert find_crowd([rows[name] for name in "abcefg"], domains) == []
    rows["b"]["acc"] = 1.7  # too far up: it parts them
    assert find_crowd([*rows.values()], domains) == []


def test_names_of_a_column_are_a_gap_apart_and_within():
    assert spread_apart([9.0, 5.0, 4.9], 1.0, 0.0, 10.0) == [9.0, 5.0, 4.0]
    assert spread_apart([0.2, 0.1, 0.0], 1.0, 0.0, 10.0) == [2.5, 1.5, 0.5]
    assert spread_apart([9.9, 9.8], 1.0, 0.0, 10.0) == [9.5, 8.5]


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
