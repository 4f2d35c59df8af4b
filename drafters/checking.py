"""Check what a drafter sent before anything relies on it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from drafters.api import ROOT, Draft, DraftBatchReply
from drafters.shadow import MAX_DEPTH, MAX_RANK, NUM_SCORE_BUCKETS


def malformed_draft(draft: object, max_tokens: int, vocab_size: int | None) -> str | None:
    """Return what is wrong with a draft, or None.

    Unpickling runs no constructor, so nothing that ``Draft`` itself promises is taken for granted.

    Args:
        draft: What came.
        max_tokens: Most tokens that were asked for.
        vocab_size: Token ids must be smaller; None if unknown.

    >>> malformed_draft(Draft((7,), (-1,)), 4, 5)
    'token 7 is not one of 0..4'
    """
    if not isinstance(draft, Draft):
        return f"expected a draft, got {type(draft).__name__}"
    if len(draft.token_ids) > max_tokens:
        return f"at most {max_tokens} tokens were asked for, got {len(draft.token_ids)}"
    if len(draft.parents) != len(draft.token_ids):
        return f"{len(draft.token_ids)} tokens have {len(draft.parents)} parents"
    return _bad_token(draft.token_ids, vocab_size) or _bad_parent(draft.parents)


def malformed_reply(reply: object, num_requests: int) -> str | None:
    """Return what is wrong with a reply as a whole, or None."""
    if not isinstance(reply, DraftBatchReply):
        return f"expected a reply, got {type(reply).__name__}"
    if len(reply.drafts) != num_requests:
        return f"{num_requests} drafts were asked for, got {len(reply.drafts)}"
    return None


def malformed_counts(counts: object) -> str | None:
    """Return what is wrong with shadow counts, or None.

    >>> malformed_counts({(0, 1, 0): (1, 2)})
    'of 1 tokens offered 2 came'
    """
    if not isinstance(counts, Mapping):
        return f"expected counts, got {type(counts).__name__}"
    for cell, count in counts.items():
        numbers = (*cell, *count) if isinstance(cell, tuple) and isinstance(count, tuple) else ()
        if len(numbers) != 5 or any(type(number) is not int for number in numbers):
            return f"expected whole numbers, got {cell!r}: {count!r}"
        bucket, depth, rank, offered, accepted = numbers
        if not (
            0 <= bucket < NUM_SCORE_BUCKETS and 1 <= depth <= MAX_DEPTH and 0 <= rank <= MAX_RANK
        ):
            return f"there is no cell {cell!r}"
        if not 0 <= accepted <= offered:
            return f"of {offered} tokens offered {accepted} came"
    return None


def _bad_token(token_ids: tuple[int, ...], vocab_size: int | None) -> str | None:
    for token_id in token_ids:
        if type(token_id) is not int:
            return f"a token is an int, got {type(token_id).__name__}"
        if token_id < 0 or (vocab_size is not None and token_id >= vocab_size):
            limit = "" if vocab_size is None else str(vocab_size - 1)
            return f"token {token_id} is not one of 0..{limit}"
    return None


def _bad_parent(parents: tuple[int, ...]) -> str | None:
    for node, parent in enumerate(parents):
        if type(parent) is not int or not ROOT <= parent < node:
            return f"node {node} has parent {parent!r}; parents come first"
    return None
