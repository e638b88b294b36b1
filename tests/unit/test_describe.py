from pathlib import Path

import pytest

from crt.describe import amount, as_toml, digits, duration, what_would_run
from crt.recipes import load_recipe

ROOT = Path(__file__).parents[2] / "recipes"
RECIPES = sorted(path for path in ROOT.rglob("*.toml") if path.parent.name != "base")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_what_is_shown_loads_as_the_same_configuration(path, tmp_path):
    config = load_recipe(path)
    (tmp_path / "shown.toml").write_text(as_toml(config))
    (tmp_path / "config.json").write_text(config.model_dump_json())
    assert load_recipe(tmp_path / "shown.toml") == config
    assert load_recipe(tmp_path / "config.json") == config


def test_what_a_method_asks_for_besides_its_reward_is_shown():
    methods = ROOT / "methods"
    budget = " ".join(what_would_run(load_recipe(methods / "l1_max.toml")))
    assert "states a token budget (number)" in budget and "measured with 68" in budget
    offline = " ".join(what_would_run(load_recipe(methods / "o1_pruner_offline.toml")))
    assert "Offline" in offline and "estimator whitened" in offline


def test_three_significant_digits():
    assert [digits(n) for n in (0, 0.01234, 1.5, 64.64, 123.4, 1454.0)] == [
        "0", "0.0123", "1.50", "64.6", "123", "1,450",
    ]  # fmt: skip
    assert [amount(n) for n in (629_000, 1.4e6, 1.45e9)] == [
        "629,000", "1.40 million", "1.45 billion",
    ]  # fmt: skip
    assert [duration(h) for h in (2.5, 0.5, 0.001)] == ["2.50 h", "30.0 min", "3.60 s"]
