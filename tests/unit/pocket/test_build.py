"""A build that is cut off and goes on ends with the same weights as one that was not."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from crt.errors import ConfigError
from tools.pocket import build, chunks, default, model, polish, rollouts, sums, supervised
from tools.pocket.build import Clock, Stopped
from tools.pocket.vocabulary import train, wrap
from tools.pocket.worlds import Plan, Shape, World

PLAN = Plan(supervised=3, second=2, polish=2, problems=4, copies=1)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Batches of a few answers, cut short, so that a build takes seconds."""
    monkeypatch.setattr(supervised, "BATCH", 4)
    monkeypatch.setattr(sums, "BATCH", 4)
    monkeypatch.setattr(polish, "PROBLEMS", 2)
    monkeypatch.setattr(polish, "NUM_SAMPLES", 2)
    monkeypatch.setattr(rollouts, "CAP", 8)
    monkeypatch.setattr(build, "CORPUS", 200)


class Impatient(Clock):
    """A clock whose sitting is over after a number of steps."""

    steps_left = 10**6

    def over(self) -> bool:
        self.steps_left -= 1
        return self.steps_left < 0


def sitting(out: Path, steps: int = 10**6, world: World = default.WORLD) -> None:
    clock = Impatient(lambda line: None, None)
    clock.steps_left = steps
    build.build(world, out, 5, PLAN, clock)


@pytest.mark.parametrize("world", [default.WORLD, chunks.WORLD], ids=["pocket", "chunks"])
def test_cut_off_and_resumed_ends_with_the_same_weights(tmp_path, world):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    sitting(whole, world=world)
    sittings = 1
    while True:
        try:
            sitting(parts, steps=0, world=world)
            break
        except Stopped:
            sittings += 1
    assert sittings == 5  # a stop after each step but the last one of a phase
    expected = load_file(whole / "model.safetensors")
    found = load_file(parts / "model.safetensors")
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert (whole / "figures.json").read_text() == (parts / "figures.json").read_text()


def test_another_seed_does_not_go_on_with_this_build(tmp_path):
    with pytest.raises(Stopped):
        sitting(tmp_path, steps=0)
    with pytest.raises(ConfigError, match="seed 5, not 6"):
        build.build(default.WORLD, tmp_path, 6, PLAN, Clock(lambda line: None, None))


def test_another_world_does_not_go_on_with_this_build(tmp_path):
    with pytest.raises(Stopped):
        sitting(tmp_path, steps=0)
    with pytest.raises(ConfigError, match="world pocket, not pocket:chunks"):
        build.build(chunks.WORLD, tmp_path, 5, PLAN, Clock(lambda line: None, None))


def test_the_clock_says_how_long_it_will_take(monkeypatch):
    now = iter([0.0, 0.0, 60.0])
    monkeypatch.setattr(build.time, "monotonic", lambda: next(now))
    said: list[str] = []
    clock = Clock(said.append, None, every=1)
    clock.begin("supervised", 10, 20)
    clock.tick(11, "loss 1")  # two steps in a minute, eight to go
    assert said == ["supervised 12/20: loss 1, 4 min left"]


def test_advantages_are_standardised_within_the_group():
    # mean 0.25, spread √(0.25 · 0.75) = 0.433
    assert polish.advantages([True, False, False, False]) == pytest.approx(
        [1.732, -0.577, -0.577, -0.577], abs=1e-3
    )
    assert polish.advantages([True, True]) == [0.0, 0.0]


def test_written_as_a_llama_it_computes_the_same():
    net = model.fresh(100, 0, 1, 0, Shape(64, 2, 2)).eval()
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if name.endswith("bias"):
                weight.normal_()  # fresh biases are zero, trained ones are not
        ids = torch.arange(2, 40)[None]
        expected = net(input_ids=ids).logits
        written = model.as_llama(net, "pocket:chunks")
        torch.testing.assert_close(written(input_ids=ids).logits, expected)
    assert written.config.pocket_world == "pocket:chunks"


def test_what_a_trained_model_knows_is_taken_over():
    shape = Shape(64, 1, 2)
    old = wrap(train(["one two"], 150))
    new = wrap(train(["three two one zero"], 170))
    trained = model.fresh(len(old), 0, 1, 0, shape)
    net = model.fresh(len(new), 0, 1, 1, shape)
    before = net.model.embed_tokens.weight.clone()
    model.transplant(net, new, trained, old)
    at, known = new.get_vocab(), old.get_vocab()
    vectors, expected = net.model.embed_tokens.weight, trained.model.embed_tokens.weight
    assert torch.equal(vectors[at[" two"]], expected[known[" two"]])
    assert torch.equal(vectors[at[" zero"]], before[at[" zero"]])
    layer, like = net.model.layers[0], trained.model.layers[0]
    assert torch.equal(layer.mlp.up_proj.weight, like.mlp.up_proj.weight)
