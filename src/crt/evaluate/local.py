"""Answers from a model on this machine: through vLLM where it can run, else the fast sampler."""

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from crt.config import EvaluationConfig, ModelConfig
from crt.engines.models import ModelFiles, cache_bytes, model_files, with_weights
from crt.errors import ConfigError
from crt.evaluate.records import Stop
from crt.evaluate.sampling import Answer, Answered, Unit
from crt.tasks.messages import PromptSettings
from crt.tasks.problems import Loaded
from crt.tasks.prompts import Prompt, Template, prepare, render
from crt.types import Problem

CACHE_BYTES = 4 * 2**30  # for keys and values; fixed, so that units are the same everywhere
MOST_ROWS = 256  # more rows are no faster on a CPU
VLLM_ROWS = 1024

Engine = Literal["auto", "fast", "vllm"]
Said = tuple[list[int], Stop]  # tokens, EOS included
Sampler = Callable[[Unit, Sequence[Prompt]], list[list[Said]]]


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
            groups = zip(prompts, self.sampler(unit, prompts), strict=True)
            yield unit, [[self._answer(*each, prompt) for each in said] for prompt, said in groups]

    def _answer(self, tokens: list[int], stop: Stop, prompt: Prompt) -> Answer:
        text = str(self.files.tokenizer.decode(tokens, skip_special_tokens=True))
        unwritten = stop == "eos" and not set(tokens[-1:]) & set(self.files.ends)
        return Answer(text, len(tokens) + unwritten, stop, prompt.opens_thinking)


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
    make = _vllm if chosen == "vllm" else _fast
    sampler, dtype, most = make(files, model, fitted, cap + longest)
    found = Local(files, dtype, chosen, template, budget, sampler, rows or most, cap)
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


def choose_engine(engine: Engine, files: ModelFiles) -> Literal["fast", "vllm"]:
    """vLLM when it is installed and a GPU is there, unless one is asked for."""
    installed = importlib.util.find_spec("vllm") is not None
    if engine == "vllm" and not installed:
        raise ConfigError("vLLM is not installed: install crt-train[vllm], or use --engine fast")
    if engine == "vllm" and files.adapter:
        raise ConfigError(f"{files.folder} is an adapter: merge it first, or use --engine fast")
    if engine != "auto":
        return engine
    import torch

    return "vllm" if installed and torch.cuda.is_available() and not files.adapter else "fast"


def _fast(
    files: ModelFiles, model: ModelConfig, settings: EvaluationConfig, positions: int
) -> tuple[Sampler, str, int]:
    """Our own sampler; a unit is one batch with one generator."""
    import torch

    from crt.engines.sampler import sample

    loaded = with_weights(files, model.dtype, model.trust_remote_code)
    room = CACHE_BYTES // (cache_bytes(loaded.model) * positions)

    def sampler(unit: Unit, prompts: Sequence[Prompt]) -> list[list[Said]]:
        groups = sample(
            loaded.model,
            [prompt.token_ids for prompt in prompts],
            unit.copies,
            settings.max_tokens,
            files.ends,
            generator=torch.Generator().manual_seed(unit.seed),
            temperature=settings.temperature,
            top_p=settings.top_p,
        )
        return [[(each.tokens, each.stop) for each in group] for group in groups]

    return sampler, loaded.dtype, max(1, min(MOST_ROWS, room))


def _vllm(
    files: ModelFiles, model: ModelConfig, settings: EvaluationConfig, positions: int
) -> tuple[Sampler, str, int]:
    """vLLM inside this process; every response has a seed of its own."""
    from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]

    engine = LLM(
        str(files.folder),
        dtype=model.dtype,
        max_model_len=positions,
        trust_remote_code=model.trust_remote_code,
        enable_prefix_caching=True,
    )

    def sampler(unit: Unit, prompts: Sequence[Prompt]) -> list[list[Said]]:
        asked = [list(prompt.token_ids) for prompt in prompts for _ in range(unit.copies)]
        how = [
            SamplingParams(
                temperature=settings.temperature,
                top_p=settings.top_p,
                max_tokens=settings.max_tokens,
                stop_token_ids=list(files.ends),
                seed=(unit.seed + row) % 2**31,
            )
            for row in range(len(asked))
        ]
        outputs = engine.generate([{"prompt_token_ids": ids} for ids in asked], how, use_tqdm=False)
        said = [_said(output.outputs[0]) for output in outputs]
        return [said[i : i + unit.copies] for i in range(0, len(said), unit.copies)]

    return sampler, model.dtype, VLLM_ROWS


def _said(output: Any) -> Said:
    return list(output.token_ids), "length" if output.finish_reason == "length" else "eos"
