"""The last checkpoint of a stage is the mean of its last few."""

import pytest
import torch
from safetensors.torch import load_file

from crt.run import Run
from tests.support.trained import same, train, weights

AVERAGE = ("save_every = 2", "save_every = 2\naverage = 2")


@pytest.fixture(scope="module")
def averaging(tiny):
    text = (tiny / "recipe.toml").read_text()
    (tiny / "averaging.toml").write_text(text.replace(*AVERAGE))
    return tiny


@pytest.fixture(scope="module")
def whole(averaging, tmp_path_factory):
    run = tmp_path_factory.mktemp("averaged") / "whole"
    done = train(averaging, run, recipe="averaging.toml")
    assert done.returncode == 0, done.stderr
    assert "Averaging the weights of steps" in done.stdout
    return run


def test_a_stages_last_checkpoint_is_the_mean_of_its_last_two(whole):
    run = Run.open(whole)
    ends = (run.progress["stage_one_ended"], 8)
    for stage, end in enumerate(ends, 1):
        steps = run.checkpoints[end]["mean_of"]
        assert steps[-1] == end and len(steps) == 2
        first = run.progress["stage_one_ended"] if stage == 2 else 0
        saved = whole / f"state/stage{stage}/checkpoint-{end - first}/model.safetensors"
        trained, before = load_file(saved), weights(whole, steps[0])
        for name, mean in weights(whole, end).items():
            assert torch.allclose(mean, (trained[name] + before[name]) / 2, atol=1e-7)
    assert not any("mean_of" in r for step, r in run.checkpoints.items() if step not in ends)


def test_stage_two_starts_from_what_was_measured(whole):
    """Not from the weights that the optimiser left, if the mean is chosen."""
    run = Run.open(whole)
    record = run.checkpoints[run.progress["stage_two_from"]]
    assert record["final"] and record["stage"] == 1


@pytest.mark.parametrize(
    "moment", ["in the middle of a checkpoint", "between the old checkpoint and the mean"]
)
def test_killed_while_the_mean_takes_its_place(whole, averaging, tmp_path, moment):
    run = tmp_path / "killed"
    assert train(averaging, run, moment, 8, "averaging.toml").returncode == -9
    assert train(averaging, run).returncode == 0
    same(whole, run)
    assert not list((run / "checkpoints").glob(".*"))
