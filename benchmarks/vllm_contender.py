"""vLLM as a contender: in this interpreter's environment or in that of CRT_BENCH_VLLM.

vLLM pins a torch of its own, so it often lives in another environment: CRT_BENCH_VLLM is the
path of that one's python. This file is also what runs there: requests in, counts out, by lines.
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from typing import Any


def vllm_python() -> str | None:
    """The interpreter that has vLLM, if there is one."""
    other = os.environ.get("CRT_BENCH_VLLM")
    return other or (sys.executable if find_spec("vllm") else None)


class Vllm:
    """A process with the model loaded, which samples when asked."""

    def __init__(self, model: Any, threads: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        model.save_pretrained(self.folder.name)
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "ERROR",
        }
        self.process = subprocess.Popen(
            [str(vllm_python()), __file__, self.folder.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=environment,
        )  # fmt: skip

    def sampled(self, prompts: list[list[int]], copies: int, cap: int, ends: list[int]) -> float:
        """Tokens of `copies` rollouts of each prompt."""
        assert self.process.stdin is not None and self.process.stdout is not None
        asked = {"prompts": prompts, "copies": copies, "cap": cap, "ends": ends}
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                return float(line.removeprefix(ANSWER))
        raise RuntimeError(f"{vllm_python()} ended without an answer: does vLLM run there?")

    def close(self) -> None:
        """Ends the process."""
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


ANSWER = "tokens "


def main() -> None:
    """Loads the model and answers requests until there are no more."""
    import importlib.metadata as metadata

    real = metadata.version  # vLLM finds out by its own name that it was built for the CPU
    metadata.version = lambda name: f"{real('vllm-cpu')}+cpu" if name == "vllm" else real(name)
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=sys.argv[1], skip_tokenizer_init=True, dtype="float32", enforce_eager=True,
        max_model_len=512, max_num_seqs=256, enable_prefix_caching=True,
    )  # fmt: skip
    for line in sys.stdin:
        asked = json.loads(line)
        how = SamplingParams(
            n=asked["copies"], temperature=1.0, max_tokens=asked["cap"], detokenize=False,
            stop_token_ids=asked["ends"],
        )  # fmt: skip
        told = engine.generate(
            [{"prompt_token_ids": prompt} for prompt in asked["prompts"]], how, use_tqdm=False
        )
        count = sum(len(one.token_ids) for each in told for one in each.outputs)
        print(f"{ANSWER}{count}", flush=True)


if __name__ == "__main__":
    main()
