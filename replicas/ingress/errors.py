"""Errors as HTTP clients see them: a status and OpenAI's nested body with a string code.

Messages hold no path, address, stack trace or long echo of the input. Knows no web framework.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MAX_ENTRIES = 10
"""Most complaints about one body that are reported."""

MAX_ECHO_CHARS = 200
"""Longest piece of a client's input, or of a complaint about it, in a message."""

RETRY_AFTER_S = 2
"""When a client may try again after an error that passes."""

_TYPES = {
    401: "authentication_error",
    429: "rate_limit_error",
    500: "internal_error",
    503: "service_unavailable_error",
}


class ApiError(Exception):
    """What a client is told instead of an answer.

    Attributes:
        status: HTTP status.
        code: Machine-readable reason.
        message: For people.
        param: Name of the field to blame, or None.
        retry_after_s: Seconds after which to try again, or None.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(status, code, message, param, retry_after_s)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}"

    def body(self) -> dict[str, Any]:
        """Return the response body."""
        return {
            "error": {
                "message": self.message,
                "type": _TYPES.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }

    def headers(self) -> dict[str, str]:
        """Return the response headers that go with it."""
        headers = {}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


def invalid(message: str, param: str | None = None, code: str = "invalid_parameter") -> ApiError:
    """Return the error for a request that breaks a rule."""
    return ApiError(400, code, message, param)


def unavailable(message: str, code: str = "service_unavailable") -> ApiError:
    """Return the error for a request that nobody can serve just now."""
    return ApiError(503, code, message, retry_after_s=RETRY_AFTER_S)


def queue_full() -> ApiError:
    """Return the error for a request that is turned away because too many wait."""
    message = "too many requests are waiting; try again later"
    return ApiError(429, "queue_full", message, retry_after_s=RETRY_AFTER_S)


def internal() -> ApiError:
    """Return the error for our own faults; what happened is in the log only."""
    return ApiError(500, "internal_error", "the server failed to answer; see its log")


def shorten(text: str) -> str:
    """Cut a text to what a message may hold of it."""
    return text if len(text) <= MAX_ECHO_CHARS else text[: MAX_ECHO_CHARS - 3] + "..."


def join_entries(entries: Iterable[str]) -> str:
    """Return complaints as one message of bounded length."""
    shortened = [shorten(entry) for entry in entries]
    message = "; ".join(shortened[:MAX_ENTRIES])
    num_left = len(shortened) - MAX_ENTRIES
    return f"{message}; and {num_left} more" if num_left > 0 else message
