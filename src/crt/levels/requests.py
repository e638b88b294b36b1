"""OpenAI's requests and errors: strict validation, the dial that chooses a level, the prompt."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from crt.data.prompts import PromptSettings, to_messages
from crt.errors import CrtError, did_you_mean
from crt.levels.family import Family, Level
from crt.pocket import QuestionError
from crt.pocket.language import Reading

Kind = Literal["chat", "text"]
Chunks = AsyncGenerator[dict[str, Any], None]
Text = Annotated[str, Field(max_length=10_000_000)]
Stop = Annotated[str, Field(min_length=1, max_length=500)]

DIAL = {  # how far along the dial, from the shortest level (0) to the base (1)
    "reasoning_effort": {
        **dict.fromkeys(("none", "minimal"), 0.0),
        **{"low": 1 / 3, "medium": 2 / 3},
        **dict.fromkeys(("high", "xhigh"), 1.0),
    },
    "verbosity": {"low": 0.0, "medium": 0.5, "high": 1.0},
}
IGNORED = frozenset(  # fields that change nothing here, whatever their value
    {"user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier"}
    | {"tool_choice", "parallel_tool_calls"}
)
UNSUPPORTED = {  # field → the value that asks for nothing; null, 0, false and empty do so, too
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "logit_bias", "logprobs")),
    **dict.fromkeys(("top_logprobs", "tools", "functions", "echo", "suffix")),
    **{"response_format": {"type": "text"}, "modalities": ["text"], "best_of": 1},
}
ERROR_TYPES = {401: "authentication_error", 429: "rate_limit_error", 504: "timeout_error"}


class ApiError(HTTPException):
    """An error in OpenAI's form: a status and a sentence, never a path or a traceback."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        super().__init__(status, message, headers)
        usual = "server_error" if status >= 500 else "invalid_request_error"
        kind = ERROR_TYPES.get(status, usual)
        self.error = {"message": message, "type": kind, "param": param, "code": code}


def queue_full(retry_after: int = 1) -> ApiError:
    message = "All places are taken and the queue is full. Try again a little later."
    return ApiError(429, message, code="queue_full", retry_after=retry_after)


def internal_error() -> ApiError:
    return ApiError(500, "The server failed to answer. Its log says why.")


# ---- the dial


class Dial(BaseModel):
    """The fields that choose a level or the prompt, whatever else the request holds."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: Annotated[str, Field(min_length=1, max_length=300)]
    verbosity: Literal["low", "medium", "high"] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    token_target: Annotated[int, Field(ge=1, le=10**9)] | None = None
    measured_prompt: bool | None = None
    """True: one question in the measured prompt. False: never. None: where it fits, if enabled."""


def choose_level(family: Family, dial: Dial, default: Level) -> tuple[Level, str]:
    """The level, and the first field that is given: model name, token target, effort, verbosity."""
    named = named_level(family, dial.model)
    target = dial.token_target
    if named is not None and target is not None:
        raise ApiError(
            400,
            f"The model {dial.model!r} names a level and token_target = {target} "
            f"chooses another: give one of them, with the model {family.name!r} for a target.",
            param="token_target",
            code="dial_conflict",
        )
    if named is not None:
        return named, "model"
    if target is not None:  # of two equally near levels the shorter one
        return min(family.levels, key=lambda x: (abs(x.len.value - target), x.len.value)), (
            "token_target"
        )
    for field, shares in DIAL.items():
        if (word := getattr(dial, field)) is not None:
            return level_at(family, shares[word]), field
    return default, "default"


def named_level(family: Family, model: str) -> Level | None:
    """The level in `NAME:LEVEL` or `LEVEL`; None for `NAME` alone, 404 for anything else."""
    if model == family.name:
        return None
    level = family.level(model.removeprefix(f"{family.name}:"))
    if level is None:
        message = f"There is no model {model[:80]!r}. {did_you_mean(model, model_ids(family))}"
        raise ApiError(404, message, param="model", code="model_not_found")
    return level


def model_ids(family: Family) -> list[str]:
    """What `/v1/models` lists: the family, whose dial is in the request, and each level."""
    return [family.name, *(f"{family.name}:{level.name}" for level in family.levels)]


def level_at(family: Family, share: float) -> Level:
    """The level that far along the dial; between two, the shorter one."""
    return family.levels[int(share * (len(family.levels) - 1) + 1e-9)]


# ---- the request


@dataclass(frozen=True)
class Call:
    """A request as an engine gets it: `body` is OpenAI's, without the fields of the dial."""

    kind: Kind
    level: Level
    model: str  # the name that the client sees, NAME:LEVEL
    body: dict[str, Any]
    about: dict[str, Any]  # what the answer says of the level, and how it was chosen
    restore: Callable[[str], str] | None = None  # the client's words in the model's answer

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class Message(BaseModel):
    """One turn; other fields of a turn, such as a name, are not used."""

    class TextPart(BaseModel):
        model_config = ConfigDict(strict=True)
        type: Literal["text"]
        text: Text

    model_config = ConfigDict(strict=True)
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(Strict):
    """When the usage is sent: in every chunk, as vLLM does, or at the end."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class TemplateSettings(Strict):
    enable_thinking: bool | None = None


class Sampling(Strict):
    model: str
    stream: bool | None = None
    stream_options: StreamOptions = StreamOptions()
    n: Annotated[int, Field(ge=1, le=16)] = 1
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] = []
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class ChatRequest(Sampling):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=1000)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    chat_template_kwargs: TemplateSettings = TemplateSettings()

    @property
    def limit(self) -> int | None:
        """Tokens at most, by either name."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def turns(self) -> list[dict[str, str]]:
        """Role and text of every turn; `developer` is OpenAI's newer name for `system`."""
        if self.messages[-1].role == "assistant":
            raise ApiError(400, "The last message must not be the assistant's.", param="messages")
        roles = {"developer": "system"}
        return [{"role": roles.get(m.role, m.role), "content": m.text} for m in self.messages]


class TextRequest(Sampling):
    """POST /v1/completions: the prompt as it is, without chat template."""

    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=64)]
        | Annotated[list[int], Field(min_length=1, max_length=1_000_000)]
        | Annotated[list[list[int]], Field(min_length=1, max_length=64)]
    )

    @property
    def limit(self) -> int:
        """Tokens at most; 16 by default, as OpenAI has it."""
        return self.max_tokens or 16

    @property
    def prompts(self) -> list[Any]:
        """One prompt or several, each a text or a list of tokens."""
        single = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        return [self.prompt] if single else list(self.prompt)


def apply_measured_prompt(
    body: dict[str, Any],
    settings: PromptSettings,
    read: Callable[[str], Reading],
    explicit: bool,
) -> tuple[dict[str, Any], Reading] | None:
    """The body with its one question in the measured prompt, and how the question was read.

    None if the body holds anything else; `explicit`: say why. A question that is in that prompt
    already stays as it is.
    """
    messages = body.get("messages")
    single = messages[0] if isinstance(messages, list) and len(messages) == 1 else None
    if not isinstance(single, dict) or single.get("role") != "user":
        if not explicit:
            return None
        message = "measured_prompt puts one question as the levels were measured: send one user"
        raise ApiError(400, f"{message} message.", param="measured_prompt")
    question = validated(Message, single, prefix="messages.0.").text
    before, _, after = settings.instruction.partition("{question}")
    if (before or after) and question.startswith(before) and question.endswith(after):
        question = question[len(before) : len(question) - len(after)]
    try:
        reading = read(question)
        return {**body, "messages": list(to_messages(reading.question, settings, None))}, reading
    except QuestionError as error:
        code = "outside_language"
        raise ApiError(400, str(error), param="messages", code=code) from None
    except CrtError as error:
        raise ApiError(400, f"The measured prompt cannot be used: {error}") from None


# ---- validation

Model = TypeVar("Model", bound=BaseModel)
Request = TypeVar("Request", bound=Sampling)


def parse_body(content: bytes) -> dict[str, Any]:
    try:
        plain = from_json(content, allow_inf_nan=False)
    except ValueError:
        raise ApiError(400, "The body is not valid JSON.", code="invalid_json") from None
    if not isinstance(plain, dict):
        raise ApiError(400, "The body must be a JSON object.", code="invalid_json")
    return plain


def parse_request(kind: type[Request], plain: dict[str, Any]) -> Request:
    """The request; null is as good as absent, and what cannot be honoured is refused."""
    for name, neutral in UNSUPPORTED.items():
        if (value := plain.get(name)) and value != neutral:
            message = f"{name} is not supported here: leave it out."
            raise ApiError(400, message, param=name, code="unsupported")
    skipped = {*IGNORED, *UNSUPPORTED, *(k for k in kind.model_fields if plain.get(k) is None)}
    return validated(kind, {name: value for name, value in plain.items() if name not in skipped})


def validated(kind: type[Model], plain: dict[str, Any], prefix: str = "") -> Model:
    """The values as this model, or one sentence about the first thing that is wrong."""
    try:
        return kind.model_validate(plain)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = prefix + ".".join(str(step) for step in first["loc"])
    if first["type"] == "extra_forbidden":
        nearest = did_you_mean(where, sorted({*kind.model_fields, *Dial.model_fields}))
        raise ApiError(400, f"There is no field {where[:80]!r}. {nearest}", param=where[:80])
    if first["type"] == "missing":
        raise ApiError(400, f"The field {where!r} is missing.", param=where)
    raise ApiError(400, f"The field {where!r} cannot be used: {first['msg']}.", param=where)
