"""What is used of verl is there, and every override is one that verl knows."""

import inspect
from pathlib import Path

import pytest

from crt.algorithm.objectives import PrimalDual, Refine, Shorten
from crt.recipes import load_recipe
from crt.training.verl.folder import Folder
from crt.training.verl.overrides import Course, Model, sampling, training
from crt.training.verl.sampler import composed

pytest.importorskip("verl", reason="make test-cluster makes the environment for this")

RECIPES = Path(__file__).parents[2] / "recipes"
MODEL = Model(Path("/models/base"), "bfloat16", 300, (7, 9))
FOLDER = Folder(Path("/runs/x/state/stage1"))


@pytest.mark.parametrize("objective", [Shorten(slack="auto"), Refine(), PrimalDual()])
def test_verl_knows_every_override(objective):
    config = load_recipe(RECIPES / "cluster" / "deepseek-r1-7b.toml")
    saved = FOLDER.saved / "global_step_10"
    course = Course(1, objective, 81, saved)
    found = composed(training(config, Path("/runs/x"), FOLDER, course, MODEL))
    assert found.trainer.v1.trainer_mode == "crt" and found.trainer.nnodes == 8
    assert found.actor_rollout_ref.rollout.n == 16 and found.crt.ends == [7, 9]
    assert found.actor_rollout_ref.actor.optim.lr == config.optim.learning_rate
    assert found.trainer.resume_from_path == str(saved)
    assert found.reward.reward_manager.module.path == "pkg://crt.training.verl.reward"


def test_verl_knows_every_override_of_the_sampler():
    config = load_recipe(RECIPES / "cluster" / "deepseek-r1-7b.toml")
    found = composed(sampling(config, MODEL))
    assert found.actor_rollout_ref.rollout.load_format == "auto"
    assert found.actor_rollout_ref.rollout.nnodes == 8


def test_the_trainers_hooks_have_these_signatures():
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync as Trainer

    for name in ("_compute_advantage", "_update_actor"):
        assert list(inspect.signature(getattr(Trainer, name)).parameters) == [
            "self", "batch", "metrics",
        ]  # fmt: skip
    for name in ("on_step_end", "_save_checkpoint", "_load_checkpoint", "_init_dataloader"):
        assert list(inspect.signature(getattr(Trainer, name)).parameters) == ["self"]
    loop = inspect.getsource(Trainer.fit)
    # saved and measured in on_step_end; ended by lowering the number of steps
    assert "self.on_step_end()" in loop and "self.global_steps <= self.total_training_steps" in loop


def test_the_plugin_is_registered_under_its_name():
    from verl.trainer.ppo.v1 import get_trainer_cls

    import crt.training.verl.plugin as plugin

    assert get_trainer_cls("crt") is plugin.RunTrainer


def test_the_kl_has_the_value_of_k3_and_the_gradient_of_the_kl():
    import torch
    from verl.trainer.ppo.core_algos import kl_penalty

    now = torch.tensor([-1.0, -2.0], requires_grad=True)
    value = kl_penalty(now, torch.tensor([-1.5, -1.0]), "low_var_kl+")
    value.sum().backward()
    # d = log π − log π_ref = 0.5, −1; k3 = exp(−d) + d − 1; the gradient is d, as TRL's is
    assert value.tolist() == pytest.approx([0.106531, 0.718282], rel=1e-5)
    assert now.grad is not None and now.grad.tolist() == pytest.approx([0.5, -1.0])
