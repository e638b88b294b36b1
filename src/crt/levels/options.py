"""What `crt serve` can be asked for: every default, and its bounds, in one place."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from crt.errors import ConfigError
from crt.sampling.models import Dtype

KEY_VARIABLE = "CRT_API_KEY"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
UPSTREAM_REQUESTS = 256  # under way at once behind the proxy, besides the queue


class ServeOptions(BaseModel):
    """Where the server listens, who is let in, the limits, and what answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, lt=2**16)] = 8000
    api_key: Annotated[str, Field(min_length=16)] | None = None
    default: str | None = None  # level of requests that choose none
    measured_prompt: bool = True
    slots: Annotated[int, Field(ge=1)] = 64  # responses at once per level, if their caches fit
    queue: Annotated[int, Field(ge=0)] = 128  # responses that may wait per level
    context: Annotated[int, Field(ge=2)] | None = None  # tokens; None for the model's own
    time_limit: Annotated[float, Field(gt=0)] = 300.0  # seconds per request
    body_kb: Annotated[int, Field(ge=1)] = 1024
    drain: int = 30  # seconds for streams at the end
    engine: Literal["auto", "local", "vllm"] = "auto"
    dtype: Dtype = "auto"
    vllm_args: str = ""
    upstream: tuple[str, ...] = ()
    upstream_model: tuple[str, ...] = ()
    upstream_key_from: str | None = None

    @model_validator(mode="after")
    def _reachable_with_a_key(self) -> "ServeOptions":
        if not self.loopback and self.api_key is None:
            raise ValueError(
                f"it can be reached by others: give a key in {KEY_VARIABLE} or --api-key, "
                "which clients send as their API key"
            )
        return self

    @property
    def loopback(self) -> bool:
        """Only this machine can reach it."""
        return self.host in LOOPBACK

    @property
    def upstream_requests(self) -> int:
        """Requests under way at once behind the proxy."""
        return self.queue + UPSTREAM_REQUESTS


def serve_options(**given: Any) -> ServeOptions:
    """The options, or one sentence about the first that cannot work."""
    try:
        return ServeOptions(**given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0] if first["loc"] else "host")
    value = "" if name == "api_key" else f" {given.get(name)}"
    message = first["msg"].removeprefix("Value error, ")
    raise ConfigError(f"--{name.replace('_', '-')}{value} cannot work: {message}.")
