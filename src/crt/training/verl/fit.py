"""One stage of training on a cluster: reference, data files, verl, and where it was left."""

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from crt.algorithm.registry import name_of
from crt.algorithm.two_stage import TwoStage
from crt.config import RunConfig
from crt.data.prompts import render
from crt.errors import ConfigError
from crt.run import STATE, Run
from crt.sampling.base import Sampling
from crt.sampling.models import LoadedModel, base_of, model_folder
from crt.training.context import Backend, RunContext
from crt.training.reference import Reference
from crt.training.stage import Interrupted, Stage, ended_at, order_of, prompts_of
from crt.training.validation import Floor
from crt.training.verl import overrides as verl
from crt.training.verl.data import StageFolder, folder_of, rows_of, write_parquet
from crt.training.verl.launch import launch
from crt.training.verl.recorder import finished, step_of
from crt.training.verl.sampler import SERVERS, ClusterSampler, load_without_weights, merge_adapter

MERGED = "merged"  # where an adapter merged into its base is, for the rollout servers
ROOM = 16  # tokens by which a prompt may be longer, because its budget is another number

Show = Callable[[dict[str, Any]], None]


def fit(
    run: Run, context: RunContext, stage: Stage, reference: Reference, floor: Floor, show: Show
) -> None:
    """Trains a stage to its end, from the start or from where it was left."""
    folder = folder_of(run, stage)
    saved = left_at(run, stage, folder)
    if saved and ended_at(run, stage, stage.first + step_of(saved)):
        return
    if not folder.train.exists():
        prepare(context, stage, reference, folder)
    SERVERS.end()
    if not launch(overrides(run, context, stage, saved), folder, Follower(run, show)):
        raise Interrupted


def left_at(run: Run, stage: Stage, folder: StageFolder) -> Path | None:
    """Where the stage was left, with everything that was written later taken back."""
    whole = finished(folder.saved)
    for path in folder.saved.glob("global_step_*"):
        if path not in whole:
            shutil.rmtree(path)
    run.forget_after(stage.first + (step_of(whole[-1]) if whole else 0))
    return whole[-1] if whole else None


def prepare(context: RunContext, stage: Stage, reference: Reference, folder: StageFolder) -> None:
    """The reference's rollouts, as far as they are missing, and the files that verl reads."""
    order = order_of(context, stage)
    train, validation = [problem for step in order for problem in step], context.problems[1]
    reference.sample_ahead(train)
    references = reference(list(dict.fromkeys(problem.id for problem in train)))
    # Checkpoints of both stages are judged by the base, whatever the stage compares with.
    base = context.on_validation(context.reference(context.base))
    folder.path.mkdir(parents=True, exist_ok=True)
    prompts = [render(problem, context.template) for problem in validation]
    cap = context.validation_sampling.max_tokens
    write_parquet(folder.validation, rows_of(validation, prompts, base, cap))
    prompts, cap = prompts_of(context, stage, order), context.sampling.max_tokens
    write_parquet(folder.train, rows_of(train, prompts, references, cap))


def overrides(
    run: Run, context: RunContext, stage: Stage, saved: Path | None = None
) -> verl.Overrides:
    """Those of the stage's training, as verl is given them."""
    model = describe_model(context, context.load(stage.start))
    folder = folder_of(run, stage)
    return verl.training(run.config, run.path.absolute(), folder, stage, model, saved)


def describe_model(context: RunContext, model: LoadedModel) -> verl.Model:
    """What verl needs to know of a model; an adapter goes with its base."""
    folder, adapter = model.files.folder.absolute(), None
    if model.files.adapter and model is context.base:
        raise ConfigError(
            f'model.name = "{model.files.name}" is an adapter, which cannot be trained with '
            'engine = "verl": merge it into its base first.'
        )
    if model.files.adapter:
        folder, adapter = model_folder(base_of(folder)).absolute(), folder
    return verl.Model(
        folder, model.dtype, longest_prompt(context), model.files.eos_token_ids, adapter
    )


@cache
def longest_prompt(context: RunContext) -> int:
    """Tokens of the longest prompt of the run, with room for another budget."""
    train, validation = context.problems
    prompts = [render(problem, context.template) for problem in (*train, *validation)]
    return max(len(prompt.token_ids) for prompt in prompts) + ROOM


def sampler_of(context: RunContext, model: LoadedModel, sampling: Sampling) -> ClusterSampler:
    """The cluster's rollout engine with a model that stays as it is; an adapter is merged."""
    about = describe_model(context, model)
    if about.adapter:
        settings = context.config.model
        options = {"dtype": settings.dtype, "trust_remote_code": settings.trust_remote_code}
        run = about.adapter.parents[1]  # whose checkpoint it is
        merged = merge_adapter(model, run / STATE / MERGED, about.folder, options)
        about = replace(about, folder=merged.absolute(), adapter=None)
    return ClusterSampler(verl.sampling(context.config, about), model.files.eos_token_ids, sampling)


BACKEND = Backend(load_without_weights, sampler_of)


class Follower:
    """Shows the rows that the trainer, elsewhere in the cluster, adds to the run."""

    def __init__(self, run: Run, show: Show) -> None:
        self.run, self.show = run, show
        self.seen = len(run.steps)

    def __call__(self) -> None:
        """Those that are new."""
        rows = self.run.steps
        for row in rows[self.seen :]:
            self.show(row)
        self.seen = len(rows)


def check(config: RunConfig, processes: int) -> None:
    """Refuses what cannot work on a cluster, before anything is started."""
    for sentence in (*mistakes(config, processes), *verl.mistakes(config)):
        raise ConfigError(sentence)
    if importlib.util.find_spec("verl") is None:
        raise ConfigError(
            "engine = \"verl\" needs verl, Ray and vLLM: pip install 'crt-train[cluster]'."
        )
    try:
        verl.compose_config(verl.flat(config.verl))
    except Exception as error:  # hydra has a class for every mistake
        first = str(error).strip().splitlines()[0]
        raise ConfigError(f"[verl] is refused by verl's configuration: {first}") from None


def mistakes(config: RunConfig, processes: int) -> Iterator[str]:
    """What a recipe says that a cluster cannot do."""
    cluster, lora, only = config.cluster, config.model.lora, 'with engine = "verl"'
    if config.sampling.source == "reference":
        yield (
            f'method "{name_of(config.method)}" with sampling.source = "reference" trains on what '
            f"a frozen model writes, which needs a loop of its own: {only} only "
            'sampling.source = "policy" can run.'
        )
    if config.reference.mode == "fresh":
        yield (
            f'reference.mode = "fresh" cannot run {only}: a second model would have to be sampled '
            'in every step. Set reference.mode = "cached".'
        )
    if lora and lora.dropout > 0:
        yield (
            f"model.lora.dropout = {lora.dropout} cannot run {only}: verl 0.9.1 makes adapters "
            "without dropout. Set it to 0."
        )
    if lora and not lora.alpha.is_integer():
        yield f"model.lora.alpha = {lora.alpha} cannot run {only}: verl 0.9.1 takes whole numbers."
    if lora and isinstance(config.method, TwoStage) and config.optim.kl > 0:
        yield (
            f"model.lora with optim.kl = {config.optim.kl} cannot run two stages {only}: verl's "
            "KL is to the base without the adapter, Stage II's is to its own start. Set "
            "optim.kl = 0."
        )
    if config.trl:
        yield f"[trl] has no meaning {only}: use [verl], or leave it out."
    if processes > 1:
        yield f"{processes} processes of a launcher {only}: start `crt train` once, on the head."
    devices = cluster.nodes * cluster.devices
    rollouts = config.schedule.problems_per_step * config.sampling.group_size
    if rollouts % devices:
        yield (
            f"problems_per_step × group_size = {rollouts} cannot be shared by {devices} devices: "
            "change schedule.problems_per_step."
        )
    if devices % cluster.tensor_parallel:
        yield (
            f"cluster.tensor_parallel = {cluster.tensor_parallel} does not divide the {devices} "
            "devices."
        )
