"""Questions over checkpoints: which are shown, and what counts as a failure."""

import math

import numpy as np
import pytest

from crt.reporting.figures import cases
from crt.reporting.load import load_report_data, problem_trajectories


def test_erosion_is_shorter_and_worse():
    accuracy = np.array([[1.0, 1.0, 1.0, 0.5], [0.5, 0.5, 0.9, 0.9]])
    length = np.array([[100.0, 100, 100, 100], [50, 120, 50, 50]])
    # lost 0.5 and shorter; lost 0.5 but longer; lost only 0.1; gained 0.4
    assert cases.eroded(accuracy, length).tolist() == [True, False, False, False]
    assert cases.gained(accuracy, length).tolist() == [False, False, False, True]


def test_churn_is_walking_to_and_fro():
    # 100 → 60 → 100 → 60 walks 120 for a net 40: an excess of 0.8 lengths; a straight way has none
    length = np.array([[100.0, 100], [60, 80], [100, 70], [60, 60]])
    assert cases.excess(length).tolist() == pytest.approx([0.8, 0.0])
    steady = np.full((4, 2), 0.9)
    assert cases.churned(steady, length).tolist() == [True, False]
    steady[1, 0] = 0.4  # its accuracy moved too: then it is not churn
    assert cases.churned(steady, length).tolist() == [False, False]


def test_cases_are_spread_over_the_lengths():
    lengths = np.array([10.0, 50.0, np.nan, 30.0, 20.0, 40.0])
    assert cases.spread_ranks(lengths, 3) == [1, 3, 0]  # 50, 30, 10
    assert cases.spread_ranks(lengths, 9) == [1, 5, 3, 4, 0]


def test_cells_hold_length_and_accuracy(run_with_series):
    (group,) = load_report_data([run_with_series]).groups
    found = problem_trajectories(group)
    assert found.columns == ("base", "2", "4", "6")
    assert found.accuracy[:, 11].tolist() == [0.5] * 4 and found.length[3, 0] == 40
    row = next(iter(cases.cells(found, [11], {})))
    # half of the responses are right: half a circle
    assert (row["accuracy"], row["tokens"], row["angle"]) == (50, 100, pytest.approx(math.pi))


def test_nothing_failed_so_there_is_no_figure_of_failures(run_with_series):
    found = cases.figures(load_report_data([run_with_series]))
    assert [figure.key for figure in found] == ["cases"]
