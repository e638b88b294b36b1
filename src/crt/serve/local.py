"""Models in this process: each level has its weights, its batch and its thread."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crt.data.prompts import Template, prepare, render_turns
from crt.errors import ConfigError, CrtError
from crt.sampling.models import Dtype, LoadedModel, cache_bytes, load_model
from crt.serve.answering import Answering
from crt.serve.dial import Setting
from crt.serve.family import Family, Level, check_weights, model_of
from crt.serve.faults import ApiError
from crt.serve.forms import Answer, Kind, chunks, form, whole
from crt.serve.metrics import Heard, Metrics
from crt.serve.protocol import ChatRequest, Sampling, TextRequest, read
from crt.serve.reading import Phase, Reader
from crt.serve.scheduler import Scheduler
from crt.serve.slots import Ask, SlotBatch
from crt.serve.turns import turns_of

CACHE_BYTES = 4 * 2**30  # for keys and values of all levels together
MOST_SLOTS = 64
MOST_POSITIONS = 8192


@dataclass(frozen=True)
class LocalSettings:
    """What the local engine may use."""

    slots: int | None = None  # responses at once, a level; None for what fits, at most 64
    queue: int = 128  # responses that may wait, a level
    context: int | None = None  # positions of a response with its prompt; None for the model's
    time_limit: float = 300.0  # seconds from a request to the end of its answer
    dtype: Dtype = "auto"
    measured_prompt: bool = False  # questions are put as they were measured unless a client objects

    def __post_init__(self) -> None:
        if self.slots == 0 or (self.slots or 1) < 1 or self.queue < 0 or self.time_limit <= 0:
            raise ConfigError(
                f"{self.slots} places, a queue of {self.queue} and {self.time_limit:g} seconds "
                "cannot work: at least 1, at least 0, above 0."
            )
        if self.context is not None and self.context < 2:
            raise ConfigError(f"--context {self.context} has no room: prompt and answer take 2.")


@dataclass(frozen=True)
class Loaded:
    """One level's model, ready to answer."""

    loaded: LoadedModel
    template: Template | None  # None for a model without chat template
    scheduler: Scheduler
    room: int

    @property
    def tokenizer(self) -> Any:
        """The tokenizers library's own, which decodes in pieces."""
        return self.loaded.tokenizer._tokenizer  # pyright: ignore[reportAttributeAccessIssue]


class LocalEngine:
    """Answers requests from the levels' weights."""

    def __init__(
        self, family: Family, levels: dict[str, Loaded], settings: LocalSettings, metrics: Metrics
    ) -> None:
        self.family, self.levels, self.settings = family, levels, settings
        self.metrics = metrics

    async def answer(self, kind: Kind, setting: Setting, plain: dict[str, Any]) -> Answer:
        """The answer to a conversation, or the continuation of plain texts."""
        level = self.levels[setting.level.name]
        if kind == "chat":
            request = read(ChatRequest, plain)
            prompts = [await asyncio.to_thread(self._chat_prompt, level, setting.level, request)]
        else:
            request = read(TextRequest, plain)
            prompts = await asyncio.to_thread(_text_prompts, level, request)
        answering = self._submit(setting, request, prompts, request.cap)
        shape = form(kind, self.family.name, setting)
        return (
            chunks(shape, answering, request) if request.stream else await whole(shape, answering)
        )

    def counts(self) -> dict[str, tuple[int, int]]:
        """Level → responses being written, responses waiting."""
        return {
            name: (level.scheduler.running, level.scheduler.waiting)
            for name, level in self.levels.items()
        }

    async def health(self) -> dict[str, str]:
        """Level → whether its thread works."""
        alive = {name: level.scheduler.alive for name, level in self.levels.items()}
        return {name: "ok" if works else "failed" for name, works in alive.items()}

    async def close(self) -> None:
        """Ends the threads."""
        for level in self.levels.values():
            await asyncio.to_thread(level.scheduler.close)

    def _chat_prompt(
        self, level: Loaded, measured: Level, request: ChatRequest
    ) -> tuple[Sequence[int], Phase]:
        if level.template is None:
            raise ApiError(400, "This model has no chat template: use /v1/completions.")
        wrap = self.settings.measured_prompt
        wrap = wrap if request.measured_prompt is None else request.measured_prompt
        turns = turns_of(request, self.family.prompt_for(measured) if wrap else None)
        template = level.template
        thinking = request.chat_template_kwargs and request.chat_template_kwargs.enable_thinking
        if thinking is not None:
            template = replace(
                template, settings=replace(template.settings, enable_thinking=thinking)
            )
        try:
            prompt = render_turns(turns, template)
        except CrtError as error:
            raise ApiError(400, f"The messages cannot be used: {error}", param="messages") from None
        return prompt.token_ids, "thinking" if prompt.opens_thinking else "start"

    def _submit(
        self,
        setting: Setting,
        request: Sampling,
        prompts: Sequence[tuple[Sequence[int], Phase]],
        cap: int | None,
    ) -> Answering:
        level = self.levels[setting.level.name]
        seed = secrets.randbits(48) if request.seed is None else request.seed
        how = self.family.measured
        asks: list[Ask] = []
        readers: list[Reader] = []
        for ids, phase in prompts:
            tokens = fitting(len(ids), cap, level.room, how.max_tokens)
            for _ in range(request.choices):
                asks.append(
                    Ask(
                        key=None,
                        prompt=ids,
                        max_tokens=tokens,
                        temperature=_given(request.temperature, how.temperature),
                        top_p=_given(request.top_p, how.top_p),
                        seed=seed * 1_000_003 + len(asks),
                    )
                )
                readers.append(Reader(level.tokenizer, phase, request.stops))
        ticket = level.scheduler.submit(asks)
        length = sum(len(ids) for ids, _ in prompts)
        heard = Heard(self.metrics, setting.level.name)
        return Answering(level.scheduler, ticket, readers, length, self.settings.time_limit, heard)


def fitting(prompt: int, cap: int | None, room: int, usual: int) -> int:
    """Tokens a response may have; what cannot fit is refused."""
    if prompt == 0:
        raise ApiError(400, "The prompt is empty.", param="prompt")
    if prompt + (cap or 1) > room:
        asked = "" if cap is None else f" and {cap} more for the answer"
        raise ApiError(
            400,
            f"This model has room for {room} tokens; the prompt takes {prompt}{asked}.",
            param="messages" if cap is None else "max_tokens",
            code="context_length_exceeded",
        )
    return min(usual, room - prompt) if cap is None else cap


def load_levels(
    family: Family,
    file: Path,
    settings: LocalSettings,
    metrics: Metrics,
    note: Callable[[str], None],
) -> LocalEngine:
    """Every level's weights, checked against the hash in the family, with places in memory."""
    models = {level.name: _model(level, file, settings) for level in family.levels}
    found: dict[str, Loaded] = {}
    for name, loaded in models.items():
        room = min(settings.context or MOST_POSITIONS, loaded.files.context or MOST_POSITIONS)
        fit = CACHE_BYTES // (len(models) * room * cache_bytes(loaded.model))
        slots = settings.slots or max(1, min(MOST_SLOTS, fit))
        batch = SlotBatch(loaded.model, slots, room, frozenset(loaded.files.ends))
        scheduler = Scheduler(batch, settings.queue, name)
        found[name] = Loaded(loaded, _template(loaded, family), scheduler, room)
        note(f"{name}: {slots} places of {room} tokens, {loaded.dtype}")
    return LocalEngine(family, found, settings, metrics)


def _model(level: Level, file: Path, settings: LocalSettings) -> LoadedModel:
    where = model_of(level, file)
    loaded = load_model(where, revision=level.revision, dtype=settings.dtype)
    check_weights(level, loaded.hash, where, file)
    return loaded


def _template(loaded: LoadedModel, family: Family) -> Template | None:
    settings = family.prompt_settings
    if settings.plain is None and not loaded.tokenizer.chat_template:
        return None
    return prepare(loaded.tokenizer, settings)  # pyright: ignore[reportArgumentType]


def _text_prompts(level: Loaded, request: TextRequest) -> list[tuple[Sequence[int], Phase]]:
    words = len(level.loaded.tokenizer)
    found: list[tuple[Sequence[int], Phase]] = []
    for prompt in request.prompts:
        ids = level.loaded.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        if not all(0 <= token < words for token in ids):
            raise ApiError(400, f"A token is not from 0 to {words - 1}.", param="prompt")
        found.append((ids, "answer"))
    return found


def _given(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
