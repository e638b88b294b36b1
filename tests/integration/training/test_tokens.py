"""A run that ends when its policy has generated so many tokens."""

import json
from pathlib import Path

import pytest

from crt.cli import main
from crt.run import Run
from crt.training.stage import Budget, generated
from tests.support.trained import rows, train

TOKENS = 500  # a step of the tiny model is 16 responses of at most 10 tokens
RECIPE = "tokens.toml"


@pytest.fixture(scope="module")
def recipe(tiny) -> Path:
    path = tiny / RECIPE
    text = (tiny / "recipe.toml").read_text().replace("steps = 8", f"steps = 40\ntokens = {TOKENS}")
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "whole"
    done = train(recipe.parent, run, recipe=RECIPE)
    assert done.returncode == 0, done.stderr
    return run


def test_a_share_counts_what_earlier_stages_used():
    done = [{"step": 1, "generated_tokens": 30}, {"step": 2, "generated_tokens": 20}]
    assert Budget(100).share(done) == 0.5
    # 30 were used up to step 1, and this stage's row adds 20
    assert Budget.after(100, done, step=1).share(done[1:]) == 0.5
    assert not Budget(100).spent(done) and Budget(50).spent(done)
    assert Budget(None).share(done) == 0.0


def test_the_run_ends_with_the_step_that_uses_the_last_token(whole):
    steps = Run.open(whole).steps
    assert generated(steps) >= TOKENS > generated(steps[:-1])
    assert len(steps) < 40
    assert Run.open(whole).progress["finished"]
    assert max(Run.open(whole).checkpoints) == len(steps)  # the last iterate is kept


def test_generated_counts_every_response(whole):
    run = Run.open(whole)
    for row in run.steps:
        assert row["generated_tokens"] == sum(r["tokens"] for r in run.rollouts(row["step"]))


def test_the_second_stage_begins_at_its_share_of_the_tokens(whole):
    steps = Run.open(whole).steps
    first = [row for row in steps if row["stage"] == 1]
    # saturation.latest = 0.5: half of the tokens, long before half of the 40 steps
    assert len(first) < 20 and len(first) < len(steps)
    assert generated(first[:-1]) < 0.5 * TOKENS


def test_killed_and_resumed_uses_the_same_tokens(whole, recipe, tmp_path):
    run = tmp_path / "killed"
    last = len(Run.open(whole).steps)
    assert train(recipe.parent, run, "before the row", last, RECIPE).returncode == -9
    assert train(recipe.parent, run, recipe=RECIPE).returncode == 0
    assert rows(run) == rows(whole)
    assert Run.open(run).progress == Run.open(whole).progress


def test_killed_after_the_last_checkpoint_does_not_train_on(recipe, tmp_path):
    run = tmp_path / "copy"
    assert train(recipe.parent, run, recipe=RECIPE).returncode == 0
    noted = Run.open(run).progress
    kept = {name: noted[name] for name in ("stage_one_ended", "stage_two_from")}
    (run / "progress.json").write_text(json.dumps(kept))
    before = (run / "steps.jsonl").read_bytes()
    assert main(["train", "--resume", str(run)]) == 0
    assert (run / "steps.jsonl").read_bytes() == before


def test_show_says_when_it_ends(recipe, capsys):
    assert main(["show", str(recipe)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "ends sooner when the policy has generated 500 tokens" in printed
    assert "Stage I has at most 20 steps or 50% of the tokens" in printed
