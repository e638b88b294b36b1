"""One stage of training on a cluster: reference, data files, verl, and where it was left."""

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import signal as signals
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from crt.config import RunConfig
from crt.data.prompts import render
from crt.errors import ConfigError, EngineError, install_command
from crt.io import read_json
from crt.processes import at_signal, ends_with_parent
from crt.run import STATE, Run
from crt.sampling.base import Sampling
from crt.sampling.models import LoadedModel, base_of, model_folder
from crt.training.context import Backend, RunContext
from crt.training.reference import Reference
from crt.training.stage import Interrupted, Stage, ended_at, order_of, prompts_of
from crt.training.validation import Floor
from crt.training.verl import overrides as verl
from crt.training.verl.data import StageFolder, folder_of, write_prompts, write_reference
from crt.training.verl.overrides import MODULES, PLUGIN, Overrides, arguments, modules
from crt.training.verl.recorder import finished, step_of
from crt.training.verl.sampler import (
    ClusterSampler,
    end_servers,
    load_without_weights,
    merge_adapter,
)

MERGED = "merged"  # where an adapter merged into its base is, for the rollout servers
ROOM = 16  # tokens by which a prompt may be longer, because its budget is another number

COMMAND = "verl.trainer.main_ppo"
POLL_SECONDS = 0.5
REASON = re.compile(r"^(?:\(\w+ pid=\d+[^)]*\) )?([\w.]+(?:Error|Exception|Interrupt): .*)$")

Show = Callable[[dict[str, Any]], None]


def fit(
    run: Run, context: RunContext, stage: Stage, reference: Reference, floor: Floor, show: Show
) -> None:
    """Trains a stage to its end, from the start or from where it was left."""
    folder = folder_of(run, stage)
    saved = left_at(run, stage, folder)
    if saved and ended_at(run, stage, stage.first + step_of(saved)):
        return
    if not folder.reference.exists():  # written last
        prepare(context, stage, reference, folder)
    end_servers()
    if not launch(overrides(run, context, stage, saved), folder, show_new_rows(run, show)):
        raise Interrupted


def show_new_rows(run: Run, show: Show) -> Callable[[], None]:
    """Shows the rows that the trainer, elsewhere in the cluster, has added since the last call."""
    shown = len(run.steps)

    def show_new() -> None:
        nonlocal shown
        for row in run.steps[shown:]:
            show(row)
            shown += 1

    return show_new


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
    write_prompts(folder.validation, validation, prompts, context.validation_sampling.max_tokens)
    prompts = prompts_of(context, stage, order)
    write_prompts(folder.train, train, prompts, context.sampling.max_tokens)
    write_reference(folder.validation_reference, base)
    write_reference(folder.reference, references)


def overrides(run: Run, context: RunContext, stage: Stage, saved: Path | None = None) -> Overrides:
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


def check(config: RunConfig, processes: int) -> None:
    """Refuses what cannot work on a cluster, before anything is started."""
    for sentence in verl.mistakes(config, processes):
        raise ConfigError(sentence)
    if importlib.util.find_spec("verl") is None:
        raise ConfigError(f'engine = "verl" needs verl, Ray and vLLM: {install_command("cluster")}')
    try:
        verl.compose_config(verl.flat(config.verl))
    except Exception as error:  # hydra has a class for every mistake
        first = str(error).strip().splitlines()[0]
        raise ConfigError(f"[verl] is refused by verl's configuration: {first}") from None


# ---- verl's own command


def environment(outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What verl needs to find the plugin."""
    return {
        MODULES: modules(outer.get(MODULES, ""), PLUGIN),
        "RAY_USAGE_STATS_ENABLED": outer.get("RAY_USAGE_STATS_ENABLED", "0"),
        "HYDRA_FULL_ERROR": "1",
    }


def shown(overrides: Overrides) -> str:
    """The command for a shell, one override per line."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment().items()]
    start = " ".join([*variables, f"python -m {COMMAND}"])
    return " \\\n  ".join([start, *(shlex.quote(word) for word in arguments(overrides))])


def launch(overrides: Overrides, folder: StageFolder, meanwhile: Callable[[], None]) -> bool:
    """Runs the training; False when it was asked to end and has saved.

    SIGTERM, and Ctrl-C once, ask it to save after the step under way; a second Ctrl-C ends it.
    """
    folder.stop.unlink(missing_ok=True)
    folder.stopped.unlink(missing_ok=True)
    with folder.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", COMMAND, *arguments(overrides)],
            env={**os.environ, **environment()},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us: verl would end without saving
            preexec_fn=ends_with_parent(signals.SIGTERM),  # or it would go on writing the run
        )

    def end(number: int, _: Any) -> None:
        """A signal becomes a file that the trainer looks for, wherever in the cluster it runs."""
        if number == signals.SIGINT and folder.stop.exists():
            process.terminate()
            raise KeyboardInterrupt
        folder.stop.touch()

    with at_signal(end, signals.SIGTERM, signals.SIGINT):
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)
            meanwhile()
    interrupted = folder.stop.exists()
    folder.stop.unlink(missing_ok=True)  # whoever starts verl by hand now is not to end at once
    if process.returncode:
        raise EngineError(why_it_ended(folder, process.returncode))
    return not interrupted


def why_it_ended(folder: StageFolder, code: int) -> str:
    """What the trainer says of it, or the last error in verl's log."""
    if folder.stopped.exists():
        return read_json(folder.stopped)["reason"]
    last = ""
    with folder.log.open(errors="replace") as file:
        for line in file:
            if match := REASON.match(line.strip()):
                last = f" with: {match[1][:300]}"
    return f"verl ended with code {code}{last}. All its output is in {folder.log}."
