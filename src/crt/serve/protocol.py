"""What clients may send: OpenAI's requests, checked strictly, and the dial's own fields."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crt.errors import did_you_mean
from crt.serve.faults import ApiError

MOST_CHOICES = 16
MOST_STOPS = 16
Text = Annotated[str, Field(max_length=10_000_000)]
Stops = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=500)]], Field(max_length=MOST_STOPS)
]

IGNORED = frozenset(  # fields that change nothing here, whatever they say
    {"user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier"}
)
UNSUPPORTED = {  # field → the values that mean it is not used
    "frequency_penalty": (0, None),
    "presence_penalty": (0, None),
    "logit_bias": ({}, None),
    "logprobs": (False, None),
    "top_logprobs": (0, None),
    "tools": ([], None),
    "tool_choice": ("none", "auto", None),
    "functions": ([], None),
    "response_format": ({"type": "text"}, None),
    "parallel_tool_calls": (True, False, None),
    "modalities": (["text"], None),
    "echo": (False, None),
    "suffix": ("", None),
    "best_of": (1, None),
}


class TextPart(BaseModel):
    """A piece of a message."""

    model_config = ConfigDict(strict=True)
    type: Literal["text"]
    text: Text


class Message(BaseModel):
    """One turn; other fields of a turn, such as a name, are not used."""

    model_config = ConfigDict(strict=True)
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart] | None = None

    @property
    def text(self) -> str:
        """All of its text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(BaseModel):
    """When the usage is told; every chunk, as vLLM does, or at the end."""

    model_config = ConfigDict(strict=True, extra="forbid")
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class TemplateSettings(BaseModel):
    """What a chat template may be told."""

    model_config = ConfigDict(strict=True, extra="forbid")
    enable_thinking: bool | None = None


class Dialled(BaseModel):
    """The dial's settings, in every way a client may have."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: Annotated[str, Field(min_length=1, max_length=300)]
    verbosity: Literal["low", "medium", "high"] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    token_target: Annotated[int, Field(ge=1, le=10**9)] | None = None


class DialOnly(Dialled):
    """The dial's settings alone, whatever else the request holds."""

    model_config = ConfigDict(strict=True, extra="ignore")


class Sampling(Dialled):
    """How the answer is drawn and sent."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: Annotated[str, Field(min_length=1, max_length=500)] | Stops | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end the answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def choices(self) -> int:
        """Answers wanted."""
        return self.n or 1

    @property
    def wants_usage(self) -> bool:
        """Whether a stream tells its usage at the end."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def wants_running_usage(self) -> bool:
        """Whether every chunk of a stream tells it."""
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)


class ChatRequest(Sampling):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=1000)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    chat_template_kwargs: TemplateSettings | None = None
    measured_prompt: bool | None = None
    """Put the last user turn as the levels were measured: with the run's instruction."""

    @property
    def cap(self) -> int | None:
        """Tokens at most, by either name."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class TextRequest(Sampling):
    """POST /v1/completions: the prompt as it is, without chat template."""

    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=64)]
        | Annotated[list[int], Field(min_length=1, max_length=1_000_000)]
        | Annotated[list[list[int]], Field(min_length=1, max_length=64)]
    )

    @property
    def cap(self) -> int | None:
        """Tokens at most; 16 unless told, as OpenAI has it."""
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def prompts(self) -> list[str | list[int]]:
        """One or several."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]  # pyright: ignore[reportReturnType]
        return list(self.prompt)  # pyright: ignore[reportReturnType]


Request = TypeVar("Request", bound=Sampling)


def read(kind: type[Request], plain: dict[str, Any]) -> Request:
    """The request, or one sentence about the first thing that is wrong with it."""
    for name, unused in UNSUPPORTED.items():
        if plain.get(name) not in unused:
            told = f"{name} is not supported here: leave it out."
            raise ApiError(400, told, param=name, code="unsupported")
    left_out = IGNORED | UNSUPPORTED.keys()
    return checked(kind, {name: plain[name] for name in plain if name not in left_out})


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body."""
    from pydantic_core import from_json

    try:
        plain = from_json(body, allow_inf_nan=False)
    except ValueError:
        raise ApiError(400, "The body is not valid JSON.", code="invalid_json") from None
    if not isinstance(plain, dict):
        raise ApiError(400, "The body must be a JSON object.", code="invalid_json")
    return plain


Kind = TypeVar("Kind", bound=BaseModel)


def checked(kind: type[Kind], plain: dict[str, Any]) -> Kind:
    """The values as this kind of request."""
    try:
        return kind.model_validate(plain)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(step) for step in first["loc"])
    if first["type"] == "extra_forbidden":
        known = did_you_mean(where, sorted(kind.model_fields))
        raise ApiError(400, f"There is no field {where[:80]!r}. {known}", param=where[:80])
    if first["type"] == "missing":
        raise ApiError(400, f"The field {where!r} is missing.", param=where)
    raise ApiError(400, f"The field {where!r} cannot be used: {first['msg']}.", param=where)
