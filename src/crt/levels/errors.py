"""Errors in OpenAI's form: a status and a sentence, never a path or a traceback."""

from typing import Any


class ApiError(Exception):
    """What the client is told; `headers` go with the response."""

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
        self.status = status
        self.error = {"message": message, "type": kind, "param": param, "code": code}
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        if status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"

    def body(self) -> dict[str, Any]:
        """As OpenAI writes it."""
        return {"error": self.error}


def queue_full(retry_after: int) -> ApiError:
    """Every place is taken, in the queue too."""
    return ApiError(
        429,
        "All places are taken and the queue is full. Try again a little later.",
        kind="rate_limit_error",
        code="queue_full",
        retry_after=retry_after,
    )


def time_limit(seconds: float) -> ApiError:
    """The response took too long."""
    return ApiError(
        504,
        f"The answer was not finished within {seconds:g} seconds. Ask for fewer tokens "
        "(max_completion_tokens) or a shorter level.",
        kind="timeout_error",
        code="time_limit",
    )


def bad_gateway(message: str) -> ApiError:
    """The engine behind the proxy failed."""
    return ApiError(502, message, kind="server_error")


def internal_error() -> ApiError:
    """Our fault; the cause is in the server's log."""
    return ApiError(500, "The server failed to answer. Its log says why.", kind="server_error")
