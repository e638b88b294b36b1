"""Sampling on every core of a CPU: processes with one thread each, for small models.

What is drawn for a prompt depends on the seed and the prompt alone, so the number of processes
changes nothing. Processes are kept for the next model; they end with the one that started them.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crt.errors import CrtError, EngineError
from crt.pocket import is_world
from crt.processes import ends_with_parent, has_gpu, physical_cores
from crt.sampling.base import InProcess, Sampler, Sampling, Seed, rows_that_fit
from crt.sampling.models import (
    Dtype,
    ModelFiles,
    base_of,
    cache_bytes,
    model_files,
    model_folder,
    with_weights,
)

if TYPE_CHECKING:
    from crt.sampling.hf import Sample

SMALL_MODEL = 400 * 2**20  # bytes of weights: below it one thread per process is faster
PROCESSES = "CRT_PROCESSES"  # how many at most, where the machine has more cores


def processes_for_model(name: str) -> int:
    """One per physical core for a small model on a CPU, else one with a thread per core."""
    if has_gpu() or "RANK" in os.environ or not is_small(name):
        return 1
    return max(1, int(os.environ.get(PROCESSES) or physical_cores()))


def is_small(model: str) -> bool:
    """Whether a model's weights, if they are on this machine, are few."""
    if not is_world(model) and not Path(model).is_dir():
        return False
    folder = model_folder(model)
    if (folder / "adapter_config.json").is_file():
        return is_small(base_of(folder))
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) < SMALL_MODEL


def sampler_on_all_cores(
    files: ModelFiles, sampling: Sampling, dtype: Dtype = "auto", trust_remote_code: bool = False
) -> tuple[Sampler, str]:
    """The fast sampler on this machine, and the number format of its weights."""
    count = processes_for_model(str(files.folder))
    if count > 1:
        sampler = MultiProcess(files, sampling, dtype, trust_remote_code, count)
        return sampler, sampler.dtype
    loaded = with_weights(files, dtype, trust_remote_code)
    return InProcess(loaded.model, files.eos_token_ids, sampling), loaded.dtype


class MultiProcess:
    """The fast sampler in several processes, each with the model and a share of the prompts."""

    def __init__(
        self,
        files: ModelFiles,
        sampling: Sampling,
        dtype: Dtype,
        trust_remote_code: bool,
        count: int,
    ) -> None:
        self.sampling = sampling
        self.request = {
            "model": str(files.folder),
            "dtype": dtype,
            "trust_remote_code": trust_remote_code,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        self.workers = started_workers(count)
        described = ask(self.workers, [self.request | {"prompts": []}] * count)[0]
        self.dtype: str = described["dtype"]
        self.cache_bytes: int = described["cache_bytes"]

    def __call__(
        self, prompts: Sequence[Sequence[int]], num_samples: int, seed: Seed
    ) -> "list[list[Sample]]":
        """Equal prompts go to one process, which tells them apart by their order."""
        from crt.sampling.hf import Sample

        count = len(self.workers)
        place: dict[tuple[int, ...], int] = {}
        owner = [place.setdefault(tuple(prompt), len(place)) % count for prompt in prompts]
        shares = [[i for i in range(len(prompts)) if owner[i] == n] for n in range(count)]
        requests = [
            self.request
            | {
                "prompts": [list(prompts[i]) for i in share],
                "samples": num_samples,
                "seed": seed if isinstance(seed, int) else [seed[i] for i in share],
            }
            for share in shares
        ]
        groups: dict[int, list[Sample]] = {}
        for share, reply in zip(shares, ask(self.workers, requests), strict=True):
            drawn = [[Sample(*values) for values in group] for group in reply["groups"]]
            groups.update(zip(share, drawn, strict=True))
        return [groups[i] for i in range(len(prompts))]

    def batch_size(self, longest_prompt: int) -> int:
        """As in one process, so that a batch holds the same with any number."""
        return rows_that_fit(self.cache_bytes, longest_prompt + self.sampling.max_tokens)


Worker = subprocess.Popen[str]
_started: list[Worker] = []


def started_workers(count: int) -> list[Worker]:
    """So many processes, those that are there first."""
    _started[:] = [worker for worker in _started if worker.poll() is None]
    while len(_started) < count:
        _started.append(
            subprocess.Popen(
                [sys.executable, "-m", "crt.sampling.workers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1", PROCESSES: "1"},
                start_new_session=True,  # Ctrl-C is for the process that waits for them
                preexec_fn=ends_with_parent(signal.SIGKILL),
            )
        )
    return _started[:count]


def ask(workers: Sequence[Worker], requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A request for each worker; all work at the same time."""
    try:
        for worker, request in zip(workers, requests, strict=True):
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdin.flush()
        replies = [json.loads(worker.stdout.readline()) for worker in workers if worker.stdout]
    except (OSError, ValueError):
        for worker in workers:  # an answer of this request must not be taken for the next one's
            worker.kill()
            worker.wait()
        raise EngineError(
            "a process that samples has ended. If memory ran out, set CRT_PROCESSES=1."
        ) from None
    for reply in replies:
        if "error" in reply:
            raise EngineError(reply["error"])
    return replies


# --- in the worker -------------------------------------------------------------------------------


def main() -> None:
    """Answers requests until standard input ends; libraries that print do so elsewhere."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    loaded: dict[tuple[Any, ...], Any] = {}
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line), loaded)
        except CrtError as error:
            reply = {"error": str(error)}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def answer(request: dict[str, Any], loaded: dict[tuple[Any, ...], Any]) -> dict[str, Any]:
    """Samples for the prompts; `loaded` holds the model of the last request."""
    trusted = request["trust_remote_code"]
    key = (request["model"], request["dtype"], trusted)
    if key not in loaded:
        loaded.clear()
        files = model_files(request["model"], trust_remote_code=trusted)
        loaded[key] = with_weights(files, request["dtype"], trusted)
    model = loaded[key]
    if not request["prompts"]:
        return {"dtype": model.dtype, "cache_bytes": cache_bytes(model.model), "groups": []}
    how = Sampling(request["max_tokens"], request["temperature"], request["top_p"])
    sampler = InProcess(model.model, model.files.eos_token_ids, how)
    groups = sampler(request["prompts"], request["samples"], request["seed"])
    return {"groups": [[(s.tokens, s.logprobs, s.stop) for s in group] for group in groups]}


if __name__ == "__main__":
    main()
