"""Who a request comes from and what it carries: API keys and bodies."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path

from starlette.requests import ClientDisconnect, Request

from replicas.ingress.disconnect import ClientDisconnectedError
from replicas.ingress.errors import ApiError, invalid


def read_keys(keys: Sequence[str], path: str) -> tuple[str, ...]:
    """Return keys and, if a file is named, those in it: one a line, empty lines left out.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it holds no key; that would let everybody in.
    """
    if not path:
        return tuple(keys)
    found = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    found = [line for line in found if line]
    if not found:
        raise ValueError(f"{path}: expected API keys, one a line, found none")
    return (*keys, *found)


class Keys:
    """The keys that clients must present.

    Args:
        keys: The keys; none means that none is needed.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = tuple(hashlib.sha256(key.encode()).digest() for key in keys)

    def __bool__(self) -> bool:
        """Whether a key is needed."""
        return bool(self._digests)

    def authorize(self, header: str | None) -> str:
        """Return the name of the tenant whose key an ``Authorization`` header holds.

        Empty if no key is needed. Takes the same time whichever key is right, or none.

        Raises:
            ApiError: If there is no key, or a wrong one.
        """
        if not self._digests:
            return ""
        scheme, _, key = (header or "").partition(" ")
        digest = hashlib.sha256(key.strip().encode()).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if scheme.lower() != "bearer" or not any(matches):
            message = "expected a valid API key as 'Authorization: Bearer KEY'"
            raise ApiError(401, "invalid_api_key", message)
        return digest.hex()[:12]


async def read_json_body(request: Request, max_bytes: int) -> bytes:
    """Return a body that says that it is JSON, reading no more than is allowed.

    Raises:
        ApiError: If it is of another type or too large.
        ClientDisconnectedError: If the client went away while sending it.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise invalid("expected a body of content type application/json", code="invalid_request")
    too_large = ApiError(
        413, "request_too_large", f"the body is larger than the limit of {max_bytes} bytes"
    )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > max_bytes:
        raise too_large
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > max_bytes:
                raise too_large
    except ClientDisconnect:
        raise ClientDisconnectedError from None
    return bytes(body)
