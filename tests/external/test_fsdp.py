"""FSDP over gloo, two processes: the same run as two processes with a whole model each."""

import json
from pathlib import Path

import launch
import pytest
import torch
from safetensors.torch import load_file
from trained import same

from crt.engines.models import load_model
from crt.run import Run

SHARDED = ("--set", "trl.fsdp=true", "--set",
           'trl.fsdp_config={transformer_layer_cls_to_wrap=["LlamaDecoderLayer"]}')  # fmt: skip
IN_BFLOAT16 = ("--set", "model.dtype=bfloat16", "--set", "optim.learning_rate=1e-6",
               "--set", "schedule.steps=6")  # fmt: skip


def trained(module: str, tiny: Path, run: Path, *words: str) -> Run:
    words = ("train", str(tiny / "recipe.toml"), "--out", str(run), *words)
    done = launch.run(module, *words, processes=2)
    assert done.returncode == 0, done.stderr
    if module == "sharded":
        held = [line for line in done.stdout.splitlines() if line.startswith("held as")]
        assert set(held) == {"held as 2 DTensor torch.float32"}
    return Run.open(run)


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory) -> Run:
    return trained("crt", tiny, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def sharded(tiny, tmp_path_factory) -> Run:
    return trained("sharded", tiny, tmp_path_factory.mktemp("sharded") / "run", *SHARDED)


def assert_rows_are_near(run: Run, other: Run, relative: float) -> None:
    """Decisions and rollouts are equal, what is computed from gradients nearly."""
    assert len(run.steps) == len(other.steps)
    for one, two in zip(run.steps, other.steps, strict=True):
        assert run.rollouts(one["step"]) == other.rollouts(two["step"])
        assert one.keys() == two.keys()
        for name in one.keys() - {"seconds", "checksum"}:
            near = one[name] == two[name] or pytest.approx(two[name], relative, 1e-6) == one[name]
            assert near, f"{name} of step {one['step']}: {one[name]}, {two[name]}"


def test_the_rows_are_those_of_whole_models(whole, sharded):
    assert {row["stage"] for row in sharded.steps} == {1, 2}
    assert_rows_are_near(sharded, whole, 1e-4)


def test_checkpoints_are_whole_models(whole, sharded):
    assert list(sharded.checkpoints) == list(whole.checkpoints) == [2, 4, 6, 8]
    for step in sharded.checkpoints:
        weights = load_file(sharded.checkpoint(step) / "model.safetensors")
        for name, weight in load_file(whole.checkpoint(step) / "model.safetensors").items():
            torch.testing.assert_close(weights[name], weight, rtol=0, atol=1e-5)
    loaded = load_model(str(sharded.checkpoint(8))).model
    expected = load_model(str(whole.checkpoint(8))).model
    ids = torch.arange(1, 12)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, expected(ids).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("step", [4, 7])  # in Stage I and in Stage II, between two checkpoints
def test_killed_and_resumed_is_the_same_run(tiny, sharded, tmp_path, step):
    run = tmp_path / "killed"
    words = ("train", str(tiny / "recipe.toml"), "--out", str(run), *SHARDED)
    killed = launch.run("sharded", *words, processes=2, KILLED_AT=str(step))
    assert killed.returncode != 0 and "SIGKILL" in killed.stderr
    assert len(Run.open(run).steps) == step - 1
    resumed = launch.run("sharded", "train", "--resume", str(run), processes=2)
    assert resumed.returncode == 0, resumed.stderr
    same(sharded.path, run)


def test_in_bfloat16_trained_weights_are_float32(tiny, tmp_path):
    """Passes are made in bfloat16, and what samples is a copy in bfloat16."""
    whole = trained("crt", tiny, tmp_path / "whole", *IN_BFLOAT16)
    sharded = trained("sharded", tiny, tmp_path / "sharded", *IN_BFLOAT16, *SHARDED)
    assert_rows_are_near(sharded, whole, 0.05)
    folder = sharded.checkpoint(6)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    before, after = (
        load_file(tiny / "model" / "model.safetensors"),
        load_file(folder / "model.safetensors"),
    )
    assert {weight.dtype for weight in after.values()} == {torch.float32}
    moved = sum(int((after[name] != before[name]).sum()) for name in before)
    assert moved / sum(weight.numel() for weight in before.values()) > 0.5
