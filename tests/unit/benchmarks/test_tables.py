"""The table of methods: its figures are exact, and nobody is left out."""

import numpy as np
import pytest
from tables import BATCHES, Outcome, contenders, outcome, run, show, show_worlds

from crt.algorithm.registry import METHODS
from crt.algorithm.tabular import Policy, Task


def test_every_method_but_those_that_read_a_budget_is_in_the_table():
    assert set(METHODS) - set(contenders()) == {"l1_exact", "l1_max", "guarded"}


def test_an_outcome_is_against_base_and_optimum():
    # two styles, 1.0 right with 100 tokens and 0.8 with 40; the base takes both alike
    task = Task(accuracy=np.array([[1.0, 0.8]]), length=np.array([[100.0, 40.0]]))
    base, terse = Policy(task, np.zeros((1, 2))), Policy(task, np.array([[-99.0, 0.0]]))
    found = outcome(terse, base, shortest=50.0)
    # 0.9 to 0.8 is −10 points; 70 to 40 tokens; 30 saved of 20; AES2 0.4286 − 10 · 0.1111
    assert found.points == pytest.approx(-10)
    assert found.ratio == pytest.approx(40 / 70)
    assert found.saved == pytest.approx(1.5)
    assert found.aes == pytest.approx(30 / 70 - 10 / 9)


def test_a_run_repeats():
    training = BATCHES["16x8"].__class__(steps=3, group_size=4, problems_per_step=8)
    method = contenders()["crt_1s"]
    runs = [run("crt_1s", method, "checks", training, seed, False) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_rows_fit_eighty_columns():
    outcomes = {f"w{i}": [Outcome(-25.5, 0.17, -2.25, 1.93)] for i in range(7)}
    assert len(show("guarded shorter_better", outcomes)) <= 80
    assert len(show_worlds("guarded shorter_better", outcomes)) <= 80
