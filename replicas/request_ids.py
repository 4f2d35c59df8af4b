"""Ids of replies: the HTTP request's id, a number that makes it unique, the choice, the attempt."""

from __future__ import annotations

import re
import secrets
from functools import lru_cache

_REPLY = re.compile(r"(?P<request>.+)-(?P<unique>[0-9a-f]{8})-(?P<choice>\d+)(?P<attempt>\.\d+)?")


def reply_id(request_id: str, choice: int) -> str:
    """Return a new id for a reply; the HTTP request's id may be the client's and not unique."""
    return f"{request_id}-{secrets.token_hex(4)}-{choice}"


@lru_cache(maxsize=4096)
def split_reply_id(reply: str) -> tuple[str, str, int]:
    """Return the HTTP request's id, what makes the reply's unique, and the choice.

    An id of another form is that of a request with one reply.

    >>> split_reply_id("mine-0a1b2c3d-1.2"), split_reply_id("mine")
    (('mine', '0a1b2c3d.2', 1), ('mine', '', 0))
    """
    match = _REPLY.fullmatch(reply)
    if match is None:
        return reply, "", 0
    unique = match["unique"] + (match["attempt"] or "")
    return match["request"], unique, int(match["choice"])
