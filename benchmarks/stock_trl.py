"""TRL's GRPOTrainer as it comes, on pocket problems: what a user has without this package.

Usage: python benchmarks/stock_trl.py --steps 3 [--model pocket] [--problems 16] [--group 16]
                                      [--cap 256] [--rows 64] [--dtype float32]

Prints a line of JSON per step: its seconds and the tokens generated, of all processes. Several
processes are started by torch's own launcher: python -m torch.distributed.run.
"""

import argparse
import json
import os
import tempfile
import time
from typing import Any

from crt.processes import silence_libraries

silence_libraries()

import torch  # noqa: E402
from accelerate.utils import gather_object  # noqa: E402
from datasets import Dataset  # noqa: E402
from math_verify import parse, verify  # noqa: E402
from transformers import TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from crt.data.datasets import load  # noqa: E402
from crt.data.prompts import PromptSettings, prepare, render  # noqa: E402
from crt.sampling.models import load_model  # noqa: E402


def main() -> None:
    """Trains a few steps; the first one warms up, and is printed too."""
    args = arguments()
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    loaded = load_model(args.model, dtype=args.dtype)
    template = prepare(loaded.tokenizer, PromptSettings())
    problems = load(f"pocket/train:{args.problems * args.steps}").problems
    rows = [
        {
            "prompt": [dict(turn) for turn in render(problem, template).messages],
            "answer": problem.answer,
        }
        for problem in problems
    ]
    rollouts = args.problems * args.group // processes
    per_pass = min(args.rows, rollouts)
    clock = StepClock()

    def correct(completions: Any, completion_ids: Any, answer: Any, **_: Any) -> list[float]:
        clock.tokens += sum(gather_object([sum(map(len, completion_ids))]))
        texts = (turns[0]["content"] for turns in completions)
        pairs = zip(texts, answer, strict=True)
        return [float(verify(parse(f"${gold}$"), parse(text))) for text, gold in pairs]

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=loaded.model.train(),
            reward_funcs=[correct],
            args=GRPOConfig(
                output_dir=folder, use_cpu=True, bf16=args.dtype == "bfloat16", beta=0.0,
                gradient_checkpointing=False, per_device_train_batch_size=per_pass,
                gradient_accumulation_steps=rollouts // per_pass, num_generations=args.group,
                max_completion_length=args.cap, max_steps=args.steps, learning_rate=1e-6,
                save_strategy="no", report_to=[], disable_tqdm=True, loss_type="dapo", seed=0,
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=loaded.tokenizer,
            callbacks=[clock],
        )  # fmt: skip
        trainer.train()


class StepClock(TrainerCallback):
    """Prints each step's seconds and tokens on the first process."""

    def __init__(self) -> None:
        self.tokens = 0
        self.began = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Sampling and update follow."""
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The weights have moved."""
        seconds = time.perf_counter() - self.began
        if state.is_world_process_zero:
            print(json.dumps({"seconds": seconds, "tokens": self.tokens}), flush=True)
        self.tokens = 0


def arguments() -> argparse.Namespace:
    """The size of a step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--problems", type=int, default=16)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--cap", type=int, default=256)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rows", type=int, default=64, help="rows in one pass")
    parser.add_argument("--dtype", default="float32")
    return parser.parse_args()


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
