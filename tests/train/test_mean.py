"""The mean of the last checkpoints: its weights, where it stands, and that it may be chosen."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from trained import train

from crt.commands.train import recommendation
from crt.engines.models import load_model
from crt.errors import ConfigError
from crt.recipes import load_recipe
from crt.run import Run
from crt.train.mean import line_of, mean_of


def test_the_mean_is_taken_tensor_by_tensor_in_its_own_type(tmp_path):
    for i, (a, b) in enumerate([(1.0, 1.0), (2.0, 1.0), (6.0, 1.015625)]):
        weights = {"a": torch.full((2, 3), a), "b": torch.tensor([b], dtype=torch.bfloat16)}
        save_file(weights, tmp_path / f"{i}.safetensors")
    mean = mean_of(sorted(tmp_path.iterdir()))
    assert torch.equal(mean["a"], torch.full((2, 3), 3.0))
    # 1.0052 is summed in float32 and rounded once: bfloat16's neighbours are 1 and 1.0078
    assert mean["b"].dtype == torch.bfloat16 and mean["b"].item() == 1.0078125


@pytest.fixture(scope="module")
def run(tiny, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("mean") / "run"
    done = train(tiny, folder)
    assert done.returncode == 0, done.stderr
    assert "Measuring the mean of steps" in done.stdout  # nothing else is seen meanwhile
    assert "again on 4 problems × 3." in done.stdout
    return Run.open(folder)


def test_a_run_ends_with_the_mean_of_its_last_checkpoints(run):
    *others, last = run.checkpoints
    record = run.checkpoints[last]
    assert last == others[-1] + 1 == run.steps[-1]["step"] + 1
    assert record["mean_of"] == line_of(run)[-3:] and record["stage"] == 2
    assert record["margin"] is not None and record["rollouts"] in (2, 3)
    mean = load_file(run.checkpoint(last) / "model.safetensors")
    parts = [load_file(run.checkpoint(s) / "model.safetensors") for s in record["mean_of"]]
    for name, value in mean.items():
        torch.testing.assert_close(value, sum(part[name] for part in parts) / 3)
    load_model(str(run.checkpoint(last)), dtype="float32")


def test_what_did_not_lead_to_the_last_checkpoint_is_not_in_it(run):
    progress = run.progress
    run.set_progress(stage_one_ended=4, stage_two_from=2)
    try:
        assert line_of(run) == [2, 6, 8]
    finally:
        run.set_progress(**progress)


def test_it_is_said_when_it_is_the_one_to_use(run):
    last, progress = max(run.checkpoints), run.progress
    run.set_progress(recommended=last, feasible=True)
    try:
        said = ", ".join(map(str, run.checkpoints[last]["mean_of"]))
        assert f"step-{last:04d}, the mean of steps {said}." in recommendation(run)
    finally:
        run.set_progress(**progress)


def test_without_the_setting_there_is_none(tiny, tmp_path):
    changes = ("--set", "validation.mean_of=0", "--set", "schedule.steps=4")
    assert train(tiny, tmp_path / "run", words=changes).returncode == 0
    records = Run.open(tmp_path / "run").checkpoints.values()
    assert records and all("mean_of" not in record for record in records)


def test_an_adapter_has_no_mean(tiny):
    with pytest.raises(ConfigError, match=r"validation\.mean_of needs whole models"):
        load_recipe(tiny / "recipe.toml", ["model.lora={}"])
