from pathlib import Path

import pytest

from crt.describe import as_toml, what_would_run
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
