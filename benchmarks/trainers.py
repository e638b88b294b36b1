"""Stock TRL's trainer and ours on the same model, prompts, batch, cap and grader."""

import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crt.processes import silence_libraries

silence_libraries()

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from crt.algorithm.objectives import Shorten  # noqa: E402
from crt.data.datasets import load  # noqa: E402
from crt.data.prompts import (  # noqa: E402
    PromptSettings,
    prepare,
    render,
)
from crt.grading.grader import Grader, Item  # noqa: E402
from crt.sampling.base import InProcess, Sampling  # noqa: E402
from crt.sampling.models import load_model  # noqa: E402
from crt.sampling.policy import Policy, decode_response  # noqa: E402
from crt.training.reference import Reference, Store  # noqa: E402
from crt.training.trl.config import MICRO_BATCH  # noqa: E402
from crt.training.trl.rollouts import FastRollouts  # noqa: E402
from crt.training.trl.trainer import CRTTrainer  # noqa: E402


@dataclass(frozen=True)
class Size:
    """Of one training step."""

    problems: int = 16
    group: int = 16
    cap: int = 256
    model: str = "pocket"


class Trainers:
    """What both trainers share, and the trainers."""

    def __init__(self, size: Size, grader: Grader, folder: Path) -> None:
        self.size, self.grader, self.folder = size, grader, folder
        self.problems = load(f"pocket/train:{size.problems}").problems
        self.ids = [problem.id for problem in self.problems]
        self.template = prepare(self._loaded().tokenizer, PromptSettings())
        self.prompts = {p.id: render(p, self.template) for p in self.problems}
        self.generated = 0  # tokens of the last step

    def _loaded(self) -> Any:
        return load_model(self.size.model, dtype="float32")

    def settings(self, name: str) -> GRPOConfig:
        """The same for both, but for the rows in one pass: a stock trainer is as fast with 16."""
        rows = self.size.problems * self.size.group
        micro = min(64 if name == "stock" else MICRO_BATCH["cpu"], rows)
        return GRPOConfig(
            output_dir=str(self.folder / name), use_cpu=True, bf16=False, beta=0.0,
            gradient_checkpointing=False, per_device_train_batch_size=micro,
            gradient_accumulation_steps=rows // micro, num_generations=self.size.group,
            max_completion_length=self.size.cap, max_steps=10**6, learning_rate=1e-6,
            save_strategy="no", report_to=[], disable_tqdm=True, loss_type="dapo", seed=0,
            shuffle_dataset=False, logging_strategy="no",
        )  # fmt: skip

    def common(self, name: str) -> dict[str, Any]:
        """Arguments of both trainers: a model of its own, the same data and reward."""
        loaded = self._loaded()
        rows = [
            {"prompt": [dict(m) for m in self.prompts[p.id].messages], "problem_id": p.id}
            for p in self.problems
        ]
        return {
            "model": loaded.model.train(),
            "reward_funcs": [self.reward(loaded)],
            "args": self.settings(name),
            "train_dataset": Dataset.from_list(rows),
            "processing_class": loaded.tokenizer,
        }

    def reward(self, loaded: Any) -> Any:
        """1 for a correct response; counts the tokens on the way."""
        by_id = {problem.id: problem for problem in self.problems}

        def correct(completion_ids: Any, problem_id: Any, **_: Any) -> list[float]:
            self.generated = sum(map(len, completion_ids))
            texts = [
                decode_response(loaded.tokenizer, ids, loaded.files.eos_token_ids)
                for ids in completion_ids
            ]
            grades = self.grader.grade_many(
                Item(text, by_id[i], self.prompts[i].opens_thinking)
                for text, i in zip(texts, problem_id, strict=True)
            )
            return [float(grade.verdict == "correct") for grade in grades]

        return correct

    def stock(self) -> GRPOTrainer:
        """TRL as it is."""
        return GRPOTrainer(**self.common("stock"))

    def ours(self, reference: Reference) -> CRTTrainer:
        """With the guard, the fast sampler and no padding."""
        fast = FastRollouts(list(self.prompts.values()), 0, self.size.cap, 1.0)
        return CRTTrainer(
            **self.common("crt"), rollout_func=fast, objective=Shorten(), reference=reference
        )

    def reference(self, rollouts: int, kept: bool) -> Reference:
        """The frozen policy, its rollouts kept on disk or drawn every time."""
        loaded = self._loaded()
        sampler = InProcess(loaded.model, loaded.files.eos_token_ids, Sampling(self.size.cap))
        policy = Policy(sampler, loaded.files.eos_token_ids, self.template, self.grader)
        store = Store(self.folder / "reference", {"rollouts": rollouts}) if kept else None
        return Reference(self.problems, lambda some: policy.rollouts(some, rollouts, 0), store)

    def one_step(self, trainer: GRPOTrainer) -> int:
        """A whole step: sampling, grading, deciding, update. Returns the tokens generated."""
        if trainer.optimizer is None:
            trainer.create_optimizer()
        inputs = [row for row in trainer.train_dataset for _ in range(self.size.group)]
        accumulation = trainer.args.gradient_accumulation_steps
        trainer.current_gradient_accumulation_steps = accumulation
        trainer.model.train()
        for _ in range(accumulation):
            trainer.training_step(trainer.model, inputs, None)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        trainer.state.global_step += 1  # what a step samples depends on its number
        return self.generated


class Clocked:
    """A method of an object with its wall and CPU seconds noted, call by call."""

    def __init__(self, owner: Any, name: str) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        method = getattr(owner, name)

        @functools.wraps(method)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                return method(*args, **kwargs)
            finally:
                self.wall.append(time.perf_counter() - wall)
                self.cpu.append(time.process_time() - cpu)

        setattr(owner, name, wrapped)


def use_threads(count: int) -> None:
    """The same for every contender in this process."""
    torch.set_num_threads(count)
