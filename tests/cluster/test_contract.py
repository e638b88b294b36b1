"""What is used of verl is there, and every override is one that verl knows."""

import asyncio
import inspect
import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from crt.algorithm.objectives import PrimalDual, Refine, Shorten
from crt.recipes import load_recipe
from crt.run import Run
from crt.sampling.models import model_files
from crt.training.stage import Stage
from crt.training.verl.data import StageFolder
from crt.training.verl.overrides import Model, compose_config, sampling, training
from crt.types import Problem, Verdict

pytest.importorskip("verl", reason="make test-cluster makes the environment for this")

RECIPES = Path(__file__).parents[2] / "recipes"
MODEL = Model(Path("/models/base"), "bfloat16", 300, (7, 9))
FOLDER = StageFolder(Path("/runs/x/state/stage1"))


@pytest.mark.parametrize("objective", [Shorten(), Refine(), PrimalDual()])
def test_verl_knows_every_override(objective):
    config = load_recipe(RECIPES / "cluster" / "deepseek-r1-7b.toml")
    saved = FOLDER.saved / "global_step_10"
    stage = Stage(1, objective, "m", 0, 81)
    found = compose_config(training(config, Path("/runs/x"), FOLDER, stage, MODEL, saved))
    assert found.trainer.v1.trainer_mode == "crt" and found.trainer.nnodes == 8
    assert found.actor_rollout_ref.rollout.n == 16 and found.crt.eos_token_ids == [7, 9]
    assert found.actor_rollout_ref.actor.optim.lr == config.optim.learning_rate
    assert found.trainer.resume_from_path == str(saved)
    assert found.reward.reward_manager.module.path == "pkg://crt.training.verl.trainer"


def test_verl_knows_every_override_of_the_sampler():
    config = load_recipe(RECIPES / "cluster" / "deepseek-r1-7b.toml")
    found = compose_config(sampling(config, MODEL))
    assert found.actor_rollout_ref.rollout.load_format == "auto"
    assert found.actor_rollout_ref.rollout.nnodes == 8


def test_the_trainers_hooks_have_these_signatures():
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync as Trainer

    for name in ("_compute_advantage", "_update_actor"):
        assert list(inspect.signature(getattr(Trainer, name)).parameters) == [
            "self", "batch", "metrics",
        ]  # fmt: skip
    for name in ("on_step_end", "_save_checkpoint", "_load_checkpoint"):
        assert list(inspect.signature(getattr(Trainer, name)).parameters) == ["self"]
    loop = inspect.getsource(Trainer.fit)
    # saved and measured in on_step_end; ended by lowering the number of steps
    assert "self.on_step_end()" in loop and "self.global_steps <= self.total_training_steps" in loop


def test_verl_finds_the_trainer_and_the_agent_loop_by_name():
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.trainer.ppo.v1 import get_trainer_cls

    from crt.training.verl.trainer import ClusterTrainer

    assert get_trainer_cls("crt") is ClusterTrainer
    assert _agent_loop_registry["crt"] == {"_target_": "crt.training.verl.trainer.PromptAgent"}


def test_a_response_is_decoded_graded_and_comes_back_as_a_rollout(tmp_path):
    from omegaconf import OmegaConf

    from crt.training.verl.trainer import Correctness, rollout_of

    files = model_files("pocket")
    Run.create(tmp_path / "run", load_recipe(Path(__file__).parent / "pocket.toml"))
    model = {"path": str(files.folder), "trust_remote_code": False}
    own = {"run": str(tmp_path / "run"), "eos_token_ids": list(files.eos_token_ids)}
    config = OmegaConf.create({"crt": own, "actor_rollout_ref": {"model": model}})
    text = r"so \boxed{7}"
    tokens = files.tokenizer.encode(text, add_special_tokens=False)
    text = files.tokenizer.decode(tokens)
    problem = asdict(Problem("p", "?", "7"))
    info = {"crt": json.dumps({"problem": problem, "budget": 30, "opens_thinking": False})}
    manager = Correctness(config, None, None)
    for ids, stop in [([*tokens, files.eos_token_ids[0]], "eos"), (tokens, "length")]:
        item = SimpleNamespace(
            batch={"responses": torch.tensor(ids)}, non_tensor_batch={"extra_info": info}
        )
        reward = asyncio.run(manager.run_single([item]))
        rollout = rollout_of({"reward_extra_info": reward["reward_extra_info"]})
        assert reward["reward_score"] == 1.0 and rollout.verdict is Verdict.CORRECT
        assert (rollout.problem_id, rollout.text, rollout.budget) == ("p", text, 30)
        assert (rollout.length, rollout.stop) == (len(ids), stop)
    manager.grader.close()


def test_the_kl_has_the_value_of_k3_and_the_gradient_of_the_kl():
    from verl.trainer.ppo.core_algos import kl_penalty

    now = torch.tensor([-1.0, -2.0], requires_grad=True)
    value = kl_penalty(now, torch.tensor([-1.5, -1.0]), "low_var_kl+")
    value.sum().backward()
    # d = log π − log π_ref = 0.5, −1; k3 = exp(−d) + d − 1; the gradient is d, as TRL's is
    assert value.tolist() == pytest.approx([0.106531, 0.718282], rel=1e-5)
    assert now.grad is not None and now.grad.tolist() == pytest.approx([0.5, -1.0])
