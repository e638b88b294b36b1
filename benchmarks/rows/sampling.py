"""The sampler beside HF `generate` and vLLM, everybody on all cores, and beside the machine."""

from collections.abc import Iterator
from contextlib import ExitStack

import torch
from harness.results import Row, compared
from harness.timing import Contender, interleaved, timed
from limits import Machine, least_seconds, measure
from models import SHAPES, prompts_for, write_llama
from sampling_worker import Request, Sampled, Workers, vllm_python

from . import SIZES, Setting

GOALS = {  # first place up to 30M, not more than 1.2 × behind vLLM beyond
    "1M": {"generate": 1.0, "vllm": 1.0},
    "30M": {"generate": 1.0, "vllm": 1.0},
    "135M": {"generate": 1.0, "vllm": 1 / 1.2},
}
TITLES = {"generate": "HF generate", "vllm": "vLLM on the CPU"}
PROMPTS = {"1M": 16, "30M": 16, "135M": 8}
SAMPLES = {"1M": 16, "30M": 16, "135M": 8}
DTYPE = {"1M": "float32", "30M": "float32", "135M": "bfloat16"}  # as `crt` chooses
BYTES = {"float32": 4, "bfloat16": 2}


def rows(setting: Setting) -> Iterator[Row]:
    """Seconds per thousand tokens, size by size."""
    for size in SIZES:
        names = {other: f"sampling-{size}-{other}" for other in TITLES}
        others = [other for other, name in names.items() if setting.wants(name)]
        if "vllm" in others and vllm_python() is None:
            others.remove("vllm")
        if not others:
            continue
        dtype = DTYPE[size]
        torch.set_num_threads(setting.cores)
        machine = measure(dtype)
        torch.set_num_threads(1)
        with ExitStack() as stack:
            work = Work(setting, size, dtype, stack)
            timings = interleaved(
                {engine: work.contender(engine) for engine in ("crt", *others)}, setting.repeats
            )
        least = work.least_seconds_per_token(machine)
        for other in others:
            yield compared(
                names[other],
                f"sampling, {size} parameters, {dtype}, {len(work.prompts)}×{SAMPLES[size]} "
                "rollouts",
                TITLES[other], timings["crt"], timings[other], goal=GOALS[size][other],
                unit="s / 1,000 tokens", scale=1000,
                note=f"processes × threads: {work.describe('crt')}, {work.describe(other)}",
                least=least,
            )  # fmt: skip


class Work:
    """One model and its prompts; every engine with the layout of processes that suits it best."""

    def __init__(self, setting: Setting, size: str, dtype: str, stack: ExitStack) -> None:
        self.setting, self.shape, self.dtype, self.stack = setting, SHAPES[size], dtype, stack
        self.samples = SAMPLES[size]
        self.prompts = prompts_for(self.shape, 2 if setting.small else PROMPTS[size])
        self.folder = write_llama(self.shape, setting.folder / f"model-{size}", dtype)
        self.layouts: dict[str, tuple[int, int]] = {}
        self.ours: list[Sampled] = []

    def contender(self, engine: str) -> Contender:
        """Samples all prompts, once per repeat."""
        workers = self._best_layout(engine)

        def run(repeat: int) -> float:
            sampled = workers.sample(self._request(repeat))
            if engine == "crt" and repeat >= 0:
                self.ours.append(sampled)
            return sampled.tokens

        return run

    def _best_layout(self, engine: str) -> Workers:
        """One process per core, or one with all cores as threads: whichever is faster."""
        cores = self.setting.cores
        seconds: dict[tuple[int, int], float] = {}
        tried: dict[tuple[int, int], Workers] = {}
        for count, threads in dict.fromkeys([(cores, 1), (1, cores)]):
            rows = len(self.prompts) * self.samples
            workers = Workers(engine, self.folder, self.dtype, count, threads, rows)
            self.stack.callback(workers.close)
            workers.sample(self._request(-2) | {"cap": 2})
            timing = timed(lambda _, w=workers: w.sample(self._request(-2)).tokens, -2)
            tried[count, threads], seconds[count, threads] = workers, timing.wall_each
        best = min(seconds, key=lambda layout: seconds[layout])
        for layout, workers in tried.items():
            if layout != best:
                workers.close()
        self.layouts[engine] = best
        return tried[best]

    def describe(self, engine: str) -> str:
        """The layout that an engine was measured with."""
        count, threads = self.layouts[engine]
        return f"{engine} {count} × {threads}"

    def _request(self, repeat: int) -> Request:
        return {
            "prompts": self.prompts, "num_samples": self.samples, "cap": self.shape.cap,
            "stop_token_ids": self.shape.stop_token_ids, "seed": repeat + 3,
        }  # fmt: skip

    def least_seconds_per_token(self, machine: Machine) -> float:
        """What nobody on this machine can be faster than, for the rollouts that ours sampled."""
        count = self.layouts["crt"][0]
        order = [i for first in range(count) for i in range(first, len(self.prompts), count)]
        prompts = [len(self.prompts[i]) for i in order]
        weights = BYTES[self.dtype] * (self.shape.layer_weights + self.shape.head_weights)
        least = [
            least_seconds(machine, self.shape, prompts, one.lengths, weights) for one in self.ours
        ]
        return sum(least) / sum(one.tokens for one in self.ours)
