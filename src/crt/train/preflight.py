"""Before anyone pays for it: what cannot work is refused, with what to change."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from crt.config import RunConfig
from crt.core.batch import Batch
from crt.core.methods import TwoStage
from crt.core.objectives import Shorten
from crt.data.prompts import Template, render
from crt.engines.models import LoadedModel
from crt.errors import ConfigError
from crt.train.workshop import Workshop

STATE_COPIES = 3 * 3  # two saved states of the trainer and one under way: weights, two moments


def before_sampling(workshop: Workshop, folder: Path) -> None:
    """What can be seen without a single response."""
    config = workshop.config
    train, _ = workshop.problems
    if len(train) < config.schedule.problems_per_step:
        raise ConfigError(
            f"{len(train)} training problems are fewer than schedule.problems_per_step = "
            f"{config.schedule.problems_per_step}: add data or lower it."
        )
    if config.engine == "verl":
        from crt.train.cluster import check

        check(config, workshop.ranks.count)
    else:
        from crt.engines.trl_settings import passed_on

        passed_on(config.trl)
    if config.trl.get("use_vllm") and config.sampling.source == "reference":
        raise ConfigError(
            'trl.use_vllm with sampling.source = "reference": vLLM draws from the policy alone. '
            "Leave out one of them."
        )
    check_prompt(workshop.template, config)
    check_context(workshop, config)
    check_disk(workshop.base, config, folder)


def check_prompt(template: Template, config: RunConfig) -> None:
    """A template that does not open the assistant's turn leaves the model to write the user's."""
    silent = [note for note in template.notes if "add_generation_prompt" in note]
    if silent and "generation_prompt" not in config.preflight.skip:
        raise ConfigError(
            f"{silent[0]}. Use a template with a generation prompt, set prompt.plain, or set "
            'preflight.skip = ["generation_prompt"] if its text ends where the answer begins.'
        )


def check_context(workshop: Workshop, config: RunConfig) -> None:
    """Prompt and response must fit into the positions the model was made for."""
    context = workshop.base.files.context
    train, _ = workshop.problems
    longest = max(train[:1000], key=lambda problem: len(problem.question))
    prompt = len(render(longest, workshop.template).token_ids)
    if context is not None and prompt + config.sampling.max_tokens > context:
        raise ConfigError(
            f"a prompt of {prompt} tokens and sampling.max_tokens = {config.sampling.max_tokens} "
            f"are more than the model's {context} positions: lower max_tokens to "
            f"{context - prompt} or less."
        )


def check_disk(model: LoadedModel, config: RunConfig, folder: Path) -> None:
    """Checkpoints and the trainer's state must fit on the disk."""
    wide = 4 if config.engine == "verl" else 0  # bytes: verl trains and saves in float32
    size = sum(p.numel() * max(p.element_size(), wide) for p in model.model.parameters())
    needed = size * (config.schedule.steps // config.schedule.save_every + STATE_COPIES)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ConfigError(
            f"the run writes about {needed / 1e9:.1f} GB and {folder} has {free / 1e9:.1f} GB "
            "free: free some, choose another place with --out, or raise schedule.save_every."
        )


def check_reference(batch: Batch | None, config: RunConfig) -> None:
    """A reference that is cut off, or solves nothing or everything, makes no floor."""
    if batch is None:
        raise ConfigError("no reference response could be graded: look at data and prompt.")
    truncated = float(batch.truncated.mean())
    if truncated > config.preflight.max_truncated:
        raise ConfigError(
            f"{truncated:.0%} of the reference's responses run into sampling.max_tokens = "
            f"{config.sampling.max_tokens} and count as wrong: raise it (limit: "
            f"preflight.max_truncated = {config.preflight.max_truncated:g})."
        )
    if batch.accuracy in (0.0, 1.0) and "solves" not in config.preflight.skip:
        what = "nothing" if batch.accuracy == 0 else "everything"
        raise ConfigError(
            f"the reference solves {what} of a probe of {len(batch.problem_ids)} problems: "
            "take other data, look at the prompt and at how the answers are written, or set "
            'preflight.skip = ["solves"].'
        )


def warnings(batch: Batch, config: RunConfig) -> Iterator[str]:
    """What will work, but not as well as it could."""
    method = config.method
    guard = method.shorten if isinstance(method, TwoStage) else method
    if isinstance(guard, Shorten) and guard.slack != "auto":
        rollouts = config.schedule.problems_per_step * config.sampling.group_size
        share = batch.accuracy_by_problem
        noise = float((2 * (share * (1 - share)).mean() / rollouts) ** 0.5)
        if guard.slack < noise:
            yield (
                f"slack = {guard.slack:g} is below the noise of a step's accuracy gap "
                f"({noise:.3f} with {rollouts} rollouts): the guard will often switch by chance. "
                'Use slack = "auto", smoothing, or larger batches.'
            )
