"""The first command of the README, from training to the report, on a tiny budget."""

import json

import pytest

from crt.cli import main
from crt.io import CHECKSUM
from crt.run import STEP_KEYS

TINY = (
    "data.train=['pocket:24']", "schedule.steps=2", "schedule.save_every=1",
    "schedule.problems_per_step=4", "sampling.group_size=4",
    "method.saturation={at_least=1, window=1, latest=0.5}",
    "reference.rollouts=2", "validation.problems=8", "validation.rollouts=1",
    "validation.final_rollouts=0", "evaluation.data=['pocket/test:8']", "evaluation.rollouts=1",
)  # fmt: skip
CHANGES = [word for setting in TINY for word in ("--set", setting)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A demo that has run to its end."""
    path = tmp_path_factory.mktemp("demo") / "runs" / "demo"
    assert main(["demo", "--seed", "3", "--out", str(path), *CHANGES]) == 0
    return path


def test_the_demo_trains_evaluates_and_reports(demo):
    config = json.loads((demo / "config.json").read_text())
    assert (config["name"], config["seed"], config["schedule"]["steps"]) == ("demo", 3, 2)
    steps = [json.loads(line) for line in (demo / "steps.jsonl").read_text().splitlines()]
    assert [(row["step"], row["stage"]) for row in steps] == [(1, 1), (2, 2)]
    assert all(set(row) - {CHECKSUM} <= set(STEP_KEYS) for row in steps)  # docs/reference/steps.md
    summary = json.loads((demo / "summary.json").read_text())
    assert [row["name"] for row in summary["table"]] == ["base", "stage1", "crt"]
    assert all(row["n_problems"] == 8 and row["len"] > 0 for row in summary["table"])
    assert summary["certificate"]["problems"] == 8
    weights = demo / "checkpoints" / "step-0002" / "model.safetensors"
    assert weights.stat().st_mode == (demo / "config.json").stat().st_mode
    assert "<html" in (demo / "report.html").read_text()


def test_the_demo_shows_again_what_is_there(demo, capsys):
    before = (demo / "steps.jsonl").read_bytes()
    assert main(["demo", "--out", str(demo)]) == 0
    printed = capsys.readouterr().out
    assert f"{demo} is finished." in printed.replace("\n", "")
    for text in ("base", "stage1", "crt", "8 held-out problems", "Certificate: accuracy is"):
        assert text in printed
    assert (demo / "steps.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--set", "schedule.steps=3"], "goes on as it was begun"),
        (["--out", "other", "--set", "schedule.stepz=3"], "Did you mean `steps`?"),
        (["--out", "other", "--set", "evaluation.data=['a', 'b']"], "shows one data set"),
    ],
)
def test_what_the_demo_cannot_do_is_one_sentence(words, sentence, demo, capsys, monkeypatch):
    monkeypatch.chdir(demo.parent)
    assert main(["demo", "--out", "demo", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not (demo.parent / "other").exists()
