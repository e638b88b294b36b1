"""Errors in OpenAI's form: a status, a sentence, and never a path or a traceback."""

from typing import Any


class ApiError(Exception):
    """What a client is told went wrong."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind
        self.param, self.code, self.retry_after = param, code, retry_after

    def body(self) -> dict[str, Any]:
        """As OpenAI writes it."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }

    @property
    def headers(self) -> dict[str, str]:
        """When to come back, if that is known, and how to log in."""
        found = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return {**found, "WWW-Authenticate": "Bearer"} if self.status == 401 else found


def busy(retry_after: int) -> ApiError:
    """The queue is full."""
    return ApiError(
        429,
        "All places are taken and the queue is full. Try again a little later.",
        kind="rate_limit_error",
        code="queue_full",
        retry_after=retry_after,
    )


def too_slow(seconds: float) -> ApiError:
    """The time limit has passed."""
    return ApiError(
        504,
        f"The answer was not finished within {seconds:g} seconds. Ask for fewer tokens "
        "(max_completion_tokens) or a shorter level.",
        kind="timeout_error",
        code="time_limit",
    )


def broken() -> ApiError:
    """Our fault; what it was is in the server's log."""
    return ApiError(500, "The server failed to answer. Its log says why.", kind="server_error")
