"""Two processes that share a model by FSDP or DeepSpeed: the same run as with a whole one each."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import launch
import pytest
import torch
from safetensors.torch import load_file

from crt.run import Run
from crt.sampling.models import load_model
from tests.support.trained import same

FSDP = ("--set", "trl.fsdp=true", "--set",
        'trl.fsdp_config={transformer_layer_cls_to_wrap=["LlamaDecoderLayer"]}')  # fmt: skip
AUTO = ", ".join(
    f'{name}="auto"'
    for name in
    ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
)  # fmt: skip
GATHER = "stage3_gather_16bit_weights_on_model_save=true"
IN_BFLOAT16 = ("--set", "model.dtype=bfloat16", "--set", "optim.learning_rate=1e-6",
               "--set", "schedule.steps=6")  # fmt: skip


@dataclass(frozen=True)
class Way:
    """How a model is shared: settings, what says that it is so, and the processes' environment."""

    words: tuple[str, ...]
    held: str
    environment: dict[str, str]

    def train(self, *words: str, **environment: str) -> str:
        done = launch.run("sharded", "train", *words, processes=2, **self.environment | environment)
        if "KILLED_AT" in environment:
            assert done.returncode != 0 and "SIGKILL" in done.stderr, done.stderr
        else:
            assert done.returncode == 0, done.stderr
            held = {line for line in done.stdout.splitlines() if line.startswith("held as")}
            assert held == {f"held as {self.held}, torch.float32"}
        return done.stdout


def zero(stage: int) -> tuple[str, ...]:
    return ("--set", f"trl.deepspeed={{zero_optimization={{stage={stage}, {GATHER}}}, {AUTO}}}")


@pytest.fixture(scope="module")
def deepspeed(tmp_path_factory) -> dict[str, str]:
    if not launch.DEEPSPEED.is_dir() or shutil.which("g++") is None:
        pytest.skip("make test-engines installs DeepSpeed, which needs a compiler (g++)")
    return launch.deepspeed_environment(tmp_path_factory.mktemp("extensions"))


@pytest.fixture(scope="module", params=["fsdp", "zero-2", "zero-3"])
def way(request) -> Way:
    if request.param == "fsdp":
        return Way(FSDP, "FSDP2, DTensor", {})
    environment = request.getfixturevalue("deepspeed")
    if request.param == "zero-2":
        return Way(zero(2), "ZeRO-2, whole", environment)
    return Way(zero(3), "ZeRO-3, shards", environment)


def whole_models(tiny: Path, run: Path, *words: str) -> Run:
    words = ("train", str(tiny / "recipe.toml"), "--out", str(run), *words)
    done = launch.run("crt", *words, processes=2)
    assert done.returncode == 0, done.stderr
    return Run.open(run)


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory) -> Run:
    return whole_models(tiny, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def sharded(way, tiny, tmp_path_factory) -> Run:
    path = tmp_path_factory.mktemp("sharded") / "run"
    way.train(str(tiny / "recipe.toml"), "--out", str(path), *way.words)
    return Run.open(path)


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
        folder, expected = sharded.checkpoint(step), whole.checkpoint(step)
        assert {path.name for path in folder.iterdir()} == {
            path.name for path in expected.iterdir()
        }
        weights = load_file(folder / "model.safetensors")
        for name, weight in load_file(expected / "model.safetensors").items():
            torch.testing.assert_close(weights[name], weight, rtol=0, atol=1e-5)
    one, two = load_model(str(folder)).model, load_model(str(expected)).model
    ids = torch.arange(1, 12)[None]
    with torch.no_grad():
        torch.testing.assert_close(one(ids).logits, two(ids).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("step", [4, 7])  # in Stage I and in Stage II, between two checkpoints
def test_killed_and_resumed_is_the_same_run(way, tiny, sharded, tmp_path, step):
    run = tmp_path / "killed"
    way.train(str(tiny / "recipe.toml"), "--out", str(run), *way.words, KILLED_AT=str(step))
    assert len(Run.open(run).steps) == step - 1
    way.train("--resume", str(run))
    same(sharded.path, run)


def test_in_bfloat16_trained_weights_are_float32(tiny, tmp_path):
    """FSDP's passes are made in bfloat16, and what samples is a copy in bfloat16."""
    whole = whole_models(tiny, tmp_path / "whole", *IN_BFLOAT16)
    way = Way((*FSDP, *IN_BFLOAT16), "FSDP2, DTensor", {})
    way.train(str(tiny / "recipe.toml"), "--out", str(tmp_path / "sharded"), *way.words)
    sharded = Run.open(tmp_path / "sharded")
    assert_rows_are_near(sharded, whole, 0.05)
    folder = sharded.checkpoint(6)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    before = load_file(tiny / "model" / "model.safetensors")
    after = load_file(folder / "model.safetensors")
    assert {weight.dtype for weight in after.values()} == {torch.float32}
    moved = sum(int((after[name] != before[name]).sum()) for name in before)
    assert moved / sum(weight.numel() for weight in before.values()) > 0.5
