"""One look, and one renderer for print."""

import re

import pytest

from crt.reporting.load import load_report_data
from crt.reporting.report import figures_of
from crt.reporting.style import (
    Figure,
    axis,
    markers,
    palette,
    panel_width,
    place_labels,
    render,
    resolve,
)


def test_names_beyond_the_palette_still_differ():
    assert len(set(markers(f"m{i:02d}" for i in range(36)).values())) == 36


def test_a_name_looks_the_same_with_and_without_the_base():
    assert markers(["grpo", "crt", "base"])["grpo"] == markers(["crt", "grpo"])["grpo"]
    names = list(markers(["grpo", "crt_1s", "base", "crt"]))
    assert names == ["base", "crt", "crt_1s", "grpo"]


def test_colours_are_filled_in_but_not_in_data():
    spec = {
        "data": {"values": [{"text": "var(--blue)"}]},
        "mark": {"type": "point", "color": "var(--blue)"},
        "width": "1/1",
    }
    found = resolve(spec, 500)
    assert found["mark"]["color"] == palette()["var(--blue)"] and found["width"] == 500
    assert found["data"]["values"] == [{"text": "var(--blue)"}]


def test_panels_share_the_width_or_stand_below_each_other():
    spec = {"concat": [], "columns": 2}
    # 1000 without one gap of 76 and 44 for the axis at the left: 880
    assert panel_width(spec, "1/2", 1000) == 440
    assert panel_width(spec, "1/2", 400) == 356
    assert resolve({**spec, "config": {}}, 400)["columns"] == 1


def test_every_figure_can_be_printed_and_the_same_data_give_the_same_file(run_with_series):
    found = figures_of(load_report_data([run_with_series]))
    keys = ["tradeoff", "trajectories", "stability", "redundancy", "cases", "training"]
    assert [figure.key for figure in found] == keys  # nothing failed: no failures
    for figure in found:
        picture = render(figure, "svg")
        assert picture.startswith(b"<svg") and picture == render(figure, "svg")
        assert b"var(--" not in picture
    assert render(found[0], "png") == render(found[0], "png")
    assert render(found[0], "pdf").startswith(b"%PDF")


def test_a_figure_has_its_width_on_paper():
    spec = {"data": {"values": [{"a": 1}]}, "mark": "point", "width": "1/1", "height": 60}
    figure = Figure("f", "F", {**spec, "encoding": {"x": {"field": "a"}}}, "", inches=3.0)
    width = re.search(rb'width="([\d.]+)pt"', render(figure, "svg"))
    assert float(width[1]) == pytest.approx(216, abs=1)  # 3 inches of 72 points
    box = re.search(rb"MediaBox \[0 0 ([\d.]+)", render(figure, "pdf"))
    assert float(box[1]) == pytest.approx(216, abs=1)
    pixels = int.from_bytes(render(figure, "png")[16:20])
    assert pixels == pytest.approx(900, abs=3)  # 3 inches of 300 pixels


def test_circles_are_filled_to_the_accuracy(run_with_series):
    figures = figures_of(load_report_data([run_with_series]))
    svg = render(next(figure for figure in figures if figure.key == "cases"), "svg").decode()
    arcs = re.findall(r'aria-roledescription="arc mark" [^>]*?d="([^"]*)"', svg)
    assert len(arcs) == 12 * 4
    # a whole circle is two arcs; three of twelve questions are right in half of their responses
    assert sum(arc.count("A") == 1 for arc in arcs) == 3 * 4


def test_a_name_that_would_cover_another_is_left_out():
    def point(name: str, length: float) -> dict:
        return {"label": name, "len": length, "acc": 50.0, "group": name, "order": 0}

    apart = [point("first", 50.0), point("second", 50.0)]
    x, y = axis("len", domain=[0, 100]), axis("acc", domain=[0, 100])
    placed = place_labels(apart, apart, x, y, 200)
    assert [(row["label"], row["align"]) for row in placed] == [
        ("first", "left"),
        ("second", "right"),
    ]
    many = [point(f"name-{i}", 50.0) for i in range(12)]  # six places around one point
    assert len(place_labels(many, many, x, y, 200)) <= 6
    edge = [point("at the edge", 99.0)]
    assert place_labels(edge, edge, x, y, 200)[0]["align"] == "right"
