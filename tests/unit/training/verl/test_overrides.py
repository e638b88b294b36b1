"""A recipe in verl's words."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from crt.algorithm.objectives import PrimalDual, Shorten
from crt.algorithm.registry import METHODS
from crt.config import read_dataclass, settings_of
from crt.recipes import load_recipe
from crt.training.stage import Stage
from crt.training.verl.data import StageFolder
from crt.training.verl.fit import environment, shown
from crt.training.verl.overrides import (
    Model,
    arguments,
    flat,
    hydra_value,
    mistakes,
    modules,
    sampling,
    training,
)
from tests.support.tiny_model import verl_config

MODEL = Model(Path("/models/base"), "bfloat16", 300, (7, 9))
RECIPES = Path(__file__).parents[4] / "recipes"


def config(**changes):
    usual = {
        "schedule": {"steps": 20, "problems_per_step": 64},
        "sampling": {"max_tokens": 1000, "group_size": 8},
    }
    return verl_config(**usual | changes)


def overrides(objective=None, saved=None, adapter=None, **changes):
    stage, model = Stage(1, objective or Shorten(), "m", 0, 20), replace(MODEL, adapter=adapter)
    folder = StageFolder(Path("/runs/t/s"))
    return training(config(**changes), Path("/runs/t"), folder, stage, model, saved)


def test_one_update_a_batch_of_whole_groups():
    found = overrides()
    assert found["data.train_batch_size"] == 64
    assert found["actor_rollout_ref.actor.ppo_mini_batch_size"] == 64  # verl counts problems
    assert found["actor_rollout_ref.rollout.n"] == 8
    assert found["actor_rollout_ref.actor.ppo_epochs"] == 1
    assert found["data.shuffle"] is False


def test_the_objective_is_in_the_command():
    found = overrides(PrimalDual(tolerance=0.02))
    assert found["+crt.objective.tolerance"] == 0.02 and found["+crt.objective.multiplier"] == 1.0
    assert found["+crt.eos_token_ids"] == [7, 9]


@pytest.mark.parametrize("name", [name for name in METHODS if name != "crt"])
def test_every_objective_comes_back_from_its_settings(name):
    objective = METHODS[name]()
    settings = json.loads(json.dumps(settings_of(objective)))
    assert read_dataclass(type(objective), settings) == objective


def test_kl_and_loss_are_verls_own():
    found = overrides(optim={"kl": 0.01, "loss": "sequence_mean", "clip": 0.3})
    actor = "actor_rollout_ref.actor"
    assert found[f"{actor}.use_kl_loss"] is True and found[f"{actor}.kl_loss_coef"] == 0.01
    assert found[f"{actor}.kl_loss_type"] == "low_var_kl+"  # k3, the gradient of k2
    assert found[f"{actor}.loss_agg_mode"] == "seq-mean-token-mean"
    assert found[f"{actor}.clip_ratio_high"] == 0.3
    assert overrides(optim={"kl": 0.0})[f"{actor}.use_kl_loss"] is False


def test_a_pass_has_room_for_the_longest_response():
    key = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
    assert overrides()[key] == 16384
    assert overrides(sampling={"max_tokens": 30000})[key] == 30300
    given = overrides(optim={"micro_batch": 4})
    assert given["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"] == 4
    assert given["actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"] == 4


def test_going_on_names_the_checkpoint():
    assert overrides()["trainer.resume_mode"] == "disable"
    again = overrides(saved=Path("/runs/t/s/verl/global_step_10"))
    assert again["trainer.resume_mode"] == "resume_path"
    assert again["trainer.resume_from_path"].endswith("global_step_10")


def test_the_reference_is_sampled_as_the_policy_is():
    alone, training_ = sampling(config(cluster={"nodes": 2, "devices": 4}), MODEL), overrides()
    rollout = "actor_rollout_ref.rollout"
    for name in ("temperature", "top_p", "top_k", "dtype", "max_model_len"):
        assert alone[f"{rollout}.{name}"] == training_[f"{rollout}.{name}"]
    assert alone[f"{rollout}.nnodes"] == 2 and alone[f"{rollout}.n_gpus_per_node"] == 4
    assert alone[f"{rollout}.load_format"] == "auto"  # from its folder, not from a trainer


def test_validation_has_its_own_temperature_and_cap():
    rollout = "actor_rollout_ref.rollout"
    same = overrides()
    assert same[f"{rollout}.val_kwargs.temperature"] == 1.0
    assert same["data.max_response_length"] == 1000
    used = overrides(validation={"temperature": 0.6, "top_p": 0.95, "max_tokens": 4000})
    assert used[f"{rollout}.temperature"] == 1.0 and used[f"{rollout}.top_p"] == 1.0
    assert used[f"{rollout}.val_kwargs.temperature"] == 0.6
    assert used[f"{rollout}.val_kwargs.top_p"] == 0.95
    assert used["data.max_response_length"] == 4000
    assert used[f"{rollout}.max_model_len"] == 4300  # with the longest prompt, 300
    # what is trained on is no longer for it
    assert used["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"] == 16384


def test_servers_hold_the_references_cap_too():
    alone = sampling(config(reference={"max_tokens": 2000}), MODEL)
    assert alone["actor_rollout_ref.rollout.max_model_len"] == 2300


def test_the_sampler_is_corrected_per_token():
    key = "algorithm.rollout_correction"
    found = overrides()
    assert found[f"{key}.rollout_is"] == "token" and found[f"{key}.rollout_is_threshold"] == 2.0
    assert overrides(verl={f"{key}.rollout_is_threshold": 5.0})[f"{key}.rollout_is_threshold"] == 5
    for name, value in [("rollout_is", "null"), ("rollout_rs", "token_k1")]:
        assert list(mistakes(config(verl={f"{key}.{name}": value}))) == []
    for name, value in [
        ("rollout_is", "sequence"), ("rollout_rs", "token_k1,seq_mean_k3"), ("bypass_mode", "true"),
    ]:  # fmt: skip
        (sentence,) = mistakes(config(verl={f"{key}.{name}": value}))
        assert sentence.lower().startswith(f"[verl] {key}.{name} = ") and value in sentence


def test_an_adapter_has_the_recipes_settings():
    lora = {"rank": 16, "alpha": 32, "targets": ["q_proj", "v_proj"]}
    found = overrides(adapter=Path("/runs/x"), model={"name": "m", "lora": lora})
    assert arguments(found)
    part = "actor_rollout_ref.model"
    assert found[f"{part}.lora_rank"] == 16 and found[f"{part}.lora_alpha"] == 32
    assert found[f"{part}.target_modules"] == ("q_proj", "v_proj")
    assert found[f"{part}.lora_adapter_path"] == "/runs/x"  # trained on from there
    assert found[f"{part}.path"] == "/models/base"
    assert f"{part}.lora_rank" not in overrides()
    (sentence,) = mistakes(config(verl={f"{part}.lora_rank": 8}))
    assert "lora_rank is set by the recipe's own sections" in sentence


def test_tables_become_dotted_keys_and_a_plus_goes_to_the_front():
    table = {"a": {"b": 1, "+c": {"d": "x"}}, "e.f": [1, "y"]}
    assert flat(table) == {"a.b": 1, "+a.c.d": "x", "e.f": [1, "y"]}


def test_the_users_word_counts_where_it_may():
    verl = {"trainer": {"logger": ["console", "wandb"]}}
    assert overrides(verl=verl)["trainer.logger"] == ["console", "wandb"]
    assert list(mistakes(config(verl=verl))) == []
    for key in ("data.shuffle", "actor_rollout_ref.rollout.n", "crt.stage", "trainer.nnodes"):
        (sentence,) = mistakes(config(verl={key: 1}))
        assert sentence.startswith(f"[verl] {key} is set by the recipe's own")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "True"),
        (1e-6, "1e-06"),
        ("plain/path.toml", "plain/path.toml"),
        ([1, "a b"], "[1,'a b']"),
        ("pkg://x", "'pkg://x'"),
        ("it's", r"'it\'s'"),
        ("a,b", "'a,b'"),
    ],
)
def test_values_are_written_in_hydras_grammar(value, text):
    assert hydra_value(value) == text


def test_the_printed_command_is_the_started_one():
    found = overrides()
    command = shlex.split(shown(found).replace("\\\n", " "))
    assert command[-len(found) :] == arguments(found)
    assert "VERL_USE_EXTERNAL_MODULES=crt.training.verl.trainer" in command[0]


def test_the_users_modules_come_first_and_once():
    assert modules("mine,crt.p", "crt.p") == "mine,crt.p"
    outer = {"VERL_USE_EXTERNAL_MODULES": "mine"}
    assert environment(outer)["VERL_USE_EXTERNAL_MODULES"] == "mine,crt.training.verl.trainer"


def test_every_recipe_can_be_said_in_verls_words():
    for path in sorted(RECIPES.rglob("*.toml")):
        if path.parent.name == "base":
            continue  # what recipes share is no recipe
        recipe = load_recipe(path)
        stage = Stage(1, Shorten(), "m", 0, 1)
        assert arguments(training(recipe, path, StageFolder(path), stage, MODEL))
