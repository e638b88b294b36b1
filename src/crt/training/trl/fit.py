"""One stage of training on one machine: a trainer, its data, and where it was left."""

import contextlib
import signal as signals
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback

from crt.data.prompts import Prompt
from crt.processes import Ranks, at_signal
from crt.run import STATE, Run
from crt.sampling.base import InProcess, Sampler
from crt.sampling.models import LoadedModel
from crt.sampling.vllm import TrainersVllm, close_engine
from crt.training.checkpoints import check_rows, forget_later, last_whole, states, step_of
from crt.training.context import RunContext
from crt.training.recorder import Recorder
from crt.training.reference import Reference
from crt.training.stage import Interrupted, Stage, ended_at, order_of, prompts_of
from crt.training.trl.config import settings
from crt.training.trl.rollouts import Correctness, FastRollouts, SamplingModel, VllmRollouts
from crt.training.trl.trainer import CRTTrainer
from crt.training.validation import Floor, measured


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
    problems = [problem for step in order for problem in step]
    prompts = prompts_of(context, stage, order)
    context.sample_ahead(reference, problems)
    policy, adapter = load_to_train(context, stage.start)
    sampling_model = SamplingModel(lambda: context.load(stage.start).model, context.base.dtype)
    grade = Correctness(policy, context.grader, problems, prompts)
    args = settings(
        run.config,
        str(run.path / STATE / f"stage{stage.number}"),
        stage.steps,
        "cuda" if torch.cuda.is_available() else "cpu",
        context.ranks.count,
        context.base.dtype,
    )
    trainer = CRTTrainer(
        model=policy.model,
        reward_funcs=[grade],
        args=args,
        train_dataset=Dataset.from_list([_row(prompt) for prompt in prompts]),
        processing_class=policy.tokenizer,
        peft_config=adapter,
        rollout_func=VllmRollouts(prompts)
        if args.use_vllm
        else fast_rollouts(context, stage, prompts, sampling_model),
        objective=stage.objective,
        reference=reference,
        estimator=run.config.optim.estimator,
        truncated_as=run.config.grading.truncated,
        measures=context.measures,
        stage=stage.number,
        off_policy=run.config.sampling.source == "reference",
    )

    def measure(step: int) -> dict[str, Any]:
        sampling, ends = context.validation_sampling, policy.files.eos_token_ids
        if trainer.use_vllm:
            sampler: Sampler = TrainersVllm(trainer, ends, sampling)
        else:
            sampler = InProcess(sampling_model.current(trainer), ends, sampling)
        return measured(context, context.policy(policy, sampler=sampler), step, floor)

    recorder = Recorder(run, stage, trainer, measure, show, context.base.dtype)
    trainer.on_step = recorder.on_graded
    trainer.add_callback(recorder)
    trainer.remove_callback(PrinterCallback)  # the progress bar shows the steps
    with ending_saves(recorder):
        trainer.train(resume_from_checkpoint=str(saved) if saved else None)
    if trainer.use_vllm:
        close_engine(trainer)
    if recorder.terminated:
        raise Interrupted


def load_to_train(context: RunContext, name: str) -> tuple[LoadedModel, Any]:
    """A model to train, and TRL's setting for a new adapter if one is to be trained.

    Trained weights are float32, whatever `model.dtype` is: a step of 1e-6 is lost in the
    rounding of bfloat16. The base below an adapter stays in `model.dtype`. An adapter is
    trained on from where it is, so that it stays one adapter on the base.
    """
    settings = context.config.model
    if settings.lora is None:
        return context.load(name, "float32"), None
    from peft import LoraConfig, PeftModel

    base = context.load(settings.name)
    if name == settings.name:
        targets = settings.lora.targets
        return base, LoraConfig(
            r=settings.lora.rank,
            lora_alpha=settings.lora.alpha,  # pyright: ignore[reportArgumentType]
            lora_dropout=settings.lora.dropout,
            target_modules=targets if isinstance(targets, str) else list(targets),
            task_type="CAUSAL_LM",
        )
    adapted: Any = PeftModel.from_pretrained(base.model, name, is_trainable=True)
    return replace(base, model=adapted), None


def fast_rollouts(
    context: RunContext, stage: Stage, prompts: list[Prompt], sampling_model: SamplingModel
) -> FastRollouts:
    """The sampler of this process, on the policy or on the model that the stage started from."""
    config = context.config
    off_policy = config.sampling.source == "reference"
    frozen = context.load(stage.start).model if off_policy else None
    seed, sampling = config.seed + stage.first, config.sampling
    return FastRollouts(prompts, seed, sampling.max_tokens, sampling.top_p, sampling_model, frozen)


def _row(prompt: Prompt) -> dict[str, Any]:
    messages = [dict(turn) for turn in prompt.messages]
    return {"prompt": messages, "problem_id": prompt.problem_id, "budget": prompt.budget}


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
