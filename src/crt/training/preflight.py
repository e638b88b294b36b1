"""Before anyone pays for it: what cannot work is refused, with what to change."""

import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from crt.algorithm.batch import TOKENS, Batch
from crt.algorithm.objectives import Shorten
from crt.algorithm.two_stage import TwoStage
from crt.config import RunConfig
from crt.data.datasets import is_from
from crt.data.prompts import Template, render
from crt.errors import ConfigError
from crt.sampling.models import LoadedModel
from crt.training.context import RunContext
from crt.types import Verdict

TRAINED_BYTES = 4  # per weight, and as many for each of Adam's two moments
NOISY_VALIDATION = 0.01  # standard error of an accuracy gap
STATE_COPIES = 3 * 3  # two saved states of the trainer and one under way: weights, two moments


def before_sampling(context: RunContext, folder: Path) -> None:
    """What can be seen without a single response."""
    config = context.config
    train, _ = context.problems
    if len(train) < config.schedule.problems_per_step:
        raise ConfigError(
            f"{len(train)} training problems are fewer than schedule.problems_per_step = "
            f"{config.schedule.problems_per_step}: add data or lower it."
        )
    check_prompt(context.template, config)
    check_context(context, config)
    check_disk(context.base, config, folder)
    check_lines(context, config)


def check_lines(context: RunContext, config: RunConfig) -> None:
    """A line about a data set needs problems of it, to train on and to be measured."""
    for data in dict.fromkeys(line.data for line in config.contract.lines if line.data):
        for what, problems in zip(("training", "validation"), context.problems, strict=True):
            if not any(is_from(data, problem.source) for problem in problems):
                raise ConfigError(
                    f"a line of the contract is about {data}, and none of the {len(problems)} "
                    f"{what} problems is from there: look at data.train and [validation]."
                )


def check_prompt(template: Template, config: RunConfig) -> None:
    """A template that does not open the assistant's turn leaves the model to write the user's."""
    silent = [note for note in template.notes if "add_generation_prompt" in note]
    if silent and "generation_prompt" not in config.preflight.skip:
        raise ConfigError(
            f"{silent[0]}. Use a template with a generation prompt, set prompt.plain, or set "
            'preflight.skip = ["generation_prompt"] if its text ends where the answer begins.'
        )


def check_context(context: RunContext, config: RunConfig) -> None:
    """Prompt and response must fit into the positions the model was made for."""
    positions = context.base.files.context
    train, _ = context.problems
    longest = max(train[:1000], key=lambda problem: len(problem.question))
    prompt = len(render(longest, context.template).token_ids)
    for section in ("sampling", "reference", "validation"):
        cap = getattr(config, section).max_tokens
        if positions is not None and cap is not None and prompt + cap > positions:
            raise ConfigError(
                f"a prompt of {prompt} tokens and {section}.max_tokens = {cap} are more than the "
                f"model's {positions} positions: lower it to {positions - prompt} or less."
            )


def check_disk(model: LoadedModel, config: RunConfig, folder: Path) -> None:
    """Checkpoints and the trainer's state must fit on the disk."""
    size = TRAINED_BYTES * trained_parameters(model, config)
    needed = size * (config.schedule.steps // config.schedule.save_every + STATE_COPIES)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ConfigError(
            f"the run writes about {needed / 1e9:.1f} GB and {folder} has {free / 1e9:.1f} GB "
            "free: free some, choose another place with --out, or raise schedule.save_every."
        )


def trained_parameters(model: LoadedModel, config: RunConfig) -> int:
    """All weights, or those of an adapter: rank × (inputs + outputs) of every linear layer."""
    if config.model.lora is None:
        return sum(weight.numel() for weight in model.model.parameters())
    matrices = [
        w.shape for n, w in model.model.named_parameters() if w.ndim == 2 and "embed" not in n
    ]
    return sum(config.model.lora.rank * sum(shape) for shape in matrices)


def check_reference(
    batch: Batch | None, config: RunConfig, verdicts: Sequence[Verdict] = ()
) -> Batch:
    """A reference that is cut off, or solves nothing or everything, makes no floor."""
    if batch is None:
        raise ConfigError("no reference response could be graded: look at data and prompt.")
    limit = config.preflight.max_truncated
    for cap, cut in _truncated_shares(batch, config):
        if cut > limit:
            raise ConfigError(
                f"{cut:.0%} of the reference's responses run into {cap} and count as wrong: "
                f"raise it (limit: preflight.max_truncated = {limit:g})."
            )
    if batch.accuracy in (0.0, 1.0) and "solves" not in config.preflight.skip:
        what = "nothing" if batch.accuracy == 0 else "everything"
        unanswered = sum(verdict is Verdict.NO_ANSWER for verdict in verdicts)
        cause = f" ({unanswered} of {len(verdicts)} gave no \\boxed{{}})" if unanswered else ""
        raise ConfigError(
            f"the reference solves {what} of a probe of {len(batch.problem_ids)} problems{cause}: "
            "take other data, look at the prompt and at how the answers are written, or set "
            'preflight.skip = ["solves"].'
        )
    if batch.mean_length == 0:
        raise ConfigError(
            f'contract.cost = "{batch.cost}" is 0 in every response of the reference: there is '
            "nothing to lower. Thinking is what stands before `</think>`."
        )
    return batch


def _truncated_shares(batch: Batch, config: RunConfig) -> Iterator[tuple[str, float]]:
    """Of each cap the share of responses that run into it, as far as the longer one shows it."""
    trained, used = config.sampling.max_tokens, config.validation.max_tokens
    beyond = batch.truncated | (batch.measured.get(TOKENS, batch.length) > trained)
    yield f"sampling.max_tokens = {trained}", float(beyond.mean())
    if used is not None:
        yield f"validation.max_tokens = {used}", float(batch.truncated.mean())


def warnings(batch: Batch, config: RunConfig) -> Iterator[str]:
    """What will work, but not as well as it could."""
    method = config.method
    guard = method.shorten if isinstance(method, TwoStage) else method
    if isinstance(guard, Shorten) and guard.rule == "switch":
        rollouts = config.schedule.problems_per_step * config.sampling.group_size
        share = batch.accuracy_by_problem
        noise = float((2 * (share * (1 - share)).mean() / rollouts) ** 0.5)
        if guard.slack < noise:
            yield (
                f"slack = {guard.slack:g} is below the noise of a step's accuracy gap "
                f"({noise:.3f} with {rollouts} rollouts): the guard will often switch by chance. "
                'Use rule = "multiplier" or larger batches.'
            )
    yield from _noisy_validation(batch, config)
    yield from _doubtful_lines(batch, config)


def _doubtful_lines(batch: Batch, config: RunConfig) -> Iterator[str]:
    """A contract that lets answers be wrong, and lines that the reference does not keep itself."""
    lines = config.contract.promises
    if lines and not any(line.metric == "accuracy" or "pass@" in line.metric for line in lines):
        yield "no line of the contract is about accuracy or pass@k: wrong answers break nothing."
    for line in lines:
        standing = line.standing(batch, batch)
        if standing is not None and standing.margin < -standing.standard_error:
            yield (
                f"the reference itself is at {standing.value:.4g}, which breaks the line "
                f"{line.name!r}: training begins by repairing it."
            )


def _noisy_validation(batch: Batch, config: RunConfig) -> Iterator[str]:
    """A checkpoint is feasible only by more than its measurement's noise."""
    problems, share = len(batch.problem_ids), batch.accuracy_by_problem
    rollouts = config.validation.final_rollouts or config.validation.rollouts
    draws = 1 / rollouts + 1 / batch.correct.shape[1]
    noise = float(((share * (1 - share)).mean() * draws) ** 0.5)
    error = noise / problems**0.5
    if error > NOISY_VALIDATION:
        needed = math.ceil((noise / NOISY_VALIDATION) ** 2)
        yield (
            f"with {problems} validation problems a checkpoint's accuracy is known to "
            f"± {100 * error:.1f} points, and it must be better than the floor by that much to be "
            f"called feasible: about {needed} problems (validation.problems) give "
            f"± {100 * NOISY_VALIDATION:.1f}."
        )
