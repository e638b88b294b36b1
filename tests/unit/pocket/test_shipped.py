"""The shipped model is the documented one: its files, its size, its accuracy and its length."""

import json
from pathlib import Path

import pytest
import torch

from crt.pocket import DEFAULT, WORLDS, load, make_problems, path, world_of
from tools.pocket.build import FIGURES, HASHES, hashes
from tools.pocket.card import render
from tools.pocket.everyday import everyday
from tools.pocket.measure import mean
from tools.pocket.rollouts import is_correct, sample_rollouts

SHIPPED = [world for world in WORLDS if (path(world) / FIGURES).is_file()]
EVERYDAY = Path(__file__).parent / "everyday"
FIGURE = json.loads((path() / FIGURES).read_text())


@pytest.fixture(scope="module", params=SHIPPED)
def world(request):
    return request.param


@pytest.fixture(scope="module")
def figures(world):
    return json.loads((path(world) / FIGURES).read_text())


@pytest.fixture(scope="module")
def shipped(world):
    return load(path(world))


def test_the_default_world_is_in_the_package():
    assert DEFAULT in SHIPPED


def test_files_match_their_hashes(world):
    assert hashes(path(world)) == json.loads((path(world) / HASHES).read_text())


def test_the_card_tells_the_measured_figures(world, figures):
    assert (path(world) / "README.md").read_text() == render(figures)


def test_it_is_a_miniature_in_a_standard_architecture(world, figures, shipped):
    model, _ = shipped
    assert model.config.model_type == "llama"
    assert model.num_parameters() == figures["parameters"] <= 2_000_000
    assert (path(world) / "model.safetensors").stat().st_size < 8_000_000
    assert world_of(path(world)) == world


def test_accuracy_and_length_lie_in_the_documented_intervals(world, figures, shipped):
    check = figures["check"]
    items = make_problems(world, "test", check["problems"], 1000)
    generator = torch.Generator().manual_seed(1000)
    rollouts = sample_rollouts(*shipped, items, 1, generator).rollouts
    low, high = check["accuracy"]
    assert low <= 100 * mean(map(is_correct, rollouts)) <= high
    short, long = check["length"]
    assert short <= mean(rollout.length for rollout in rollouts) <= long


def test_the_trade_off_is_there():
    right = {style: row["accuracy"] for style, row in FIGURE["styles"].items()}
    length = {style: row["length"] for style, row in FIGURE["styles"].items()}
    assert right["guess"] < right["head"] < right["steps"] < right["broken"]
    assert length["guess"] < length["head"] < length["steps"] < length["broken"]
    assert length["broken"] * 2 < length["redundant"]
    assert right["redundant"] - right["broken"] < 5  # redundancy buys nothing
    assert 75 <= FIGURE["free"]["accuracy"] <= 92
    assert FIGURE["best_at_base"]["length"] * 2 <= FIGURE["free"]["length"]


@pytest.mark.parametrize("world", [name for name in SHIPPED if name != DEFAULT])
def test_in_the_other_worlds_going_short_everywhere_costs_accuracy(world):
    measured = json.loads((path(world) / FIGURES).read_text())
    base, best = measured["free"], measured["best_at_base"]
    assert 70 <= base["accuracy"] <= 92
    assert base["accuracy"] - measured["front"][0]["accuracy"] >= 8
    assert best["length"] < base["length"]
    assert len({tuple(shares) for shares in best["shares"].values()}) > 1  # not one way for all


def test_short_everywhere_loses_and_problems_need_different_lengths():
    base = FIGURE["free"]["accuracy"]
    assert all(FIGURE["styles"][style]["accuracy"] < base - 8 for style in ("guess", "head"))
    chosen = FIGURE["best_at_base"]["shares"].values()
    assert len({max(shares, key=shares.get) for shares in chosen}) > 1


@pytest.mark.parametrize("name", ["tune", "final"])
def test_everyday_questions_that_nobody_wrote_for_it(name):
    counts = everyday(*load(path()), EVERYDAY / f"{name}.tsv")
    assert counts["right"] >= 0.8 * counts.total()
    assert counts["wrong"] <= 0.05 * counts.total()
