"""Trained weights are float32 whatever the model's dtype, and a checkpoint says how it is used."""

import json

import pytest
import torch
from safetensors.torch import load_file

from crt.recipes import load_recipe
from crt.run import Run
from crt.training.context import RunContext
from crt.training.trl.fit import load_to_train
from tests.support.trained import train

SMALL = ("--set", "model.dtype=bfloat16", "--set", "optim.learning_rate=1e-6",
         "--set", "schedule.steps=6")  # fmt: skip


@pytest.fixture(scope="module")
def in_bfloat16(tiny, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "bf16"
    done = train(tiny, run, words=SMALL)
    assert done.returncode == 0, done.stderr
    return run


def test_a_rate_of_a_millionth_moves_most_weights(tiny, in_bfloat16):
    """In bfloat16 a weight of 0.02 has neighbours at a distance of 1e-4: none would move."""
    before = load_file(tiny / "model" / "model.safetensors")
    after = load_file(Run.open(in_bfloat16).checkpoint(6) / "model.safetensors")
    assert {weight.dtype for weight in after.values()} == {torch.float32}
    started = {name: weight.bfloat16().float() for name, weight in before.items()}
    moved = sum(int((after[name] != before[name]).sum()) for name in before)
    rounded = sum(int((after[name].bfloat16().float() != started[name]).sum()) for name in before)
    total = sum(weight.numel() for weight in before.values())
    assert moved / total > 0.5
    assert rounded < moved / 4  # what a bfloat16 policy could have shown of it


def test_a_checkpoint_is_used_in_the_models_dtype(tiny, in_bfloat16, tmp_path):
    folder = Run.open(in_bfloat16).checkpoint(6)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    context = RunContext(Run.open(in_bfloat16).config, tmp_path)
    policy, _ = load_to_train(context, str(folder))
    context.close()
    assert context.load(str(folder)).model.dtype == torch.bfloat16
    assert context.base.model.dtype == torch.bfloat16  # the frozen reference
    exact = load_file(folder / "model.safetensors")
    for name, weight in policy.model.named_parameters():
        assert torch.equal(weight, exact[name]), "Stage II goes on from what was trained"


def test_adapters_are_float32_on_a_bfloat16_base(tiny, tmp_path):
    done = train(tiny, tmp_path / "run", words=(*SMALL, "--set", "model.lora.rank=4"))
    assert done.returncode == 0, done.stderr
    folder = Run.open(tmp_path / "run").checkpoint(6)
    adapter = load_file(folder / "adapter_model.safetensors")
    assert {weight.dtype for weight in adapter.values()} == {torch.float32}
    beginning_at_zero = [weight for name, weight in adapter.items() if "lora_B" in name]
    assert min(float((weight != 0).float().mean()) for weight in beginning_at_zero) > 0.5


def test_the_reference_may_be_sampled_at_the_cap_of_use(tiny, tmp_path):
    """At the cap of training whoever is cut off is wrong, and shortening alone gains accuracy."""
    accuracy = {}
    for cap in (4, 40):
        config = load_recipe(
            tiny / "recipe.toml", ["sampling.max_tokens=4", f"reference.max_tokens={cap}"]
        )
        context = RunContext(config, tmp_path)
        batch = context.reference(context.base)([p.id for p in context.problems[0]])
        context.close()
        accuracy[cap] = batch.accuracy
        assert batch.length.max() == cap
    assert accuracy[40] > accuracy[4] + 0.03


def test_checkpoints_may_be_measured_at_the_cap_of_use(tiny, tmp_path):
    config = load_recipe(tiny / "recipe.toml", ["validation.max_tokens=40"])
    context = RunContext(config, tmp_path)
    judged = context.on_validation(context.reference(context.base))
    policy = context.policy(context.base, sampling=context.validation_sampling)
    measured = context.measured(policy, 4, step=1)
    context.close()
    assert judged.length.max() > 10 < max(rollout.length for rollout in measured)
