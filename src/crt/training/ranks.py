"""How many processes train on this machine; light, so that the first line comes at once."""

import os

from crt.config import RunConfig
from crt.errors import ConfigError
from crt.processes import Ranks
from crt.sampling.workers import processes_for_model


def processes_for(config: RunConfig, wanted: int | None = None) -> int:
    """How many processes share every step.

    A small model is trained by one process per physical core, with one thread each. A large one
    has all cores as threads of one process. With a GPU, vLLM or verl there is one, and as many as
    a launcher (torchrun, accelerate) has started stay as they are.
    """
    if "RANK" in os.environ:
        return Ranks.found().count
    rollouts = config.schedule.problems_per_step * config.sampling.group_size
    if wanted is not None:
        if wanted < 1 or rollouts % wanted:
            raise ConfigError(
                f"--processes {wanted}: a step has {rollouts} rollouts, which cannot be shared "
                "equally. Give a number that divides them."
            )
        return wanted
    if config.engine != "local" or config.trl.get("use_vllm"):
        return 1
    most = processes_for_model(config.model.name)
    return next(count for count in range(most, 0, -1) if rollouts % count == 0)
