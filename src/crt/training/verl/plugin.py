"""Loaded by verl (VERL_USE_EXTERNAL_MODULES): registers the trainer under its name."""

from pathlib import Path
from typing import Any

from verl.trainer.ppo.v1.trainer_base import (  # pyright: ignore[reportMissingImports]
    register_trainer,
)

from crt.run import Run
from crt.training.stage import stage_of
from crt.training.verl.fit import folder_of
from crt.training.verl.overrides import TRAINER
from crt.training.verl.recorder import ClusterRecorder
from crt.training.verl.trainer import ClusterTrainer


@register_trainer(TRAINER)
class RunTrainer(ClusterTrainer):
    """The trainer of a run: `trainer.v1.trainer_mode=crt`, `crt.run` its directory."""

    def __init__(self, config: Any) -> None:
        run = Run.open(Path(config.crt.run))
        stage, model = stage_of(run), Path(config.actor_rollout_ref.model.path)
        recorder = ClusterRecorder(run, stage, folder_of(run, stage), model)
        super().__init__(config, run, recorder)
