"""Answers from a model on this machine: through vLLM where it can run, else the fast sampler."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crt.config import EvaluationConfig, ModelConfig
from crt.data.datasets import Loaded
from crt.data.prompts import PromptSettings, Template, prepare, render
from crt.errors import ConfigError
from crt.evaluation.sampling import Answered, Unit
from crt.sampling.base import Engine, InProcess, Sampler, Sampling, choose_engine
from crt.sampling.models import ModelFiles, model_files, with_weights
from crt.sampling.policy import respond
from crt.types import Problem


@dataclass(frozen=True)
class Local:
    """A model's own template around each question, and a sampler behind it."""

    files: ModelFiles
    dtype: str
    engine: str
    template: Template
    budget: int | None
    sampler: Sampler
    rows: int
    max_tokens: int

    def model(self) -> Mapping[str, Any]:
        """The weights, by hash."""
        return {
            "name": self.files.name,
            "kind": "local",
            "hash": self.files.hash,
            "dtype": self.dtype,
            "engine": self.engine,
        }

    def prompt_hash(self) -> str | None:
        """Of template and settings."""
        return self.template.hash

    def template_text(self) -> str | None:
        """The model's own; None where a plain text is used instead."""
        own = self.files.tokenizer.chat_template
        return own if self.template.settings.plain is None and isinstance(own, str) else None

    def sent(self, problem: Problem) -> Mapping[str, Any]:
        """The rendered text."""
        prompt = render(problem, self.template, self.budget)
        return {"prompt": prompt.text, "opens_thinking": prompt.opens_thinking}

    def answers(self, units: Iterable[Unit]) -> Iterator[Answered]:
        """One unit after the other; the sampler batches within it."""
        for unit in units:
            prompts = [render(problem, self.template, self.budget) for problem in unit.problems]
            groups = respond(
                prompts,
                self.sampler,
                self.files.tokenizer,
                self.files.eos_token_ids,
                unit.num_samples,
                unit.seed,
            )
            yield unit, groups


def local(
    model: ModelConfig,
    sets: Sequence[Loaded],
    prompt: PromptSettings,
    settings: EvaluationConfig,
    *,
    budget: int | None = None,
    engine: Engine = "auto",
    rows: int | None = None,
) -> tuple[Local, list[str]]:
    """The backend, and what a user should know: a template's quirks, a cap that does not fit."""
    if rows is not None and rows < 1:
        raise ConfigError(f"rows = {rows}: at least 1 response has to be sampled at a time")
    files = model_files(
        model.name, revision=model.revision, trust_remote_code=model.trust_remote_code
    )
    template = prepare(files.tokenizer, prompt)  # pyright: ignore[reportArgumentType]
    longest = max(
        len(render(problem, template, budget).token_ids) for each in sets for problem in each
    )
    cap, notes = fitting_cap(files, settings.max_tokens, longest)
    fitted = settings.model_copy(update={"max_tokens": cap})
    chosen = choose_engine(engine, files)
    sampler, dtype = sampler_for(chosen, files, model, fitted, cap + longest)
    rows = rows or sampler.batch_size(longest)
    found = Local(files, dtype, chosen, template, budget, sampler, rows, cap)
    return found, [*template.notes, *notes]


def fitting_cap(files: ModelFiles, asked: int, longest_prompt: int) -> tuple[int, list[str]]:
    """The cap asked for, or what the model has positions for."""
    if files.context is None or asked + longest_prompt <= files.context:
        return asked, []
    room = files.context - longest_prompt
    if room < 2:
        raise ConfigError(
            f"{files.name} has {files.context} positions, and the longest prompt takes "
            f"{longest_prompt}: nothing is left for an answer."
        )
    told = f"{files.name} has {files.context} positions: the cap is {room} tokens, not {asked}"
    return room, [told]


def sampler_for(
    engine: str, files: ModelFiles, model: ModelConfig, settings: EvaluationConfig, positions: int
) -> tuple[Sampler, str]:
    """Who draws, and in which number format."""
    how = Sampling(settings.max_tokens, settings.temperature, settings.top_p)
    if engine == "vllm":
        from crt.sampling.vllm import VllmSampler

        options: dict[str, Any] = {"trust_remote_code": model.trust_remote_code}
        return VllmSampler(files, how, positions=positions, dtype=model.dtype, **options), (
            model.dtype
        )
    loaded = with_weights(files, model.dtype, model.trust_remote_code)
    return InProcess(loaded.model, files.eos_token_ids, how), loaded.dtype
