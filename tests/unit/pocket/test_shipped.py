"""The shipped model is the documented one: its files, its size, its accuracy and its length."""

import json
from pathlib import Path

import pytest
import torch

from crt.pocket import load, path
from crt.pocket.problems import problems
from tools.pocket.build import FIGURES, HASHES, hashes
from tools.pocket.card import render
from tools.pocket.everyday import everyday
from tools.pocket.measure import mean
from tools.pocket.rollouts import is_correct, sample_rollouts

EVERYDAY = Path(__file__).parent / "everyday"
FIGURE = json.loads((path() / FIGURES).read_text())


@pytest.fixture(scope="module")
def shipped():
    return load(path())


def test_files_match_their_hashes():
    assert hashes(path()) == json.loads((path() / HASHES).read_text())


def test_the_card_tells_the_measured_figures():
    assert (path() / "README.md").read_text() == render(FIGURE)


def test_it_is_a_miniature_in_a_standard_architecture(shipped):
    model, _ = shipped
    assert model.config.model_type == "llama"
    assert model.num_parameters() == FIGURE["parameters"] <= 2_000_000
    assert (path() / "model.safetensors").stat().st_size < 8_000_000


def test_accuracy_and_length_lie_in_the_documented_intervals(shipped):
    check = FIGURE["check"]
    items = problems("test", check["problems"], seed=1000)
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


def test_short_everywhere_loses_and_problems_need_different_lengths():
    base = FIGURE["free"]["accuracy"]
    assert all(FIGURE["styles"][style]["accuracy"] < base - 8 for style in ("guess", "head"))
    chosen = FIGURE["best_at_base"]["shares"].values()
    assert len({max(shares, key=shares.get) for shares in chosen}) > 1


@pytest.mark.parametrize("name", ["tune", "final"])
def test_everyday_questions_that_nobody_wrote_for_it(shipped, name):
    counts = everyday(*shipped, EVERYDAY / f"{name}.tsv")
    assert counts["right"] >= 0.8 * counts.total()
    assert counts["wrong"] <= 0.05 * counts.total()
