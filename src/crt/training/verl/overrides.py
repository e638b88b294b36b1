"""From a run's configuration to verl's: the overrides that follow its command."""

import os
from dataclasses import dataclass
from pathlib import Path

from crt.algorithm.objectives import AccuracyOnly, Objective
from crt.config import RunConfig
from crt.errors import ConfigError
from crt.training.verl.folder import Folder
from crt.training.verl.state import described
from crt.training.verl.words import Overrides, flat

MODULES = "VERL_USE_EXTERNAL_MODULES"
VARIABLES = "+ray_kwargs.ray_init.runtime_env.env_vars"
PLUGIN = "crt.training.verl.plugin"
TRAINER = "crt"  # the name under which the plugin is registered
AGENT = "crt"
AGENT_CLASS = "crt.training.verl.agent.PromptAgent"
LOSS = {"token_mean": "token-mean", "sequence_mean": "seq-mean-token-mean"}
SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
CORRECTION = "algorithm.rollout_correction"
TOKENS_AT_ONCE = 16384  # of all responses in one pass of a device, where no number is given


@dataclass(frozen=True)
class Model:
    """What a stage starts from."""

    folder: Path
    dtype: str
    longest_prompt: int
    eos_token_ids: tuple[int, ...] = ()  # tokens that end a response
    adapter: Path | None = None  # on `folder`, to be trained on


@dataclass(frozen=True)
class Course:
    """What a stage optimises, for how many steps, and verl's checkpoint to go on from."""

    number: int
    objective: Objective
    steps: int
    saved: Path | None = None


def training(
    config: RunConfig, run: Path, folder: Folder, stage: Course, model: Model
) -> Overrides:
    """Every override of a stage's training."""
    return (
        usual(config, model)
        | common(config, model)
        | _update(config)
        | _lora(config, model)
        | flat(config.verl)
        | _loop(config, folder, stage)
        | {
            "+crt.run": str(run),
            "+crt.stage": stage.number,
            "+crt.eos_token_ids": list(model.eos_token_ids),
        }
        | {f"+crt.objective.{name}": value for name, value in described(stage.objective).items()}
        | {f"{VARIABLES}.{MODULES}": modules(os.environ.get(MODULES, ""), PLUGIN)}
    )


def sampling(config: RunConfig, model: Model) -> Overrides:
    """The same rollout engine by itself, with a model as it is in its folder."""
    alone = {
        "actor_rollout_ref.rollout.nnodes": config.cluster.nodes,
        "actor_rollout_ref.rollout.n_gpus_per_node": config.cluster.devices,
        "actor_rollout_ref.rollout.load_format": "auto",
    }
    named = modules(os.environ.get(MODULES, ""))
    return (
        usual(config, model)
        | common(config, model)
        | flat(config.verl)
        | alone
        | ({f"{VARIABLES}.{MODULES}": named} if named else {})
    )


def modules(named: str, *ours: str) -> str:
    """What verl is to load in every process of the cluster; the user's come first."""
    theirs = [name for name in named.split(",") if name and name not in ours]
    return ",".join([*theirs, *ours])


def usual(config: RunConfig, model: Model) -> Overrides:
    """What a recipe's [verl] may change."""
    longest = model.longest_prompt + config.sampling.max_tokens
    return {
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": max(TOKENS_AT_ONCE, longest),
        "trainer.logger": ["console"],
        "trainer.project_name": "crt",
        "actor_rollout_ref.actor.strategy": "fsdp2",
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
        "actor_rollout_ref.rollout.name": "vllm",
        "data.dataloader_num_workers": 0,
        # Per token: a weight of the whole sequence would favour short responses.
        f"{CORRECTION}.rollout_is": "token",
        f"{CORRECTION}.rollout_is_threshold": 2.0,
    }


def common(config: RunConfig, model: Model) -> Overrides:
    """Model and sampler, the same for policy and reference."""
    sampler, validation, cluster = config.sampling, config.validation, config.cluster
    rollout = "actor_rollout_ref.rollout"
    temperature, top_p = validation.temperature, validation.top_p
    return {
        "actor_rollout_ref.model.path": str(model.folder),
        "actor_rollout_ref.model.trust_remote_code": config.model.trust_remote_code,
        "trainer.nnodes": cluster.nodes,
        "trainer.n_gpus_per_node": cluster.devices,
        f"{rollout}.tensor_model_parallel_size": cluster.tensor_parallel,
        f"{rollout}.dtype": model.dtype,
        f"{rollout}.n": sampler.group_size,
        f"{rollout}.temperature": sampler.temperature,
        f"{rollout}.top_p": sampler.top_p,
        f"{rollout}.top_k": -1,
        f"{rollout}.seed": config.seed,
        f"{rollout}.max_model_len": model.longest_prompt + longest_response(config),
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.val_kwargs.do_sample": True,
        f"{rollout}.val_kwargs.n": validation.rollouts,
        f"{rollout}.val_kwargs.temperature": (
            sampler.temperature if temperature is None else temperature
        ),
        f"{rollout}.val_kwargs.top_p": sampler.top_p if top_p is None else top_p,
        "data.max_prompt_length": model.longest_prompt,
        "data.max_response_length": longest_response(config),
    } | _precision(model.dtype)


def longest_response(config: RunConfig) -> int:
    """The largest cap of training, reference and validation; the data files hold each row's own."""
    caps = (config.sampling.max_tokens, config.reference.max_tokens, config.validation.max_tokens)
    return max(cap for cap in caps if cap is not None)


def _precision(dtype: str) -> Overrides:
    """Float32 weights to train, as verl has them; passes are made in the model's own precision."""
    return {
        f"{prefix}actor_rollout_ref.{role}.fsdp_config.{name}": value
        for role, kept in (("actor", "fp32"), ("ref", SHORT[dtype]))
        for prefix, name, value in (
            ("", "model_dtype", kept),
            ("", "dtype", dtype),
            ("+", "mixed_precision.param_dtype", SHORT[dtype]),
        )
    }


def _update(config: RunConfig) -> Overrides:
    """One policy-gradient step a batch."""
    optim, actor = config.optim, "actor_rollout_ref.actor"
    return {
        "algorithm.adv_estimator": "grpo",  # no critic; its advantages are replaced
        "algorithm.use_kl_in_reward": False,
        f"{actor}.ppo_mini_batch_size": config.schedule.problems_per_step,
        f"{actor}.ppo_epochs": 1,
        f"{actor}.clip_ratio": optim.clip,
        f"{actor}.clip_ratio_low": optim.clip,
        f"{actor}.clip_ratio_high": optim.clip,
        f"{actor}.loss_agg_mode": LOSS[optim.loss],
        f"{actor}.use_kl_loss": optim.kl > 0,
        f"{actor}.kl_loss_coef": optim.kl,
        # The value of k3 with the gradient of k2, which is that of the KL; k3's own is not.
        f"{actor}.kl_loss_type": "low_var_kl+",
        f"{actor}.optim.lr": optim.learning_rate,
        f"{actor}.optim.weight_decay": optim.weight_decay,
        f"{actor}.optim.lr_warmup_steps": optim.warmup_steps,
        f"{actor}.optim.lr_scheduler_type": "constant",
        f"{actor}.grad_clip": optim.grad_norm,
        f"{actor}.optim.clip_grad": optim.grad_norm,
        f"{actor}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{actor}.checkpoint.load_contents": ["model", "optimizer", "extra"],
    } | _micro_batch(config)


def _lora(config: RunConfig, model: Model) -> Overrides:
    """An adapter in place of all weights; the servers hold the base and are sent the adapter."""
    lora = config.model.lora
    if lora is None:
        return {}
    part, checkpoint = "actor_rollout_ref.model", "actor_rollout_ref.actor.checkpoint"
    return {
        f"{part}.lora_rank": lora.rank,
        f"{part}.lora_alpha": int(lora.alpha),
        f"{part}.target_modules": lora.targets,
        f"{part}.lora_adapter_path": str(model.adapter) if model.adapter else None,
        "actor_rollout_ref.rollout.load_format": "safetensors",
        # verl would write an adapter's weights under names that no library reads
        f"{checkpoint}.save_contents": ["model", "optimizer", "extra"],
        f"+{checkpoint}.save_lora_only": True,
    }


def _micro_batch(config: RunConfig) -> Overrides:
    """So many rollouts in a pass, or as many as there are tokens for."""
    roles, rows = ("ref.log_prob", "rollout.log_prob"), config.optim.micro_batch
    if rows is not None:
        return {
            "actor_rollout_ref.actor.use_dynamic_bsz": False,
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": rows,
        } | {f"actor_rollout_ref.{role}_micro_batch_size_per_gpu": rows for role in roles}
    return {"actor_rollout_ref.actor.use_dynamic_bsz": True}


def _loop(config: RunConfig, folder: Folder, stage: Course) -> Overrides:
    """The method's own part of verl's settings, which a recipe cannot change."""
    return {
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": TRAINER,
        "trainer.experiment_name": f"{config.name}-stage{stage.number}",
        "trainer.total_training_steps": stage.steps,
        "trainer.total_epochs": 1,
        "trainer.val_before_train": False,
        "trainer.save_freq": -1,  # the plugin says when
        "trainer.test_freq": -1,
        "trainer.default_local_dir": str(folder.saved),
        "trainer.resume_mode": "resume_path" if stage.saved else "disable",
        "trainer.resume_from_path": str(stage.saved) if stage.saved else None,
        "data.train_files": str(folder.train),
        "data.val_files": str(folder.validation),
        "data.train_batch_size": config.schedule.problems_per_step,
        "data.shuffle": False,  # the order of problems is ours, so that resuming is exact
        "data.truncation": "error",
        "reward.reward_manager.source": "importlib",
        "reward.reward_manager.name": "Correctness",
        "reward.reward_manager.module.path": "pkg://crt.training.verl.reward",
        "actor_rollout_ref.rollout.agent.default_agent_loop": AGENT,
        "actor_rollout_ref.rollout.agent.agent_loop_config_path": str(folder.agent),
    }


def refuse_ours(config: RunConfig) -> None:
    """What a recipe's [verl] may not say, because its own sections or the method do."""
    model, stage = Model(Path("model"), "bfloat16", 1), Course(1, AccuracyOnly(), 1)
    bare = config.model_copy(update={"verl": {}})
    fixed = training(bare, Path("run"), Folder(Path("run")), stage, model)
    ours = {key.lstrip("+") for key in fixed} - set(usual(config, model))
    for name in flat(config.verl):
        key = name.lstrip("+")
        if key in ours or key.startswith(("crt.", "actor_rollout_ref.model.lora")):
            raise ConfigError(
                f"[verl] {name} is set by the recipe's own sections, or fixed by the method: leave "
                "it out."
            )


def refuse_length_bias(config: RunConfig) -> None:
    """Corrections that weigh or reject a response as a whole, and those that verl would ignore."""
    given = {key.lstrip("+"): value for key, value in flat(config.verl).items()}
    level = given.get(f"{CORRECTION}.rollout_is")
    if level not in (None, "null", "token"):
        raise ConfigError(
            f"[verl] {CORRECTION}.rollout_is = {level!r} weighs a response by its length: use "
            '"token", or "null" for no weights.'
        )
    rejection = given.get(f"{CORRECTION}.rollout_rs")
    if "seq" in str(rejection):
        raise ConfigError(
            f"[verl] {CORRECTION}.rollout_rs = {rejection!r} rejects whole responses, the long "
            'ones first: use "token_k1", "token_k2" or "token_k3", or leave it out.'
        )
    if given.get(f"{CORRECTION}.bypass_mode"):
        raise ConfigError(
            f"[verl] {CORRECTION}.bypass_mode = true takes the sampler's probabilities for the "
            f"policy's own and skips the correction: leave it out, and use {CORRECTION}.rollout_is "
            '= "token".'
        )
