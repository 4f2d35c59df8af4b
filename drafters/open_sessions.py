"""The sessions that a drafting method has open."""

from __future__ import annotations

from typing import TypeVar

from drafters.errors import UnknownSessionError

SessionT = TypeVar("SessionT")


class OpenSessions(dict[str, SessionT]):
    """Sessions by name; asking for one that is not open raises ``UnknownSessionError``."""

    def __missing__(self, session_id: str) -> SessionT:
        raise UnknownSessionError(f"session {session_id!r} is not open")
