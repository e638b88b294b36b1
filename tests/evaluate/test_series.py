"""A run's checkpoints, all on the same problems and seeds."""

import json
import shutil

import pytest

from crt.errors import DataError
from crt.evaluate import load_all
from crt.evaluate.evaluation import Plan
from crt.evaluate.series import evaluate_run, is_run, points, run_config, run_of

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
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    shutil.copytree(tiny, folder / "checkpoints/step-0002")
    make_model(folder / "checkpoints/step-0010", seed=1)
    (folder / "checkpoints/.unfinished-step-0020").mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, "model": {"name": str(tiny)}}))
    return folder


def test_base_and_checkpoints_by_step(run, tiny):
    found = points(run, run_config(run))
    assert [(p.name, p.step) for p in found] == [("base", 0), ("step-0002", 2), ("step-0010", 10)]
    assert found[0].model == str(tiny)
    assert is_run(run) and run_of(run / "checkpoints/step-0002") == run
    assert not is_run(tiny) and run_of(tiny) is None


def test_a_run_without_checkpoints(run):
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    with pytest.raises(DataError, match="has no checkpoint"):
        points(run, run_config(run))


def test_the_series_of_a_run(run, problems):
    config = run_config(run)
    settings = config.evaluation.model_copy(update={"data": (str(problems),)})
    folder, found = evaluate_run(run, Plan(config.model, settings))
    assert folder == run / "evaluations/sums"
    base, same, other = (list(each.rollouts()) for each in found)
    # the checkpoint with the base's weights says the same: same problems, same seeds
    assert [r.response for r in same] == [r.response for r in base]
    assert [r.response for r in other] != [r.response for r in base]
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
        sum(record.tokens for record in base) / 12
    )
    assert [each.name for each in load_all([str(folder)])] == ["base", "step-0002", "step-0010"]
