"""An adapter trained by verl: it reaches the servers, is saved, taken up again, and measured."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("verl", reason="make test-engines makes the environment for this")

from command import crt, steps, told, wait_for

from crt.data.datasets import load_mixture
from crt.data.prompts import PromptSettings, prepare, render
from crt.io import read_json
from crt.run import Run
from crt.sampling.models import load_model

RECIPE = Path(__file__).parent / "pocket.toml"
CHANGES = [
    "model.lora={rank=8, alpha=16}", 'method={type="primal_dual"}', "optim.learning_rate=1e-2",
    "optim.kl=1e-3", "schedule.steps=6", "schedule.save_every=2", "validation.problems=16",
    "validation.temperature=0.6", "validation.max_tokens=300", "validation.final_rollouts=2",
    "reference.rollouts=4", "reference.max_tokens=320",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(place) -> Run:
    """Ended by SIGTERM after a few steps and taken up again."""
    path = place["folder"] / "runs" / "lora"
    words = [word for change in CHANGES for word in ("--set", change)]
    first = crt(place, "train", str(RECIPE), "--out", str(path), *words)
    wait_for(first, lambda: steps(path) >= 3)
    first.send_signal(signal.SIGTERM)
    assert "Stopped and saved" in told(first, code=143)
    told(crt(place, "train", "--resume", str(path)))
    return Run.open(path)


def logprobs(model: Any, rollouts: list[dict[str, Any]]) -> torch.Tensor:
    """Of every token of some responses, without the one that ends them."""
    template = prepare(model.tokenizer, PromptSettings())
    problems = {each.id: each for each in load_mixture(["pocket:128"]).problems}
    found = []
    for one in rollouts:
        prompt = list(render(problems[one["problem_id"]], template).token_ids)
        said = model.tokenizer.encode(one["text"], add_special_tokens=False)
        with torch.no_grad():
            logits = model.model(torch.tensor([prompt + said])).logits[0]
        rows = logits.log_softmax(-1)[len(prompt) - 1 : -1]
        found.append(rows.gather(1, torch.tensor(said)[:, None])[:, 0])
    return torch.cat(found)


def test_every_step_is_there_once(run):
    assert [row["step"] for row in run.steps] == list(range(1, 7))
    assert run.progress["finished"] is True


def test_the_adapter_reaches_the_servers(run):
    """The servers give their tokens the trainer's probabilities; the base gives them others."""
    apart = [row["rollout_probs_diff_max"] for row in run.steps]
    adapted, base = load_model(str(run.checkpoint(4))), load_model("pocket")
    sampled = run.rollouts(5)[:16]  # with the adapter of step 4
    moved = (logprobs(adapted, sampled).exp() - logprobs(base, sampled).exp()).abs().max()
    print(f"servers and trainer: {max(apart):.1e}; base and adapter: {moved:.1e}")
    assert max(apart) < 5e-4
    assert moved > 20 * max(apart)


def test_the_checkpoint_is_an_adapter_with_the_recipes_settings(run):
    folder = run.checkpoint(6)
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= {
        path.name for path in folder.iterdir()
    }
    settings = read_json(folder / "adapter_config.json")
    assert settings["r"] == 8 and settings["lora_alpha"] == 16
    assert {"q_proj", "down_proj"} <= set(settings["target_modules"])


def test_the_saved_adapter_is_the_one_that_was_trained(run):
    """Step 5's KL, worked out from the checkpoint of step 4: k3 of the tokens that are trained on.

    A problem without a signal has advantages of 0 and no KL.
    """
    rollouts, row = run.rollouts(5), run.steps[4]
    signal = {one["problem_id"] for one in rollouts if one["advantage"]}
    trained = [one for one in rollouts if one["problem_id"] in signal]
    apart = logprobs(load_model(str(run.checkpoint(4))), trained)
    apart -= logprobs(load_model("pocket"), trained)
    k3 = (torch.exp(-apart) + apart - 1).mean().item()
    print(f"KL of step 5: {row['kl']:.3e}; from the checkpoint of step 4: {k3:.3e}")
    assert row["kl"] == pytest.approx(k3, rel=0.1)
    assert abs(run.steps[0]["kl"]) < 1e-6  # an adapter begins as nothing


def test_no_length_is_favoured(run):
    for row in run.steps:
        assert row["weight_by_length"] == pytest.approx([1.0] * 4, abs=1e-3)


def test_eval_loads_it_and_finds_what_the_servers_found(run, place):
    """The servers' last measurement is of the adapter merged into its base."""
    best = run.progress["recommended"]
    record = run.checkpoints[best]
    assert record["final"]
    out = place["folder"] / "lora-evaluation"
    words = ["--data", "pocket/validation:16", "--rollouts", "8", "--temperature", "0.6"]
    words += ["--top-p", "1.0", "--max-tokens", "300", "--out", str(out), "--engine", "fast"]
    told(crt(place, "eval", str(run.checkpoint(best)), *words))
    figures = read_json(out / "figures.json")["sets"]["pocket/validation:16"]
    assert figures["len"]["value"] == pytest.approx(record["tokens"], rel=0.2)
    assert np.isfinite(figures["acc"]["value"])
