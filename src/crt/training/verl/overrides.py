# pyright: reportMissingImports=false
"""From a run's configuration to verl's: the overrides that follow its command."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crt.algorithm.contract import inner_of
from crt.algorithm.objectives import AccuracyOnly
from crt.algorithm.registry import name_of
from crt.algorithm.two_stage import TwoStage
from crt.config import RunConfig, settings_of
from crt.training.context import validation_sampling
from crt.training.stage import Stage
from crt.training.verl.data import StageFolder

MODULES = "VERL_USE_EXTERNAL_MODULES"
VARIABLES = "+ray_kwargs.ray_init.runtime_env.env_vars"
PLUGIN = "crt.training.verl.trainer"  # what verl loads: trainer, agent loop and reward manager
NAME = "crt"  # under which verl finds the trainer and the agent loop
ACTOR, REF = "actor_rollout_ref.actor", "actor_rollout_ref.ref"
ROLLOUT, MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"
MICRO_BATCH = (
    f"{ACTOR}.ppo_micro_batch_size_per_gpu",
    f"{REF}.log_prob_micro_batch_size_per_gpu",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
)
LOSS = {"token_mean": "token-mean", "sequence_mean": "seq-mean-token-mean"}
SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
CORRECTION = "algorithm.rollout_correction"
TOKENS_AT_ONCE = 16384  # of all responses in one pass of a device, where no number is given
PLAIN = re.compile(r"[\w./@+-]+")

Overrides = dict[str, Any]  # dotted key → value


@dataclass(frozen=True)
class Model:
    """What a stage starts from."""

    folder: Path
    dtype: str
    longest_prompt: int
    eos_token_ids: tuple[int, ...] = ()
    adapter: Path | None = None  # on `folder`, to be trained on


def training(
    config: RunConfig,
    run: Path,
    folder: StageFolder,
    stage: Stage,
    model: Model,
    saved: Path | None = None,
) -> Overrides:
    """Every override of a stage's training; `saved` is verl's checkpoint to go on from."""
    ours = {
        "run": str(run),
        "eos_token_ids": list(model.eos_token_ids),
        "objective": settings_of(inner_of(stage.objective)),
    }
    return (
        usual(config, model)
        | flat(config.verl)
        | _model_and_sampler(config, model)
        | _update(config)
        | _lora(config, model)
        | _loop(config, folder, stage, saved)
        | flat({"+crt": ours})
        | {f"{VARIABLES}.{MODULES}": modules(os.environ.get(MODULES, ""), PLUGIN)}
    )


def sampling(config: RunConfig, model: Model) -> Overrides:
    """The same rollout engine by itself, with a model as it is in its folder."""
    named = modules(os.environ.get(MODULES, ""))
    return (
        usual(config, model)
        | flat(config.verl)
        | _model_and_sampler(config, model)
        | {
            f"{ROLLOUT}.nnodes": config.cluster.nodes,
            f"{ROLLOUT}.n_gpus_per_node": config.cluster.devices,
            f"{ROLLOUT}.load_format": "auto",
        }
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
        f"{ACTOR}.ppo_max_token_len_per_gpu": max(TOKENS_AT_ONCE, longest),
        f"{ACTOR}.strategy": "fsdp2",
        f"{ROLLOUT}.gpu_memory_utilization": 0.6,
        f"{ROLLOUT}.name": "vllm",
        "trainer.logger": ["console"],
        "trainer.project_name": "crt",
        "data.dataloader_num_workers": 0,
        # Per token: a weight of the whole sequence would favour short responses.
        f"{CORRECTION}.rollout_is": "token",
        f"{CORRECTION}.rollout_is_threshold": 2.0,
    }


def _model_and_sampler(config: RunConfig, model: Model) -> Overrides:
    """The same for policy and reference."""
    sampler, cluster, validation = config.sampling, config.cluster, validation_sampling(config)
    # The largest cap of training, reference and validation; the data files hold each row's own.
    longest = max(sampler.max_tokens, validation.max_tokens, config.reference.max_tokens or 0)
    short = SHORT[model.dtype]
    return {
        f"{MODEL}.path": str(model.folder),
        f"{MODEL}.trust_remote_code": config.model.trust_remote_code,
        "trainer.nnodes": cluster.nodes,
        "trainer.n_gpus_per_node": cluster.devices,
        f"{ROLLOUT}.tensor_model_parallel_size": cluster.tensor_parallel,
        f"{ROLLOUT}.dtype": model.dtype,
        f"{ROLLOUT}.n": sampler.group_size,
        f"{ROLLOUT}.temperature": sampler.temperature,
        f"{ROLLOUT}.top_p": sampler.top_p,
        f"{ROLLOUT}.top_k": -1,
        f"{ROLLOUT}.seed": config.seed,
        f"{ROLLOUT}.max_model_len": model.longest_prompt + longest,
        f"{ROLLOUT}.calculate_log_probs": True,
        f"{ROLLOUT}.val_kwargs.do_sample": True,
        f"{ROLLOUT}.val_kwargs.n": config.validation.rollouts,
        f"{ROLLOUT}.val_kwargs.temperature": validation.temperature,
        f"{ROLLOUT}.val_kwargs.top_p": validation.top_p,
        "data.max_prompt_length": model.longest_prompt,
        "data.max_response_length": longest,
        # Float32 weights to train, as verl has them; passes are in the model's own precision.
        f"{ACTOR}.fsdp_config.model_dtype": "fp32",
        f"{ACTOR}.fsdp_config.dtype": model.dtype,
        f"+{ACTOR}.fsdp_config.mixed_precision.param_dtype": short,
        f"{REF}.fsdp_config.model_dtype": short,
        f"{REF}.fsdp_config.dtype": model.dtype,
        f"+{REF}.fsdp_config.mixed_precision.param_dtype": short,
    }


def _update(config: RunConfig) -> Overrides:
    """One policy-gradient step per batch."""
    optim = config.optim
    return {
        "algorithm.adv_estimator": "grpo",  # no critic; its advantages are replaced
        "algorithm.use_kl_in_reward": False,
        f"{ACTOR}.ppo_mini_batch_size": config.schedule.problems_per_step,
        f"{ACTOR}.ppo_epochs": 1,
        f"{ACTOR}.clip_ratio": optim.clip,
        f"{ACTOR}.clip_ratio_low": optim.clip,
        f"{ACTOR}.clip_ratio_high": optim.clip,
        f"{ACTOR}.loss_agg_mode": LOSS[optim.loss],
        f"{ACTOR}.use_kl_loss": optim.kl > 0,
        f"{ACTOR}.kl_loss_coef": optim.kl,
        # The value of k3 with the gradient of k2, which is that of the KL; k3's own is not.
        f"{ACTOR}.kl_loss_type": "low_var_kl+",
        f"{ACTOR}.optim.lr": optim.learning_rate,
        f"{ACTOR}.optim.weight_decay": optim.weight_decay,
        f"{ACTOR}.optim.lr_warmup_steps": optim.warmup_steps,
        f"{ACTOR}.optim.lr_scheduler_type": "constant",
        f"{ACTOR}.grad_clip": optim.grad_norm,
        f"{ACTOR}.optim.clip_grad": optim.grad_norm,
        f"{ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{ACTOR}.checkpoint.load_contents": ["model", "optimizer", "extra"],
        # So many rollouts in a pass, or as many as there are tokens for.
        f"{ACTOR}.use_dynamic_bsz": optim.micro_batch is None,
        **dict.fromkeys(MICRO_BATCH if optim.micro_batch else (), optim.micro_batch),
    }


def _lora(config: RunConfig, model: Model) -> Overrides:
    """An adapter in place of all weights; the servers hold the base and are sent the adapter."""
    lora = config.model.lora
    if lora is None:
        return {}
    return {
        f"{MODEL}.lora_rank": lora.rank,
        f"{MODEL}.lora_alpha": int(lora.alpha),
        f"{MODEL}.target_modules": lora.targets,
        f"{MODEL}.lora_adapter_path": str(model.adapter) if model.adapter else None,
        f"{ROLLOUT}.load_format": "safetensors",
        # verl would write an adapter's weights under names that no library reads
        f"{ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra"],
        f"+{ACTOR}.checkpoint.save_lora_only": True,
    }


def _loop(config: RunConfig, folder: StageFolder, stage: Stage, saved: Path | None) -> Overrides:
    """What the method fixes: the trainer, when it saves, its data, and who samples and grades."""
    return {
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": NAME,
        "trainer.experiment_name": f"{config.name}-stage{stage.number}",
        "trainer.total_training_steps": stage.steps,
        "trainer.total_epochs": 1,
        "trainer.val_before_train": False,
        "trainer.save_freq": -1,  # the trainer says when
        "trainer.test_freq": -1,
        "trainer.default_local_dir": str(folder.saved),
        "trainer.resume_mode": "resume_path" if saved else "disable",
        "trainer.resume_from_path": str(saved) if saved else None,
        "data.train_files": str(folder.train),
        "data.val_files": str(folder.validation),
        "data.train_batch_size": config.schedule.problems_per_step,
        "data.shuffle": False,  # the order of problems is ours, so that resuming is exact
        "data.truncation": "error",
        "reward.reward_manager.source": "importlib",
        "reward.reward_manager.name": "Correctness",
        "reward.reward_manager.module.path": f"pkg://{PLUGIN}",
        f"{ROLLOUT}.agent.default_agent_loop": NAME,
    }


def mistakes(config: RunConfig, processes: int = 1) -> Iterator[str]:
    """What a recipe says that a cluster cannot do, or that verl may not be told."""
    cluster, lora, only = config.cluster, config.model.lora, 'with engine = "verl"'
    devices = cluster.nodes * cluster.devices
    rollouts = config.schedule.problems_per_step * config.sampling.group_size
    if config.sampling.source == "reference":
        yield (
            f'method "{name_of(config.method)}" with sampling.source = "reference" cannot run '
            f'{only}, which samples the policy itself: set sampling.source = "policy".'
        )
    if config.reference.mode == "fresh":
        yield (
            f'reference.mode = "fresh" cannot run {only}: a second model would have to be sampled '
            'in every step. Set reference.mode = "cached".'
        )
    if lora and (lora.dropout > 0 or not lora.alpha.is_integer()):
        yield (
            f"model.lora.dropout = {lora.dropout} and model.lora.alpha = {lora.alpha} cannot run "
            f"{only}: verl 0.9.1 has no dropout in adapters, and its alpha is a whole number."
        )
    if lora and isinstance(config.method, TwoStage) and config.optim.kl > 0:
        yield (
            f"model.lora with optim.kl = {config.optim.kl} cannot run two stages {only}: verl's "
            "KL is to the base without the adapter. Set optim.kl = 0."
        )
    if config.trl:
        yield f"[trl] has no meaning {only}: use [verl], or leave it out."
    if processes > 1:
        yield f"{processes} processes of a launcher {only}: start `crt train` once, on the head."
    if rollouts % devices:
        yield (
            f"problems_per_step × group_size = {rollouts} cannot be shared by {devices} devices: "
            "change schedule.problems_per_step."
        )
    if devices % cluster.tensor_parallel:
        yield (
            f"cluster.tensor_parallel = {cluster.tensor_parallel} does not divide the {devices} "
            "devices."
        )
    yield from _mistakes_of_verl(config)


def _mistakes_of_verl(config: RunConfig) -> Iterator[str]:
    """What [verl] may not say: what is set elsewhere, and corrections that prefer short answers."""
    model, stage = Model(Path("model"), "bfloat16", 1), Stage(1, AccuracyOnly(), "model", 0, 1)
    bare = config.model_copy(update={"verl": {}})
    fixed = training(bare, Path("run"), StageFolder(Path("run")), stage, model)
    ours = {key.lstrip("+") for key in fixed} - set(usual(config, model))
    given = {key.lstrip("+"): value for key, value in flat(config.verl).items()}
    for key in given:
        if key in ours or key.startswith(("crt.", f"{MODEL}.lora")):
            yield (
                f"[verl] {key} is set by the recipe's own sections, or fixed by the method: leave "
                "it out."
            )
    refused = {  # of the rollout correction: the values that may stand there
        "rollout_is": 'weighs whole responses by their length: use "token", or "null" for none',
        "rollout_rs": 'rejects whole responses, the long ones first: use "token_k1", _k2 or _k3',
        "bypass_mode": 'skips the correction: leave it out, and use rollout_is = "token"',
    }
    values = {name: given.get(f"{CORRECTION}.{name}") for name in refused}
    wrong = {
        "rollout_is": values["rollout_is"] not in (None, "null", "token"),
        "rollout_rs": "seq" in str(values["rollout_rs"]),
        "bypass_mode": bool(values["bypass_mode"]),
    }
    for name in (name for name in wrong if wrong[name]):
        yield f"[verl] {CORRECTION}.{name} = {values[name]!r} {refused[name]}."


def flat(table: Mapping[str, Any], above: str = "") -> Overrides:
    """Tables below tables as dotted keys.

    A plus, for a key that verl does not have yet, may stand at any part of it.
    """
    overrides: Overrides = {}
    for name, value in table.items():
        key = above + name
        if isinstance(value, Mapping):
            overrides |= flat(value, f"{key}.")
        else:
            overrides["+" * ("+" in key) + key.replace("+", "")] = value
    return overrides


def arguments(overrides: Overrides) -> list[str]:
    """As arguments of verl's command."""
    return [f"{key}={hydra_value(value)}" for key, value in overrides.items()]


def hydra_value(value: Any) -> str:
    """A value in the grammar of verl's command line (Hydra's)."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(hydra_value(part) for part in value) + "]"
    if PLAIN.fullmatch(str(value)):
        return str(value)
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"


def compose_config(overrides: Overrides) -> Any:
    """verl's whole configuration with these overrides, as its own command makes it."""
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=arguments(overrides))
