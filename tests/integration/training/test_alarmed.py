"""Training that goes wrong for real: it stops, says why, and leaves everything whole."""

import json
from pathlib import Path

import pytest

from crt.run import Run
from tests.support.tiny_model import make_inclined
from tests.support.trained import Done, rows, train

RECIPE = """
name = "alarmed"
seed = {seed}
model = {{ name = "{model}", dtype = "float32" }}
prompt.instruction = "{{question}}"
data.train = ["{data}"]
method.type = "{method}"
schedule = {{ steps = 60, problems_per_step = 4, save_every = 2 }}
sampling = {{ group_size = 4, max_tokens = {cap} }}
reference.rollouts = 4
validation = {{ problems = 4, rollouts = 1, final_rollouts = 0 }}
preflight.max_truncated = 1.0
grading = {{ workers = 1, truncated = "grade" }}
optim = {{ learning_rate = {rate}, kl = {kl} }}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """One that talks on and on, one that is mostly right, one that knows but two words."""
    folder = tmp_path_factory.mktemp("models")
    make_inclined(folder / "talks", end=-2.0)
    make_inclined(folder / "right", zero=3.0, end=2.0)
    make_inclined(folder / "sure", zero=150.0, end=150.0)
    return folder


def alarmed(
    folder: Path,
    model: Path,
    answers: list[str],
    moment: str = "never",
    at: int = 4,
    **set_: object,
) -> Done:
    """The run, and how it ended."""
    data = folder / "data.jsonl"
    rows = [{"id": f"q{i}", "question": f"red {i}", "answer": a} for i, a in enumerate(answers)]
    data.write_text("\n".join(map(json.dumps, rows)))
    settings = {"seed": 5, "method": "crt_1s", "cap": 8, "rate": 1e-3, "kl": 0.0} | set_
    (folder / "r.toml").write_text(RECIPE.format(model=model, data=data, **settings))
    return train(folder, folder / "run", moment, at, recipe="r.toml")


def stopped(folder: Path, done: Done, *words: str) -> Run:
    """One sentence, exit code 2, and a directory in which everything is whole."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("crt train: training was stopped: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    run = Run.open(folder / "run")
    assert run.progress["stopped"] in done.stderr and not run.progress.get("finished")
    assert [row["step"] for row in run.steps] == list(range(1, len(run.steps) + 1))
    for step in range(1, len(run.steps) + 1):
        assert len(run.rollouts(step)) == 16
    good = [step for step, record in run.checkpoints.items() if record["feasible"]]
    named = f"The last feasible checkpoint is {run.checkpoint(good[-1])}." if good else "No check"
    assert named in done.stderr
    return run


def again(folder: Path, run: Run) -> None:
    """Resumed, the same happens from the last state on: nothing is lost, nothing is doubled."""
    before, sentence = rows(folder / "run"), run.progress["stopped"]
    assert train(folder, folder / "run").returncode == 2
    assert rows(folder / "run") == before
    assert Run.open(folder / "run").progress["stopped"] == sentence


def test_a_learning_rate_that_breaks_the_numbers(models, tmp_path):
    done = alarmed(tmp_path, models / "right", ["0"] * 12, rate=1e30)
    run = stopped(tmp_path, done, "learning rate is probably too high", "optim.learning_rate")
    assert len(run.steps) <= 2 and not run.checkpoints  # nothing broken was saved


def test_weights_that_turn_into_nan_are_not_saved(models, tmp_path):
    done = alarmed(tmp_path, models / "right", ["0"] * 12, "weights break after the update")
    run = stopped(tmp_path, done, "lm_head.weight is not finite after step 4")
    assert list(run.checkpoints) == [2]
    again_without(tmp_path, run)


def test_a_policy_that_says_anything(models, tmp_path):
    """Without probabilities all say the same, no group has anything to learn, and no loss tells."""
    done = alarmed(tmp_path, models / "right", ["0"] * 12, "weights break after the update", 5)
    run = stopped(tmp_path, done, "probabilities are no numbers at step 6", "learning rate")
    assert len(run.steps) == 5 and list(run.checkpoints) == [2, 4]
    assert len({record["text"] for record in run.rollouts(6)}) == 1
    again_without(tmp_path, run)


def again_without(folder: Path, run: Run) -> None:
    """What broke it is gone: resumed from the last whole state, it goes on."""
    done = train(folder, folder / "run", "terminate", 6)
    assert done.returncode == 143
    assert len(rows(folder / "run")) == 6 and Run.open(folder / "run").progress["stopped"] is None


def test_length_alone_collapses_to_empty_answers(models, tmp_path):
    answers = ["0", "1", "2"] * 4
    settings = {"method": "length_only", "cap": 80, "rate": 0.1}
    done = alarmed(tmp_path, models / "talks", answers, **settings)
    run = stopped(tmp_path, done, "collapsed to bare or empty answers", "a method with a guard")
    assert run.steps[-1]["tokens"] < 0.05 * run.steps[-1]["reference_tokens"]
    again(tmp_path, run)


def test_bare_answers_that_are_wrong(models, tmp_path):
    """The reference talks for dozens of words and says \\boxed{1} now and then."""
    settings = {"method": "length_only", "cap": 80}
    moment = "answers turn bare after the update"
    done = alarmed(tmp_path, models / "talks", ["1"] * 12, moment, **settings)
    run = stopped(tmp_path, done, "collapsed to bare or empty answers", "a method with a guard")
    texts = [record["text"] for record in run.rollouts(len(run.steps))]
    assert any("boxed" in text for text in texts) and max(len(t.split()) for t in texts) < 20


def test_accuracy_far_below_the_floor_for_long(models, tmp_path):
    done = alarmed(tmp_path, models / "right", ["0"] * 12, seed=6, rate=10.0)
    run = stopped(tmp_path, done, "under the floor for 30 steps", "Lower optim.learning_rate")
    assert all(row["accuracy"] < 0.5 for row in run.steps[-30:])


def test_a_policy_that_runs_away(models, tmp_path):
    """Half of what it says is a word that the reference gives a probability of e⁻¹⁵⁰."""
    settings = {"method": "length_only", "kl": 0.01}
    done = alarmed(
        tmp_path, models / "sure", ["0"] * 12, "weights jump after the update", **settings
    )
    run = stopped(tmp_path, done, "the policy has run away", "raise optim.kl")
    assert len(run.steps) == 5 and run.steps[-1]["kl"] > 50


def test_answers_that_cannot_be_graded(models, tmp_path):
    """Gold answers of the training data are damaged."""
    done = alarmed(tmp_path, models / "right", ["0"] * 10 + ["\\frac{"] * 6)
    run = stopped(tmp_path, done, "could not be graded", "the limit is 2%", "step-0001.jsonl.zst")
    assert "ungraded" in {record["verdict"] for record in run.rollouts(len(run.steps) + 1)}
