"""The worlds of a contract: what is sacrificed without a line, and kept with it."""

import json
from pathlib import Path

import contract
import numpy as np
import pytest

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "contract.json"
SEEDS = (0, 1)


def ends(promise: str, world: str, rule="multiplier") -> dict[str, float]:
    """Metric → mean change of two seeds."""
    [case] = [each for each in contract.CASES if (each.world, each.promise) == (world, promise)]
    runs = np.mean([contract.changes(case, seed, rule) for seed in SEEDS], axis=0)
    return {f"{m} {d}".strip(): run for (m, d), run in zip(case.watched, runs, strict=True)}


@pytest.mark.parametrize("rule", ["multiplier", "switch"])
def test_a_data_set_is_sacrificed_without_a_line_of_its_own(rule):
    alone, each = (ends(p, "two data sets", rule) for p in ("accuracy", "accuracy of each"))
    assert alone["accuracy proofs"] < -9 and alone["accuracy"] > -5
    assert each["accuracy proofs"] > -4 and each["accuracy sums"] > 5
    assert each["tokens"] < -50


@pytest.mark.parametrize("rule", ["multiplier", "switch"])
def test_accuracy_may_rise_while_pass_at_4_falls(rule):
    alone, both = (ends(p, "sure or lost", rule) for p in ("accuracy", "accuracy and pass@4"))
    assert alone["accuracy"] > 2 and alone["pass@4"] < -25
    assert both["pass@4"] > -3 and both["tokens"] < -45


def test_the_answer_keeps_its_length_while_thinking_gets_shorter():
    world, rule = "thinking and answer", "switch"
    alone = ends("accuracy", world, rule)
    line = ends("accuracy and answer", world, rule)
    cost = ends("accuracy; cost: thinking", world, rule)
    assert alone["answer"] < -45
    assert line["answer"] > -7 and line["thinking"] < -60
    assert cost["answer"] > -1 and cost["thinking"] < -60


def test_the_published_figures_are_of_these_cases():
    rows = json.loads(RESULTS.read_text())
    assert {(r["world"], r["promise"]) for r in rows} == {
        (case.world, case.promise) for case in contract.CASES
    }
    [row] = [r for r in rows if r["promise"] == "accuracy of each" and r["rule"] == "switch"
             and r["metric"] == "accuracy of proofs"]  # fmt: skip
    [case] = [each for each in contract.CASES if each.promise == row["promise"]]
    runs = [contract.changes(case, seed, "switch")[2] for seed in contract.SEEDS]
    assert row["mean"] == pytest.approx(np.mean(runs), abs=0.5)
