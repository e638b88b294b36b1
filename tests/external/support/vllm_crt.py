"""`crt` with TRL's vLLM on a CPU. A line of the file NOTES tells of every step and every sampling.

STALE in the environment keeps new weights from vLLM. KILLED_AT ends the process with -9 in that
step, before its row is written. SHARDED makes processes that shard the model over gloo.
"""

import gc
import json
import os
import sys
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import tcp_weights
import trl.generation.vllm_generation as trls
import vllm

from crt.cli import main
from crt.training.trl.trainer import CRTTrainer

LLM, Generation = trls.LLM, trls.VLLMGeneration
_log, _generate = CRTTrainer.log, Generation.generate
if "SHARDED" in os.environ:
    import sharded  # noqa: F401
models: list[Any] = []  # of vLLM, as weak references


def note(**values: Any) -> None:
    if os.environ.get("RANK", "0") != "0":
        return
    with Path(os.environ["NOTES"]).open("a") as file:
        print(json.dumps(values), file=file)


def log(self: Any, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
    """TRL's own logging, which adds its metrics to what it is given."""
    _log(self, logs, *args, **kwargs)
    note(logged=self.state.log_history[-1], correction=self.vllm_importance_sampling_mode)


def engine(**settings: Any) -> Any:
    """Not compiled, which would take minutes; in float32, where TRL lets vLLM choose a half."""
    gc.collect()
    note(engine=settings["model"], others=sum(model() is not None for model in models))
    llm = LLM(**settings, enforce_eager=True, dtype="float32")
    worker: Any = llm.llm_engine.model_executor.driver_worker
    models.append(weakref.ref(worker.model_runner.model))
    return llm


def generate(self: Any, prompts: Any, *args: Any, **kwargs: Any) -> Any:
    """TRL's own, and with which settings."""
    output = _generate(self, prompts, *args, **kwargs)
    note(
        sampled=len(prompts),
        temperature=self.temperature,
        cap=self.max_completion_length,
        longest=max(map(len, output[1])),
    )
    return output


tcp_weights.use_in_trl()
CRTTrainer.log, trls.LLM, Generation.generate = log, engine, generate
vllm.LLM = partial(LLM, enforce_eager=True)  # an engine of our own: the reference, crt eval
if "STALE" in os.environ:
    Generation.sync_weights = lambda self: None

if __name__ == "__main__":
    if "KILLED_AT" in os.environ:
        from tests.support.trained import MOMENTS

        MOMENTS["before the row"](int(os.environ["KILLED_AT"]))
    sys.exit(main(sys.argv[1:]))
