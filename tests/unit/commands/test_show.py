import json
from pathlib import Path

from crt.cli import main

RECIPE = str(Path(__file__).parents[3] / "recipes" / "pocket.toml")


def test_shows_the_resolved_configuration_and_what_would_run(capsys):
    assert main(["show", RECIPE]) == 0
    shown = " ".join(capsys.readouterr().out.split())  # lines are broken anywhere
    assert 'estimator = "group_std"' in shown  # a default the recipe does not name
    assert "16 problems × 8 rollouts = 128 responses" in shown
    assert "From the shortest plausible checkpoint of Stage I" in shown
    assert main(["show", RECIPE, "--set", "method.start=feasible"]) == 0
    assert "From the shortest feasible checkpoint" in " ".join(capsys.readouterr().out.split())


def test_json_is_the_configuration_alone(capsys):
    assert main(["show", RECIPE, "--json", "--set", "seed=7"]) == 0
    assert json.loads(capsys.readouterr().out)["seed"] == 7


def test_an_unknown_key_says_the_nearest(capsys):
    assert main(["show", RECIPE, "--set", "optim.learningrate=1"]) == 2
    assert "Did you mean `learning_rate`?" in capsys.readouterr().err
