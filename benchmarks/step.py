"""One training step: ours against stock TRL, same model, prompts, batch and cap, side by side.

Usage: python benchmarks/step.py [--model pocket] [--problems 16] [--group 16] [--repeats 3]

Both trainers sample, grade with the same grader, and update once. Steps alternate between the two;
seconds are CPU seconds per thousand generated tokens, because what is sampled differs in length.
The guard is timed apart, in the same steps: looking the reference up in the cache on
disk, and deciding; all the rest of a step is what plain GRPO costs on this engine.
"""

import argparse
import functools
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from crt.engines.quiet import quiet

quiet()

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from crt.core.objectives import Shorten  # noqa: E402
from crt.engines.local import CRTTrainer  # noqa: E402
from crt.engines.models import load_model  # noqa: E402
from crt.engines.policy import Policy, response_text  # noqa: E402
from crt.engines.rollouts import FastRollouts  # noqa: E402
from crt.engines.samplers import InProcess, Sampling  # noqa: E402
from crt.engines.trl_settings import MICRO_BATCH  # noqa: E402
from crt.tasks.datasets import load  # noqa: E402
from crt.tasks.grade import Grader, item_of  # noqa: E402
from crt.tasks.messages import PromptSettings  # noqa: E402
from crt.tasks.prompts import prepare, render  # noqa: E402
from crt.train.reference import Reference, Store  # noqa: E402


@dataclass
class Timed:
    """Seconds and tokens of one trainer's steps."""

    cpu: list[float]
    wall: list[float]


def main() -> None:
    """Prints each repeat and the ratio of the medians."""
    args = arguments()
    torch.set_num_threads(args.threads)
    with Grader() as grader, tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, grader, folder)
        trainers = {"stock TRL": bench.stock(), "crt": bench.ours()}
        timed = {name: Timed([], []) for name in trainers}
        for repeat in range(args.repeats + 1):
            for name, trainer in trainers.items():
                cpu, wall = bench.one_step(trainer)
                if repeat:  # the first one warms up
                    timed[name].cpu.append(cpu)
                    timed[name].wall.append(wall)
                print(f"{name:10} {cpu:8.3f} CPU s  {wall:8.3f} s  per 1,000 tokens", flush=True)
    ratios = [a / b for a, b in zip(timed["stock TRL"].cpu, timed["crt"].cpu, strict=True)]
    shares = [guard / (step - guard) for guard, step in bench.guard[1:]]
    print(
        f"the guard takes {100 * statistics.median(shares):.2f} % on top of a plain GRPO step "
        f"({100 * min(shares):.2f} to {100 * max(shares):.2f} %)"
    )
    print(
        f"crt is {statistics.median(ratios):.1f} times as fast as stock TRL "
        f"({min(ratios):.1f} to {max(ratios):.1f}), {args.problems} × {args.group} rollouts"
    )


def arguments() -> argparse.Namespace:
    """The size of a step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--problems", type=int, default=16)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


class Bench:
    """What both trainers share."""

    def __init__(self, args: argparse.Namespace, grader: Grader, folder: str) -> None:
        self.args, self.grader, self.folder = args, grader, folder
        self.problems = load(f"pocket/train:{args.problems}").problems
        loaded = load_model(args.model, dtype="float32")
        self.template = prepare(loaded.tokenizer, PromptSettings())
        self.prompts = {p.id: render(p, self.template) for p in self.problems}
        self.generated = 0
        self.deciding = 0.0
        self.guard: list[tuple[float, float]] = []  # CPU seconds of the guard, of the step

    def settings(self, name: str) -> GRPOConfig:
        """The same for both, but for the rows in one pass: 64 is the best for a stock trainer."""
        micro = 64 if name == "stock" else MICRO_BATCH["cpu"]
        rows = self.args.problems * self.args.group
        return GRPOConfig(
            output_dir=f"{self.folder}/{name}", use_cpu=True, bf16=False, beta=0.0,
            gradient_checkpointing=False, per_device_train_batch_size=min(micro, rows),
            gradient_accumulation_steps=max(1, rows // micro), num_generations=self.args.group,
            max_completion_length=self.args.tokens, max_steps=10**6, learning_rate=1e-6,
            save_strategy="no", report_to=[], disable_tqdm=True, loss_type="dapo", seed=0,
            shuffle_dataset=False, logging_strategy="no",
        )  # fmt: skip

    def common(self, name: str) -> dict:
        """Arguments of both trainers: a model of its own, the same data and reward."""
        loaded = load_model(self.args.model, dtype="float32")
        by_id = {problem.id: problem for problem in self.problems}

        def correct(completion_ids, problem_id, **_):
            self.generated = sum(map(len, completion_ids))
            texts = [
                response_text(loaded.tokenizer, ids, loaded.files.ends) for ids in completion_ids
            ]
            grades = self.grader.grade_many(
                item_of(text, by_id[i], self.prompts[i].opens_thinking)
                for text, i in zip(texts, problem_id, strict=True)
            )
            return [float(grade.verdict == "correct") for grade in grades]

        rows = [
            {"prompt": [dict(m) for m in self.prompts[p.id].messages], "problem_id": p.id}
            for p in self.problems
        ]
        return {
            "model": loaded.model.train(),
            "reward_funcs": [correct],
            "args": self.settings(name),
            "train_dataset": Dataset.from_list(rows),
            "processing_class": loaded.tokenizer,
        }

    def stock(self) -> GRPOTrainer:
        """TRL as it is."""
        return GRPOTrainer(**self.common("stock"))

    def ours(self) -> CRTTrainer:
        """With the guard, the reference on disk, the fast sampler and no padding."""
        loaded = load_model(self.args.model, dtype="float32")
        ends = loaded.files.ends
        sampler = InProcess(loaded.model, ends, Sampling(self.args.tokens))
        policy = Policy(sampler, ends, self.template, self.grader)
        store = Store(Path(self.folder) / "reference", {"model": self.args.model})
        reference = Reference(self.problems, lambda some: policy.rollouts(some, 16, 0), store)
        reference([problem.id for problem in self.problems])  # fills the cache
        fast = FastRollouts(list(self.prompts.values()), 0, self.args.tokens, 1.0)
        trainer = CRTTrainer(
            **self.common("crt"), rollout_func=fast, objective=Shorten(), reference=reference
        )
        trainer._decide = self.timed(trainer._decide)
        return trainer

    def timed(self, decide):
        """The same decision, its CPU seconds noted."""

        @functools.wraps(decide)
        def wrapped():
            begun = time.process_time()
            result = decide()
            self.deciding = time.process_time() - begun
            return result

        return wrapped

    def one_step(self, trainer: GRPOTrainer) -> tuple[float, float]:
        """CPU and wall seconds per thousand generated tokens of one whole step."""
        if trainer.optimizer is None:
            trainer.create_optimizer()
        inputs = [row for row in trainer.train_dataset for _ in range(self.args.group)]
        torch.set_flush_denormal(isinstance(trainer, CRTTrainer))  # a stock trainer doesn't
        cpu, wall = time.process_time(), time.perf_counter()
        accumulation = trainer.args.gradient_accumulation_steps
        trainer.current_gradient_accumulation_steps = accumulation
        trainer.model.train()
        for _ in range(accumulation):
            trainer.training_step(trainer.model, inputs, None)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        if isinstance(trainer, CRTTrainer):
            self.guard.append((self.deciding, cpu))
        return 1000 * cpu / self.generated, 1000 * wall / self.generated


if __name__ == "__main__":
    main()
