"""A run under a contract: its rows, its checkpoints, killed and resumed."""

from pathlib import Path

import pytest

from crt.run import Run
from tests.support.trained import rows, same, train

CONTRACT = """
[contract]
cost = "{own}:words"
[[contract.lines]]
metric = "accuracy"
at_least = "reference"
data = "data"
[[contract.lines]]
metric = "pass@2"
at_least = "reference"
tolerance = 0.1
[[contract.lines]]
metric = "format"
at_most = 1
[[contract.lines]]
metric = "tokens"
at_most = "1.5 * reference"
"""


@pytest.fixture(scope="module")
def recipe(tiny, tmp_path_factory) -> Path:
    own = tmp_path_factory.mktemp("own") / "own.py"
    own.write_text("def words(rollout):\n    return len(rollout.text.split())\n")
    text = (tiny / "recipe.toml").read_text() + CONTRACT.format(own=own)
    path = tiny / "contract.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "whole"
    done = train(recipe.parent, run, recipe=recipe.name)
    assert done.returncode == 0, done.stderr
    return run


def test_every_line_is_in_every_row_and_record(whole):
    run = Run.open(whole)
    names = {line.name for line in run.config.contract.promises}
    for row in rows(whole):
        assert set(row["lines"]) == names
        texts = [rollout["text"].split() for rollout in run.rollouts(row["step"])]
        assert row["cost"] == pytest.approx(sum(map(len, texts)) / len(texts))
        assert row["cost"] < row["tokens"]  # the end of a response is a token and no word
    assert {row["stage"] for row in rows(whole)} == {1, 2}
    for record in run.checkpoints.values():
        assert set(record["lines"]) == names and record["cost"] < record["tokens"]


@pytest.mark.parametrize("step", [3, 7])  # in both stages
def test_killed_and_resumed_it_is_the_same_run(recipe, whole, step, tmp_path):
    run = tmp_path / "killed"
    assert train(recipe.parent, run, "before the row", step, recipe=recipe.name).returncode == -9
    assert train(recipe.parent, run, recipe=recipe.name).returncode == 0
    same(run, whole)
