"""From a run's configuration to TRL's."""

import dataclasses
from typing import Any

from trl.trainer.grpo_config import GRPOConfig

from crt import plan
from crt.config import RunConfig
from crt.errors import ConfigError, did_you_mean

LOSS = {"token_mean": "dapo", "sequence_mean": "grpo"}
MICRO_BATCH = {"cpu": 16, "cuda": plan.MICRO_BATCH}  # 16: what fits into a core's cache

OURS = {  # settings of TRL that a recipe sets under its own names, or that the method fixes
    "advantage_estimator", "beta", "data_seed", "epsilon", "gradient_accumulation_steps",
    "learning_rate", "logging_steps", "loss_type", "lr_scheduler_type", "max_completion_length",
    "max_grad_norm", "max_steps", "num_generations", "num_iterations", "num_train_epochs",
    "output_dir", "per_device_train_batch_size", "save_steps", "save_strategy",
    "save_total_limit", "scale_rewards", "seed", "shuffle_dataset", "steps_per_generation",
    "generation_batch_size", "temperature", "top_p", "warmup_steps", "weight_decay",
}  # fmt: skip


def settings(config: RunConfig, folder: str, steps: int, device: str, ranks: int) -> GRPOConfig:
    """One optimiser step a generation batch; everything a recipe does not say is TRL's."""
    rollouts = config.schedule.problems_per_step * config.sampling.group_size
    micro = micro_batch(rollouts, ranks, config.optim.micro_batch or MICRO_BATCH[device])
    return GRPOConfig(
        **on_device(device)
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
            "max_grad_norm": config.optim.grad_norm,
            "loss_type": LOSS[config.optim.loss],
            "shuffle_dataset": False,  # the order of problems is ours, so that resuming is exact
            "logging_steps": 1,
            "save_strategy": "no",  # the recorder says when
            "save_total_limit": None,  # the recorder again: this one goes by the files' times
        }
    )


def on_device(device: str) -> dict[str, Any]:
    """TRL's defaults are for a GPU: bfloat16 generation is three times slower on a CPU."""
    quiet = {
        "report_to": [],
        "disable_tqdm": True,
        "log_completions": False,
        "ddp_find_unused_parameters": False,
    }
    if device == "cpu":
        return quiet | {"use_cpu": True, "bf16": False, "gradient_checkpointing": False}
    return quiet


def micro_batch(rollouts: int, ranks: int, wanted: int) -> int:
    """The largest number of rollouts up to `wanted` that divides a rank's share."""
    if rollouts % ranks:
        raise ConfigError(
            f"problems_per_step × group_size = {rollouts} cannot be shared by {ranks} devices: "
            "change schedule.problems_per_step."
        )
    share = rollouts // ranks
    return next(size for size in range(min(wanted, share), 0, -1) if share % size == 0)


def passed_on(extra: dict[str, Any]) -> dict[str, Any]:
    """Settings for TRL from the recipe's [trl], checked against what TRL has."""
    known = {field.name for field in dataclasses.fields(GRPOConfig)}
    for name in extra:
        if name in OURS:
            raise ConfigError(f"[trl] {name} is set by the recipe's own sections: set it there.")
        if name not in known:
            raise ConfigError(f"[trl] {name} is no setting of TRL. {did_you_mean(name, known)}")
    return dict(extra)
