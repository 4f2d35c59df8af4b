"""Errors of the replicas.

    ReplicaError
    ├── RequestError            the request cannot be served as it is; the client's to mend
    ├── QueueFullError          this Verifier has too many requests waiting; try again later
    └── EngineStoppedError      this Verifier's engine has stopped; another Verifier can go on

Every constructor passes its positional arguments on, so that errors survive pickling. Ray raises
them as objects that are also a ``RayTaskError`` whose ``str`` is a whole traceback; read their
attributes, which Ray forwards, never their ``args``.
"""

from __future__ import annotations


class ReplicaError(Exception):
    """Base of all errors of this package.

    Attributes:
        message: What is wrong, expected and found.
    """

    def __init__(self, message: str = "", *args: object) -> None:
        super().__init__(message, *args)
        self.message = message

    def __str__(self) -> str:
        return self.message


class RequestError(ReplicaError):
    """The request cannot be served as it is.

    Attributes:
        message: What is wrong, expected and found.
        code: Machine-readable, of the HTTP API's table of errors.
        param: Name of the field to blame, or None.
    """

    def __init__(
        self, message: str, code: str = "invalid_parameter", param: str | None = None
    ) -> None:
        super().__init__(message, code, param)
        self.code = code
        self.param = param


class QueueFullError(ReplicaError):
    """This Verifier has as many requests waiting as it may have; try again later."""


class EngineStoppedError(ReplicaError):
    """This Verifier's engine has stopped; the request can go on at another one."""
