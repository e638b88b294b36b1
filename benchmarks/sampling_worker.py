"""A process that samples when asked: this package, HF `generate` or vLLM, with so many threads.

Requests come in and counts go out as lines of JSON. vLLM pins a torch of its own, so it often
lives in another environment: CRT_BENCH_VLLM is the path of that one's python.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ANSWER = "answer "
Request = dict[str, Any]  # prompts, num_samples, cap, stop_token_ids, seed


class Sampled(NamedTuple):
    """What a request brought: the length of each rollout, prompt by prompt."""

    lengths: list[list[int]]

    @property
    def tokens(self) -> int:
        return sum(map(sum, self.lengths))


class Workers:
    """One or several processes that share the prompts of every request."""

    def __init__(
        self, engine: str, model: Path, dtype: str, count: int, threads: int, rows: int
    ) -> None:
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "ERROR",
        }
        python = vllm_python() if engine == "vllm" else sys.executable
        command = [str(python), __file__, engine, str(model), dtype, str(rows)]
        self.processes = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, env=environment,
            )
            for _ in range(count)
        ]  # fmt: skip

    def sample(self, request: Request) -> Sampled:
        """All prompts of a request, every process its share of them at the same time."""
        count = len(self.processes)
        asked = [
            (process, request | {"prompts": request["prompts"][first::count]})
            for first, process in enumerate(self.processes)
            if request["prompts"][first::count]
        ]
        for process, part in asked:
            assert process.stdin is not None
            print(json.dumps(part), file=process.stdin, flush=True)
        return Sampled([row for process, _ in asked for row in self._answer(process)])

    def _answer(self, process: "subprocess.Popen[str]") -> list[list[int]]:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
        raise RuntimeError(f"{' '.join(map(str, process.args))} ended without an answer")  # pyright: ignore

    def close(self) -> None:
        """Ends the processes."""
        for process in self.processes:
            process.kill()
            process.wait()


def vllm_python() -> str | None:
    """The interpreter that has vLLM, if there is one."""
    other = os.environ.get("CRT_BENCH_VLLM")
    return other or (sys.executable if find_spec("vllm") else None)


def crt_sampler(folder: str, dtype: str) -> Callable[[Request], list[list[int]]]:
    """This package's sampler."""
    import torch
    from transformers import AutoModelForCausalLM

    from crt.sampling.hf import sample

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    def answer(request: Request) -> list[list[int]]:
        generator = torch.Generator().manual_seed(request["seed"])
        groups = sample(
            model, request["prompts"], request["num_samples"], request["cap"],
            request["stop_token_ids"], generator=generator,
        )  # fmt: skip
        return [[len(one.tokens) for one in group] for group in groups]

    return answer


def generate_sampler(folder: str, dtype: str) -> Callable[[Request], list[list[int]]]:
    """HF `generate` with a padded batch."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    @torch.inference_mode()
    def answer(request: Request) -> list[list[int]]:
        torch.manual_seed(request["seed"])
        prompts, samples = request["prompts"], request["num_samples"]
        stop_token_ids = request["stop_token_ids"]
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        config = GenerationConfig(
            do_sample=True, top_k=0, max_new_tokens=request["cap"], pad_token_id=0,
            eos_token_id=stop_token_ids, num_return_sequences=samples,
        )  # fmt: skip
        rows = model.generate(ids, attention_mask=(ids != 0).long(), generation_config=config)
        tokens = rows[:, width:]
        ended = torch.isin(tokens, torch.tensor(stop_token_ids))
        lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, tokens.shape[1])
        return lengths.view(len(prompts), samples).tolist()

    return answer


def vllm_sampler(folder: str, dtype: str, rows: int) -> Callable[[Request], list[list[int]]]:
    """vLLM's engine in this process."""
    import importlib.metadata as metadata

    real = metadata.version  # vLLM finds out by its own name that it was built for the CPU
    metadata.version = lambda name: f"{real('vllm-cpu')}+cpu" if name == "vllm" else real(name)
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=folder, skip_tokenizer_init=True, dtype=dtype, enforce_eager=True,
        max_model_len=512, max_num_seqs=rows, enable_prefix_caching=True,
    )  # fmt: skip

    def answer(request: Request) -> list[list[int]]:
        params = SamplingParams(
            n=request["num_samples"], temperature=1.0, max_tokens=request["cap"],
            detokenize=False, stop_token_ids=request["stop_token_ids"],
        )  # fmt: skip
        prompts: Sequence[Any] = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
        results = engine.generate(prompts, params, use_tqdm=False)
        return [[len(one.token_ids) for one in result.outputs] for result in results]

    return answer


def main() -> None:
    """Loads the model and answers requests until there are no more."""
    engine, folder, dtype, rows = sys.argv[1:]
    if engine == "vllm":
        answer = vllm_sampler(folder, dtype, int(rows))
    else:
        answer = {"crt": crt_sampler, "generate": generate_sampler}[engine](folder, dtype)
    for line in sys.stdin:
        print(f"{ANSWER}{json.dumps(answer(json.loads(line)))}", flush=True)


if __name__ == "__main__":
    main()
