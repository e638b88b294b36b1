"""From a run's configuration to TRL's."""

import dataclasses
from pathlib import Path
from typing import Any

from trl.trainer.grpo_config import GRPOConfig

from crt import plan
from crt.config import RunConfig
from crt.errors import ConfigError, did_you_mean
from crt.io import read_json

LOSS = {"token_mean": "dapo", "sequence_mean": "grpo"}
MICRO_BATCH = {"cpu": 16, "cuda": plan.MICRO_BATCH}  # 16: what fits into a core's cache

OURS = {  # settings of TRL that a recipe sets under its own names, or that the method fixes
    "advantage_estimator", "beta", "bf16", "data_seed", "epsilon", "fp16", "generation_batch_size",
    "gradient_accumulation_steps", "learning_rate", "logging_steps", "loss_type",
    "lr_scheduler_type", "max_completion_length", "max_grad_norm", "max_steps", "num_generations",
    "num_iterations", "num_train_epochs", "output_dir", "per_device_train_batch_size",
    "save_steps", "save_strategy", "save_total_limit", "scale_rewards", "seed", "shuffle_dataset",
    "steps_per_generation", "temperature", "top_p", "use_bias_correction_kl", "warmup_steps",
    "weight_decay",
}  # fmt: skip


BIASED = {  # values under which a response's length decides how much it counts; what to do instead
    "vllm_importance_sampling_mode": (
        ("sequence_mask", "sequence_truncate"),
        'leave it out ("token_truncate") or use "token_mask"',
    ),
    "importance_sampling_level": (("sequence",), 'leave it out ("token")'),
    "mask_truncated_completions": (
        (True,),
        'leave it out, or set grading.truncated = "mask", which keeps the guard\'s count whole',
    ),
}


def settings(
    config: RunConfig, folder: str, steps: int, device: str, ranks: int, dtype: str
) -> GRPOConfig:
    """One optimiser step per generation batch; everything a recipe does not say is TRL's.

    `dtype` is the model's own: passes are made in it (autocast) while trained weights are float32.
    """
    rollouts = config.schedule.problems_per_step * config.sampling.group_size
    micro = micro_batch(rollouts, ranks, config.optim.micro_batch or MICRO_BATCH[device])
    return GRPOConfig(
        **on_device(device, dtype)
        | frozen_reference(config, dtype)
        | passed_on(config.trl)
        | {
            "output_dir": folder,
            "seed": config.seed,
            "data_seed": config.seed,
            "max_steps": steps,
            "per_device_train_batch_size": micro,
            "gradient_accumulation_steps": rollouts // (ranks * micro),
            "num_generations": config.sampling.group_size,
            "num_iterations": 1,
            "max_completion_length": config.sampling.max_tokens,
            "temperature": config.sampling.temperature,
            "top_p": config.sampling.top_p,
            "learning_rate": config.optim.learning_rate,
            "weight_decay": config.optim.weight_decay,
            "warmup_steps": config.optim.warmup_steps,
            "lr_scheduler_type": "constant_with_warmup",
            "epsilon": config.optim.clip,
            "beta": config.optim.kl,
            "use_bias_correction_kl": True,  # k3 with the gradient of KL(π ‖ π_ref), as in verl
            "max_grad_norm": config.optim.grad_norm,
            "loss_type": LOSS[config.optim.loss],
            "shuffle_dataset": False,  # the order of problems is ours, so that resuming is exact
            "logging_steps": 1,
            "save_strategy": "no",  # the recorder says when
            "save_total_limit": None,  # the recorder again: this one goes by the files' times
        }
    )


def on_device(device: str, dtype: str) -> dict[str, Any]:
    """Precision and what a CPU needs; TRL's own defaults are bfloat16 on a GPU."""
    usual = {
        "report_to": [],
        "disable_tqdm": True,
        "log_completions": False,
        "ddp_find_unused_parameters": False,
        "bf16": dtype == "bfloat16",
        "fp16": dtype == "float16",
        # A response's weight must not depend on its length: TRL's default multiplies the ratios
        # of all its tokens.
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": 2.0,
    }
    return usual | ({"use_cpu": True, "gradient_checkpointing": False} if device == "cpu" else {})


def frozen_reference(config: RunConfig, dtype: str) -> dict[str, Any]:
    """TRL loads the model of the KL term as the trained one, in float32, unless it is told."""
    if not config.optim.kl or config.model.lora or dtype == "float32":
        return {}
    return {"model_init_kwargs": {"dtype": dtype}}


def micro_batch(rollouts: int, ranks: int, wanted: int) -> int:
    """The largest number of rollouts up to `wanted` that divides a rank's share."""
    if rollouts % ranks:
        raise ConfigError(
            f"problems_per_step × group_size = {rollouts} cannot be shared by {ranks} devices: "
            "change schedule.problems_per_step."
        )
    share = rollouts // ranks
    return next(size for size in range(min(wanted, share), 0, -1) if share % size == 0)


def check(config: RunConfig, processes: int) -> None:
    """Refuses what cannot work with TRL, before anything is sampled."""
    passed_on(config.trl)
    rollouts = config.schedule.problems_per_step * config.sampling.group_size
    micro_batch(rollouts, processes, 1)


def passed_on(extra: dict[str, Any]) -> dict[str, Any]:
    """Settings for TRL from the recipe's [trl], checked against what TRL has."""
    known = {field.name for field in dataclasses.fields(GRPOConfig)}
    for name, value in extra.items():
        if name in OURS:
            raise ConfigError(f"[trl] {name} is set by the recipe's own sections: set it there.")
        if name not in known:
            raise ConfigError(f"[trl] {name} is no setting of TRL. {did_you_mean(name, known)}")
        biased, instead = BIASED.get(name, ((), ""))
        if value in biased:
            raise ConfigError(
                f'[trl] {name} = "{value}" weighs a response by its length, which is what this '
                f"trainer is about: {instead}."
            )
    require_whole_checkpoints(extra.get("fsdp_config"), extra.get("deepspeed"))
    return dict(extra)


def require_whole_checkpoints(fsdp: Any, deepspeed: Any) -> None:
    """Refuses settings that save a sharded model as shards, which nothing else could load."""
    kind = fsdp.get("state_dict_type") if isinstance(fsdp, dict) else None
    if kind not in (None, "FULL_STATE_DICT"):
        raise ConfigError(
            f'[trl] fsdp_config.state_dict_type = "{kind}" saves shards: leave it out '
            '("FULL_STATE_DICT").'
        )
    config = read_json(Path(deepspeed)) if isinstance(deepspeed, str) else deepspeed or {}
    zero, gather = config.get("zero_optimization", {}), "stage3_gather_16bit_weights_on_model_save"
    if zero.get("stage") == 3 and not zero.get(gather):
        raise ConfigError(
            f"[trl] deepspeed: ZeRO-3 saves shards unless zero_optimization.{gather} = true."
        )
