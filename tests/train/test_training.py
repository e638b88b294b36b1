"""`crt train` from end to end on a tiny model: what it leaves behind, and what a kill costs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from crt.cli import main
from crt.commands.train import recommendation
from crt.run import Run
from crt.train.workshop import Workshop

KILLED = str(Path(__file__).parent / "killed.py")


def train(tiny: Path, run: Path, moment: str = "never", step: int = 0, recipe: str = "recipe.toml"):
    words = [sys.executable, KILLED, str(tiny / recipe), str(run), moment, str(step)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


def rows(run: Path) -> list[dict]:
    """The run's steps without the time they took, which is all that may differ."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in Run.open(run).steps]


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(Run.open(run).checkpoint(step) / "model.safetensors")


def same(run: Path, other: Path) -> None:
    assert rows(run) == rows(other)
    assert Run.open(run).progress == Run.open(other).progress
    assert Run.open(run).checkpoints == Run.open(other).checkpoints
    for step in Run.open(run).checkpoints:
        ours, theirs = weights(run, step), weights(other, step)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    for step in range(1, len(rows(run)) + 1):
        assert Run.open(run).rollouts(step) == Run.open(other).rollouts(step)


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory) -> Path:
    """A run that nothing happened to."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    done = train(tiny, run)
    assert done.returncode == 0, done.stderr
    return run


def test_every_step_has_its_row(whole):
    steps = rows(whole)
    assert [row["step"] for row in steps] == list(range(1, 9))
    assert [row["stage"] for row in steps] == sorted(row["stage"] for row in steps)
    assert {row["stage"] for row in steps} == {1, 2}
    for row in steps:
        assert row["goal"] in ("length", "accuracy", "mixed")
        assert row["problems"] == 4 and row["rollouts"] == 16
        assert {"loss", "grad_norm", "kl", "margin", "standard_error", "truncated"} <= row.keys()


def test_every_response_is_kept_with_its_verdict(whole):
    records = Run.open(whole).rollouts(1)
    assert len(records) == 16
    for record in records:
        assert record["verdict"] in ("correct", "wrong", "no_answer")
        assert record["tokens"] >= 1 and record["stop"] in ("eos", "length")
        if record["verdict"] == "correct":
            assert record["text"].split()[-1].startswith("\\boxed") or "\\boxed" in record["text"]
    row = rows(whole)[0]
    right = sum(r["verdict"] == "correct" and r["stop"] == "eos" for r in records)
    assert row["accuracy"] == right / 16
    assert row["tokens"] == sum(r["tokens"] for r in records) / 16


def test_checkpoints_load_as_they_are(whole):
    run = Run.open(whole)
    assert list(run.checkpoints) == sorted({*range(2, 9, 2), run.progress["stage_one_ended"]})
    folder = run.checkpoint(run.progress["recommended"])
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer)
    assert not list(folder.glob("*optimizer*")) and not list(folder.glob("*.pt*"))


def test_the_recommended_checkpoint_is_the_shortest_feasible(whole):
    run = Run.open(whole)
    feasible = {s: r for s, r in run.checkpoints.items() if r["feasible"]}
    if feasible:
        best = min(feasible, key=lambda step: feasible[step]["tokens"])
        assert run.progress["recommended"] == best


def test_config_says_everything(whole, tiny):
    config = json.loads((whole / "config.json").read_text())
    assert config["seed"] == 5 and config["versions"]["torch"]
    assert Run.open(whole).config.method.shorten.smoothing == 0.5


def test_the_same_recipe_repeats_the_run(whole, tiny, tmp_path):
    train(tiny, tmp_path / "again")
    same(whole, tmp_path / "again")


@pytest.mark.parametrize(
    ("moment", "step"),
    [("before the row", 2), ("in the middle of a checkpoint", 6), ("before the checkpoint", 8)],
)
def test_killed_and_resumed_is_the_same_run(whole, tiny, tmp_path, moment, step):
    run = tmp_path / "killed"
    assert train(tiny, run, moment, step).returncode == -9
    assert not Run.open(run).progress.get("finished")
    done = train(tiny, run)
    assert done.returncode == 0, done.stderr
    same(whole, run)


def test_sigterm_saves_and_can_be_resumed(whole, tiny, tmp_path):
    run = tmp_path / "ended"
    stopped = train(tiny, run, "terminate", 5)
    assert stopped.returncode == 143
    assert f"crt train --resume {run}" in stopped.stdout
    assert len(rows(run)) == 5
    assert train(tiny, run).returncode == 0
    same(whole, run)


def test_primal_dual_keeps_its_multiplier_through_a_kill(tiny, tmp_path):
    recipe = (tiny / "recipe.toml").read_text()
    start = recipe.index("[method]")
    end = recipe.index("[schedule]")
    (tiny / "pd.toml").write_text(
        recipe[:start] + '[method]\ntype = "primal_dual"\n' + recipe[end:]
    )
    train(tiny, tmp_path / "whole", recipe="pd.toml")
    assert train(tiny, tmp_path / "killed", "before the row", 6, "pd.toml").returncode == -9
    assert train(tiny, tmp_path / "killed", recipe="pd.toml").returncode == 0
    same(tmp_path / "whole", tmp_path / "killed")
    multipliers = [row["multiplier"] for row in rows(tmp_path / "whole")]
    assert len(set(multipliers)) > 1


def test_an_adapter_is_trained_through_both_stages(tiny, tmp_path):
    recipe = (tiny / "recipe.toml").read_text().replace("[prompt]", "lora.rank = 2\n[prompt]")
    (tiny / "lora.toml").write_text(recipe)
    done = train(tiny, tmp_path / "lora", recipe="lora.toml")
    assert done.returncode == 0, done.stderr
    run = Run.open(tmp_path / "lora")
    folder = run.checkpoint(8)
    assert (folder / "adapter_model.safetensors").exists()
    assert not (folder / "model.safetensors").exists()
    # the record was measured on the policy that the folder gives when it is loaded
    workshop = Workshop(run.config, tmp_path / "references")
    rollouts = workshop.measured(workshop.policy(workshop.load(str(folder))))
    workshop.close()
    assert sum(r.length for r in rollouts) / len(rollouts) == run.checkpoints[8]["tokens"]


def test_two_processes_are_one_run(tiny, tmp_path):
    """The decision is over the batch of both; each samples its half of the reference."""
    run = tmp_path / "two"
    words = ["--nproc-per-node", "2", "-m", "crt", "train", str(tiny / "recipe.toml")]
    launch = [sys.executable, "-m", "torch.distributed.run", *words, "--out", str(run)]
    done = subprocess.run(launch, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Finished.") == 1
    steps = rows(run)
    assert [row["step"] for row in steps] == list(range(1, 9))
    assert {row["rollouts"] for row in steps} == {16}
    for step in range(1, 9):
        records = Run.open(run).rollouts(step)
        right = sum(r["verdict"] == "correct" and r["stop"] == "eos" for r in records)
        assert len(records) == 16 and steps[step - 1]["accuracy"] == right / 16


def test_a_run_is_never_written_over(whole, tiny, capsys):
    before = (whole / "steps.jsonl").read_bytes()
    assert main(["train", str(tiny / "recipe.toml"), "--out", str(whole)]) == 2
    assert "is there already and is not written over" in capsys.readouterr().err
    assert (whole / "steps.jsonl").read_bytes() == before


def test_a_finished_run_stays_finished(whole, capsys):
    assert main(["train", "--resume", str(whole)]) == 0
    assert f"{whole} is finished. " in capsys.readouterr().out


def test_no_feasible_checkpoint_is_said(whole, tmp_path):
    run = Run.create(tmp_path / "run", Run.open(whole).config)
    run.set_progress(recommended=8, feasible=False)
    assert "No checkpoint kept the reference's accuracy" in recommendation(run)
    run.set_progress(feasible=True)
    assert recommendation(run) == f"The shortest feasible checkpoint is {run.checkpoint(8)}."


def test_one_process_at_a_time(whole, tiny, tmp_path, capsys):
    run = Run.create(tmp_path / "run", Run.open(whole).config)
    with run.locked():
        assert main(["train", "--resume", str(run.path)]) == 2
    assert "is being written by another process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give a recipe for a new run, or --resume RUN"),
        (["--resume", "nowhere"], "nowhere is not a run"),
        (["--resume", "nowhere", "--set", "seed=1"], "a run goes on as it was begun"),
    ],
)
def test_wrong_words_are_one_sentence(words, sentence, capsys):
    assert main(["train", *words]) == 2
    assert sentence in capsys.readouterr().err
