"""What is known of a request before it runs. Pure; texts are hashed, never kept."""

from __future__ import annotations

import hashlib

from policy_service.api import RequestFeatures

MAX_SCANNED_CHARS = 20_000
"""Only so much of a prompt's end is looked at."""

CODE_CHARS = frozenset("{}[]()<>=;_/\\|&*+#$%^~`\"'@:")
"""Characters that are frequent in code and rare in prose."""


def short_hash(text: str) -> str:
    """Return a short name for a text that does not tell the text; empty for no text."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12] if text else ""


def code_likeness(text: str) -> float:
    """Return the share of a text's visible characters that are typical of code, 0 to 1.

    >>> code_likeness("a plain line")
    0.0
    >>> code_likeness("f(x)")
    0.5
    """
    visible = "".join(text[-MAX_SCANNED_CHARS:].split())
    return sum(char in CODE_CHARS for char in visible) / len(visible) if visible else 0.0


def request_features(
    *,
    route: str,
    tenant: str,
    system_prompt: str,
    text: str,
    num_prompt_tokens: int,
    temperature: float,
) -> RequestFeatures:
    """Return the features of a request."""
    return RequestFeatures(
        tenant=tenant,
        route=route,
        system_prompt_hash=short_hash(system_prompt),
        code_likeness=round(code_likeness(text), 4),
        num_prompt_tokens=num_prompt_tokens,
        temperature=temperature,
    )
