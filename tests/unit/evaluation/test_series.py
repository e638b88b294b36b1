"""A run's checkpoints, all on the same problems and seeds."""

import argparse
import json
import shutil

import pytest

from crt.commands import eval as command
from crt.errors import ConfigError, DataError
from crt.evaluation import load_all
from crt.evaluation.evaluator import Plan
from crt.evaluation.series import evaluate_run, is_run, points, run_of
from crt.recipes import config_of
from crt.run import Run

CONFIG = {
    "name": "small",
    "data": {"train": ["gsm8k"]},
    "method": {"type": "crt"},
    "schedule": {"steps": 20},
    "evaluation": {"rollouts": 2, "max_tokens": 24},
}


@pytest.fixture
def run(tiny, make_model, tmp_path):
    """A run with two checkpoints: one is the base itself, one has other weights."""
    found = Run.create(tmp_path / "run", config_of({**CONFIG, "model": {"name": str(tiny)}}))
    shutil.copytree(tiny, found.checkpoint(2))
    make_model(found.checkpoint(10), seed=1)
    for step in (2, 10):
        (found.checkpoint(step) / "record.json").write_text(json.dumps({"step": step}))
    shutil.copytree(tiny, found.checkpoint(20))  # no record: it is still being written
    return found.path


def test_base_and_checkpoints_by_step(run, tiny):
    found = points(Run.open(run))
    assert [(p.name, p.step) for p in found] == [("base", 0), ("step-0002", 2), ("step-0010", 10)]
    assert found[0].model == str(tiny)
    assert is_run(run) and run_of(run / "checkpoints/step-0002") == run
    assert not is_run(tiny) and run_of(tiny) is None


def test_a_run_without_checkpoints(run):
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    with pytest.raises(DataError, match="has no finished checkpoint"):
        points(Run.open(run))


def test_the_series_of_a_run(run, problems):
    config = Run.open(run).config
    settings = config.evaluation.model_copy(update={"data": (str(problems),)})
    folder, found = evaluate_run(run, Plan(config.model, settings))
    assert folder == run / "evaluations/sums"
    base, same, other = (list(each.rollouts()) for each in found)
    # the checkpoint with the base's weights says the same: same problems, same seeds
    assert [r.text for r in same] == [r.text for r in base]
    assert [r.text for r in other] != [r.text for r in base]
    series = json.loads((folder / "series.json").read_text())
    assert [(p["name"], p["step"]) for p in series["points"]] == [
        ("base", 0),
        ("step-0002", 2),
        ("step-0010", 10),
    ]
    first, second, _ = series["points"]
    assert first["versus"] is None
    assert second["versus"]["sets"]["sums"]["changes"]["len"] == {
        "value": 0.0,
        "low": 0.0,
        "high": 0.0,
        "problems": 6,
    }
    assert first["sets"]["sums"]["len"]["value"] == pytest.approx(
        sum(record.length for record in base) / 12
    )
    assert [each.name for each in load_all([str(folder)])] == ["base", "step-0002", "step-0010"]


def test_the_command_and_a_checkpoint_that_came_later(run, problems, capsys):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = [str(run), "--all-checkpoints", "--data", str(problems), "--name", "quick"]
    assert command.run(parser.parse_args(words)) == 0
    told = capsys.readouterr()
    assert "step-0010" in told.out and "Against the base" in told.out
    assert f"those of {run}/config.json" in told.err
    manifest = json.loads((run / "evaluations/quick/base/manifest.json").read_text())
    assert manifest["sampling"]["rollouts"] == 2  # the run's own setting
    before = (run / "evaluations/quick/step-0010/manifest.json").read_bytes()
    (run / "checkpoints/step-0020/record.json").write_text("{}")
    assert command.run(parser.parse_args(words)) == 0
    series = json.loads((run / "evaluations/quick/series.json").read_text())
    assert [point["step"] for point in series["points"]] == [0, 2, 10, 20]
    assert (run / "evaluations/quick/step-0010/manifest.json").read_bytes() == before
    with pytest.raises(ConfigError, match="leave out --out"):
        command.run(parser.parse_args([*words, "--out", "x"]))
