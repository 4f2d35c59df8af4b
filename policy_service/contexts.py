"""Contexts: the groups of requests whose counts are pooled, from specific to the root.

A context is named by what it groups by, so that its parent follows from its name alone and whoever
reads counts can sum them upwards without a registry. There are three levels::

    n=acme|r=chat|s=ab12cd|c=1|l=2|t=0    tenant, route, system prompt, code, length, temperature
    r=chat|c=1                            route, code
    global

Buckets: ``c`` (share of code-like characters) 0 below 0.04, 1 below 0.10, else 2; ``l`` (tokens of
the prompt) 0 below 64, then one more at 64, 256, 1024, 4096 and 16384; ``t`` (temperature) 0 for
greedy, 1 up to 0.5, 2 up to 1, else 3.

A tenant may take only some of the places that there are. Requests of it beyond them count for the
whole tenant on that route, so that it is still known whose they are::

    n=acme|r=chat|c=1

This module knows neither counts nor learners.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from urllib.parse import quote

from policy_service.api import SHADOW, RequestFeatures

GLOBAL = "global"
"""The root: every round counts here."""

CODE_BOUNDS = (0.04, 0.10)
LENGTH_BOUNDS = (64, 256, 1024, 4096, 16384)
TEMPERATURE_BOUNDS = (0.0, 0.5, 1.0)
_LONGEST_PART = 64
_SPECIFIC = "n="


def context_chain(features: RequestFeatures) -> tuple[str, ...]:
    """Return the contexts of a request, the most specific first, ``global`` last.

    >>> context_chain(RequestFeatures(tenant="acme", route="chat"))
    ('n=acme|r=chat|s=|c=0|l=0|t=0', 'r=chat|c=0', 'global')
    """
    route = _part(features.route)
    code = bisect_right(CODE_BOUNDS, features.code_likeness)
    length = bisect_right(LENGTH_BOUNDS, features.num_prompt_tokens)
    temperature = bisect_left(TEMPERATURE_BOUNDS, features.temperature)
    specific = (
        f"{_SPECIFIC}{_part(features.tenant)}|r={route}|s={_part(features.system_prompt_hash)}"
        f"|c={code}|l={length}|t={temperature}"
    )
    return specific, f"r={route}|c={code}", GLOBAL


def parent_of(context: str) -> str | None:
    """Return the context that ``context`` is part of; None for the root and for ``SHADOW``.

    A name of another form is a child of the root, so that no round is ever left out of it.

    >>> parent_of("n=acme|r=chat|s=|c=0|l=0|t=0")
    'r=chat|c=0'
    """
    if context in (GLOBAL, SHADOW):
        return None
    if not is_specific(context):
        return GLOBAL
    parts = [part for part in context.split("|") if part[:2] in ("r=", "c=")]
    return "|".join(parts) or GLOBAL


def is_specific(context: str) -> bool:
    """Whether the context is of the most specific level, the one whose number is bounded."""
    return context.startswith(_SPECIFIC)


def tenant_of(context: str) -> str:
    """Return the tenant that a context names, as it stands there; empty if it names none.

    >>> tenant_of("n=acme|r=chat|s=|c=0|l=0|t=0")
    'acme'
    """
    return context.partition("|")[0].removeprefix(_SPECIFIC) if is_specific(context) else ""


def of_whole_tenant(context: str) -> str:
    """Return the context of all that a specific context's tenant does on its route.

    >>> of_whole_tenant("n=acme|r=chat|s=ab|c=0|l=3|t=1")
    'n=acme|r=chat|c=0'
    """
    parts = [part for part in context.split("|") if part[:2] in (_SPECIFIC, "r=", "c=")]
    return "|".join(parts)


def is_of_whole_tenant(context: str) -> bool:
    """Whether a context is one that ``of_whole_tenant`` returns; a tenant has but a few of them."""
    return is_specific(context) and of_whole_tenant(context) == context


def _part(text: str) -> str:
    """Return free text in a form that holds no separator and has a bounded length."""
    quoted = quote(text, safe="")
    if len(quoted) <= _LONGEST_PART:
        return quoted
    return "~" + hashlib.sha256(text.encode()).hexdigest()[:24]


class ContextRegistry:
    """Admits at most so many specific contexts, and so many of one tenant.

    A tenant's requests beyond its share count for the whole tenant on their route; if there is no
    place for that either, for the parent. Contexts that the pool already keeps come first, then new
    ones in the order they arrive. When the pool forgets a context, its place is free again. Not
    safe for use from several threads.
    """

    def __init__(self, max_contexts: int, max_per_tenant: int | None = None) -> None:
        self._max_contexts = max_contexts
        self._max_per_tenant = max_contexts if max_per_tenant is None else max_per_tenant
        self._admitted: set[str] = set()
        self._num_by_tenant: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._admitted)

    def admit(self, chain: tuple[str, ...]) -> tuple[str, ...]:
        """Return the chain, its most specific context a wider one if there is no place for it."""
        if not is_specific(chain[0]) or self._has_place(chain[0]):
            return chain
        wider = of_whole_tenant(chain[0])
        return (wider, *chain[1:]) if self._has_place(wider) else chain[1:]

    def refresh(self, pooled: Iterable[str]) -> None:
        """Start anew from the contexts that the pool keeps.

        A context admitted since the pool was read gives up its place and takes one again with its
        next request.
        """
        self._admitted.clear()
        self._num_by_tenant.clear()
        for context in dict.fromkeys(pooled):
            if is_specific(context):
                self._has_place(context)

    def _has_place(self, context: str) -> bool:
        """Whether a specific context is admitted; it is if there is a place for it."""
        if context in self._admitted:
            return True
        tenant, is_wide = tenant_of(context), is_of_whole_tenant(context)
        if len(self._admitted) >= self._max_contexts:
            return False
        if not is_wide and self._num_by_tenant[tenant] >= self._max_per_tenant:
            return False
        self._admitted.add(context)
        if not is_wide:
            self._num_by_tenant[tenant] += 1
        return True
