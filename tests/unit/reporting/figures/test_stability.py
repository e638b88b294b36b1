"""Bars of the problems that got shorter, and the two kinds of redundancy rows."""

import pytest

from crt.reporting.figures import stability, tradeoff
from crt.reporting.load import ReportData, load_report_data


def test_bars_add_up(run_with_series):
    rows = list(stability.make_rows(load_report_data([run_with_series])))
    assert [row["share"] for row in rows[:3]] == [0, 100, 0]  # every accuracy stayed
    assert rows[2]["end"] == pytest.approx(100)
    assert rows[0]["name"] == "step-0002 (n = 12)"


def test_a_bar_needs_all_three_shares():
    row = {"method": "m", "seed": 1, "acc": 90.0, "len": 50.0, "ad": 10.0}
    assert list(stability.make_rows(ReportData((), methods=(row,)))) == []


def test_redundancy_tells_correct_and_wrong_responses_apart(run_with_series):
    rows = tradeoff.redundancy_rows(load_report_data([run_with_series]))
    assert {row["kind"] for row in rows} == {"all responses", "correct", "wrong"}
