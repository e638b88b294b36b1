"""`crt train` from end to end on a tiny model: what it leaves behind."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from crt.algorithm.two_stage import EQUALLY_SHORT
from crt.cli import main
from crt.errors import GradingError
from crt.recipes import load_recipe
from crt.run import Run
from crt.training.context import RunContext
from crt.training.train import recommendation
from crt.training.train import train as train_stages
from crt.training.validation import FINAL_DRAW, graded
from tests.support.trained import rows, same, train


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory) -> Path:
    """A run that nothing happened to."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    done = train(tiny, run)
    assert done.returncode == 0, done.stderr
    assert "again on 4 problems × 3." in done.stdout  # the last steps are not the end of waiting
    return run


def test_every_step_has_its_row(whole):
    steps = rows(whole)
    assert [row["step"] for row in steps] == list(range(1, 9))
    assert [row["stage"] for row in steps] == sorted(row["stage"] for row in steps)
    assert {row["stage"] for row in steps} == {1, 2}
    for row in steps:
        assert row["goal"] in ("length", "accuracy", "mixed")
        assert row["problems"] == 4 and row["rollouts"] == 16
        assert {"loss", "grad_norm", "margin", "standard_error", "truncated"} <= row.keys()
        # a step that trains on nothing has no distance to the reference, rather than 0
        assert ("kl" in row) == (row["zero_advantage_groups"] < 1)


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


def test_a_saved_state_does_not_grow_with_the_steps(whole):
    states = list(whole.glob("state/stage*/checkpoint-*/trainer_state.json"))
    assert states
    for state in states:
        assert len(json.loads(state.read_text())["log_history"]) == 1  # not every step's again


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
    final = {step: record for step, record in run.checkpoints.items() if record.get("final")}
    feasible = {step: record for step, record in final.items() if record["feasible"]}
    assert run.progress["feasible"] == bool(feasible)
    if feasible:
        best = feasible[run.progress["recommended"]]
        shortest = min(record["tokens"] for record in feasible.values())
        assert best["tokens"] <= (1 + EQUALLY_SHORT) * shortest


def test_the_recommended_checkpoint_was_measured_again_with_another_draw(whole, tmp_path):
    run = Run.open(whole)
    step = run.progress["recommended"]
    record = run.checkpoints[step]
    assert record["final"] and record["rollouts"] == 3 and record["first"]["rollouts"] == 2
    assert sum("final" in each for each in run.checkpoints.values()) <= 2 * 2  # twice, 2 at most
    context = RunContext(run.config, tmp_path / "references")
    policy = context.policy(context.load(str(run.checkpoint(step))))
    rollouts = context.measured(policy, 3, step, FINAL_DRAW)
    context.close()
    assert sum(r.length for r in rollouts) / len(rollouts) == record["tokens"]


def test_batches_of_the_reference_are_drawn_apart(tiny, tmp_path):
    # A model without weights says the same whatever it is asked, so only the draw can differ.
    context = RunContext(load_recipe(tiny / "recipe.toml"), tmp_path)
    for weights in context.base.model.parameters():
        weights.data.zero_()
    reference = context.reference(context.base)
    one, other = (reference.rollouts([p.id])[p.id] for p in context.problems[0][:2])
    again = context.reference(context.base).rollouts([one[0].problem_id])
    context.close()
    assert [r.text for r in one] != [r.text for r in other]
    assert again[one[0].problem_id] == one


def test_checkpoints_are_measured_at_the_temperature_of_use(tiny, tmp_path):
    config = load_recipe(tiny / "recipe.toml", ["validation.temperature=0.0"])
    context = RunContext(config, tmp_path)
    trained = context.reference(context.base)
    judged = context.on_validation(trained)
    asked = context.policy(context.base, sampling=context.validation_sampling)
    measured = context.measured(asked, 3, step=1)
    as_trained = trained(judged.problem_ids)
    context.close()
    assert (judged.length == judged.length[:, :1]).all()  # greedy: all rollouts are alike
    assert len({(r.problem_id, r.text) for r in measured}) == len(judged.problem_ids)
    assert not (as_trained.length == as_trained.length[:, :1]).all()


def test_only_what_could_be_graded_can_be_chosen():
    known = {"accuracy": 0.5, "tokens": 9.0, "margin": 0.0, "standard_error": 0.01}
    lost = dict.fromkeys(("accuracy", "tokens", "margin"))
    assert [c.step for c in graded({2: lost, 4: known})] == [4]
    with pytest.raises(GradingError, match="none of 1 checkpoints could be graded"):
        graded({2: lost})


def test_stage_two_starts_as_its_setting_says_and_what_is_handed_over_is_feasible(tiny, tmp_path):
    settings = ["method.start=plausible", "validation.final_rollouts=0"]
    made = Run.create(tmp_path / "run", load_recipe(tiny / "recipe.toml", settings))
    # four is shorter, and its margin of -0.015 is within a standard error of 0.02 of being kept
    for step, tokens, margin in ((2, 90.0, 0.03), (4, 50.0, -0.015)):
        shutil.copytree(made.config.model.name, made.checkpoint(step))
        record = {"step": step, "accuracy": 0.9, "tokens": tokens, "margin": margin}
        record |= {"standard_error": 0.02}
        (made.checkpoint(step) / "record.json").write_text(json.dumps(record))
    given = []

    def nothing_is_trained(run, context, stage, *_):
        given.append((stage.number, stage.start))

    context = RunContext(made.config, tmp_path)
    train_stages(made, context, nothing_is_trained, lambda _: None)
    context.close()
    assert given == [(1, made.config.model.name), (2, str(made.checkpoint(4)))]
    assert made.progress["stage_two_from"] == 4 and made.progress["recommended"] == 2


def test_config_says_everything(whole, tiny):
    config = json.loads((whole / "config.json").read_text())
    assert config["seed"] == 5 and config["versions"]["torch"]
    assert Run.open(whole).config.method.shorten.rule == "multiplier"


def test_the_same_recipe_repeats_the_run(whole, tiny, tmp_path):
    train(tiny, tmp_path / "again")
    same(whole, tmp_path / "again")


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
    context = RunContext(run.config, tmp_path / "references")
    rollouts = context.measured(context.policy(context.load(str(folder))), 2, 8)
    context.close()
    record = run.checkpoints[8]
    assert sum(r.length for r in rollouts) / len(rollouts) == record.get("first", record)["tokens"]


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
