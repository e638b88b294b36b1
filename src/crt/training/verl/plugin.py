"""Loaded by verl (VERL_USE_EXTERNAL_MODULES): registers the trainer under its name."""

import sys
from pathlib import Path
from typing import Any

from verl.trainer.ppo.v1.trainer_base import (  # pyright: ignore[reportMissingImports]
    register_trainer,
)
from verl.utils.import_utils import is_trl_available  # pyright: ignore[reportMissingImports]

from crt.run import Run
from crt.training.stage import stage_of
from crt.training.verl.fit import folder_of
from crt.training.verl.overrides import TRAINER
from crt.training.verl.recorder import ClusterRecorder
from crt.training.verl.trainer import ClusterTrainer


def hide_trl() -> None:
    """TRL may be installed beside verl: 0.9.1 would import a class that TRL 1.16 does not have.

    verl asks once whether TRL is there and remembers the answer.
    """
    installed = {name: module for name, module in sys.modules.items() if name == "trl"}
    sys.modules["trl"] = None  # pyright: ignore[reportArgumentType]
    try:
        is_trl_available()
    finally:
        del sys.modules["trl"]
        sys.modules.update(installed)


hide_trl()


@register_trainer(TRAINER)
class RunTrainer(ClusterTrainer):
    """The trainer of a run: `trainer.v1.trainer_mode=crt`, `crt.run` its directory."""

    def __init__(self, config: Any) -> None:
        run = Run.open(Path(config.crt.run))
        stage, model = stage_of(run), Path(config.actor_rollout_ref.model.path)
        recorder = ClusterRecorder(run, stage, folder_of(run, stage), model)
        super().__init__(config, run, recorder)
