"""One stage of training on one machine: a trainer, its data, and where it was left."""

import contextlib
import signal as signals
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback

from crt.data.prompts import Prompt
from crt.processes import at_signal
from crt.run import STATE, Run
from crt.sampling.base import InProcess, Sampler
from crt.sampling.models import LoadedModel
from crt.sampling.vllm import TrainersVllm, close_engine
from crt.training.checkpoints import check_rows, forget_later, last_whole, states, step_of
from crt.training.context import RunContext
from crt.training.ranks import Ranks
from crt.training.recorder import Recorder
from crt.training.reference import Reference
from crt.training.stage import Interrupted, Stage, ended_at, order_of, prompts_of
from crt.training.trl.config import settings
from crt.training.trl.rollouts import Correctness, FastRollouts, SamplingModel, VllmRollouts
from crt.training.trl.trainer import CRTTrainer
from crt.training.validation import Floor, measured
from crt.types import Problem


@dataclass(frozen=True)
class Material:
    """What a stage works with: the model to train, what it is asked, and the reference."""

    policy: LoadedModel
    adapter: Any  # TRL's setting for a new one, or None
    problems: list[Problem]
    prompts: list[Prompt]
    reference: Reference
    sampling_model: SamplingModel


def fit(
    run: Run,
    context: RunContext,
    stage: Stage,
    reference: Reference,
    floor: Floor,
    show: Callable[[dict[str, Any]], None],
) -> None:
    """Trains a stage to its end, from the start or from where it was left."""
    saved = left_at(run, stage, context.ranks)
    if saved and ended_at(run, stage, stage.first + step_of(saved)):
        return
    order = order_of(context, stage)
    asked = [problem for step in order for problem in step]
    prompts = prompts_of(context, stage, order)
    context.sample_ahead(reference, asked)
    policy, adapter = context.load_to_train(stage.start)
    sampling_model = SamplingModel(lambda: context.load(stage.start).model, context.base.dtype)
    material = Material(policy, adapter, asked, prompts, reference, sampling_model)

    def measure(step: int) -> dict[str, Any]:
        sampling = context.validation_sampling
        if trainer.use_vllm:
            sampler: Sampler = TrainersVllm(trainer, policy.files.eos_token_ids, sampling)
        else:
            model = material.sampling_model.current(trainer)
            sampler = InProcess(model, policy.files.eos_token_ids, sampling)
        return measured(context, context.policy(policy, sampler=sampler), step, floor)

    recorder = Recorder(
        run, stage.number, stage.first, measure, stage.over, stage.guarded, show,
        context.base.dtype,
    )  # fmt: skip
    trainer = make_trainer(run, context, stage, material, recorder)
    with ending_saves(recorder):
        trainer.train(resume_from_checkpoint=str(saved) if saved else None)
    if trainer.use_vllm:
        close_engine(trainer)
    if recorder.terminated:
        raise Interrupted


def make_trainer(
    run: Run, context: RunContext, stage: Stage, material: Material, recorder: Recorder
) -> CRTTrainer:
    """TRL's trainer for this stage."""
    config, folder = run.config, str(run.path / STATE / f"stage{stage.number}")
    policy, prompts = material.policy, material.prompts
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = context.base.dtype
    args = settings(config, folder, stage.steps, device, context.ranks.count, dtype)
    rows = [
        {"prompt": _sent(prompt), "problem_id": prompt.problem_id, "budget": prompt.budget}
        for prompt in prompts
    ]
    off_policy = config.sampling.source == "reference"
    frozen = context.load(stage.start).model if off_policy else None
    fast = FastRollouts(
        prompts, config.seed + stage.first, config.sampling.max_tokens,
        config.sampling.top_p, material.sampling_model, frozen,
    )  # fmt: skip
    trainer: CRTTrainer = CRTTrainer(
        model=policy.model,
        reward_funcs=[Correctness(policy, context.grader, material.problems, prompts)],
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=policy.tokenizer,
        callbacks=[recorder],
        peft_config=material.adapter,
        rollout_func=VllmRollouts(prompts) if args.use_vllm else fast,
        objective=stage.objective,
        reference=material.reference,
        estimator=config.optim.estimator,
        truncated_as=config.grading.truncated,
        stage=stage.number,
        off_policy=off_policy,
        on_step=lambda step: recorder.on_graded(trainer, step),
    )
    trainer.remove_callback(PrinterCallback)  # the view shows the steps
    return trainer


def left_at(run: Run, stage: Stage, ranks: Ranks) -> Path | None:
    """Where the stage was left, with everything that was written later taken back."""
    folder = run.path / STATE / f"stage{stage.number}"
    if ranks.writes:
        saved = last_whole(folder)  # what is not whole is removed
        step = stage.first + (step_of(saved) if saved else 0)
        run.forget_after(step)
        check_rows(run, step)
        forget_later(folder)
    ranks.wait()
    return next(reversed(states(folder)), None)


@contextlib.contextmanager
def ending_saves(recorder: Recorder) -> Iterator[None]:
    """SIGTERM, and Ctrl-C once, end training after the step under way, with everything saved."""

    def end(number: int, _: Any) -> None:
        if recorder.terminated and number == signals.SIGINT:
            raise KeyboardInterrupt
        recorder.terminated = True

    with at_signal(end, signals.SIGTERM, signals.SIGINT):
        yield


def _sent(prompt: Prompt) -> Any:
    return [dict(turn) for turn in prompt.messages]
