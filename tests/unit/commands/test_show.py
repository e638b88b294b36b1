import json
from pathlib import Path

from crt.cli import main

RECIPE = str(Path(__file__).parents[3] / "recipes" / "pocket.toml")


def test_shows_the_resolved_configuration_and_what_would_run(capsys):
    assert main(["show", RECIPE]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert 'estimator = "group_std"' in shown  # a default the recipe does not name
    assert "16 problems × 8 rollouts = 128 responses" in shown
    assert "From the shortest plausible checkpoint of Stage I" in shown
    assert main(["show", RECIPE, "--set", "method.start=feasible"]) == 0
    again = " ".join(capsys.readouterr().out.split())
    assert "From the shortest feasible checkpoint" in again


def test_json_is_the_configuration_alone(capsys):
    assert main(["show", RECIPE, "--json", "--set", "seed=7"]) == 0
    assert json.loads(capsys.readouterr().out)["seed"] == 7


def test_an_unknown_key_says_the_nearest(capsys):
    assert main(["show", RECIPE, "--set", "optim.learningrate=1"]) == 2
    assert "Did you mean `learning_rate`?" in capsys.readouterr().err


def test_what_would_go_wrong_is_seen_before_anything_runs(capsys):
    assert main(["show", RECIPE]) == 0
    assert "Note:" not in capsys.readouterr().out
    changes = ["data.train=['nosuch.jsonl:20']", "prompt.instruction='{question} Only a number.'"]
    assert main(["show", RECIPE, *(word for change in changes for word in ("--set", change))]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Note: nosuch.jsonl does not exist." in shown
    assert "Note: the verifier math looks into \\boxed{}, and the prompt does not ask" in shown
    assert main(["show", RECIPE, "--set", changes[1], "--set", "grading.verifier=number"]) == 0
    assert "Note:" not in capsys.readouterr().out
