"""Verification: walk a draft as far as the target agrees with it. Pure.

At every row the target draws its own token with the request's keyed noise; a draft token is
accepted if it is that token. So every emitted token is the target's own, whatever was drafted: the
output does not depend on drafts, and cutting a draft by looking at it introduces no bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drafters.api import ROOT, Draft


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a draft.

    Attributes:
        token_ids: Tokens emitted, oldest first: the accepted ones and one more of the target (the
            recovered token where the draft went wrong, the bonus token where all was accepted),
            unless the reply ended before.
        accepted_nodes: Nodes of the draft that were accepted, from the root down.
    """

    token_ids: tuple[int, ...]
    accepted_nodes: tuple[int, ...]


def verify_draft(
    draft: Draft, target_token: Callable[[int], int], ends_reply: Callable[[int], bool]
) -> Verdict:
    """Emit the target's tokens along a draft.

    Args:
        draft: The draft; may be empty.
        target_token: Gives the target's token after a node (``ROOT``: after the last committed
            token). Called once a node, from the root down, so it may depend on what was emitted.
        ends_reply: Told of every emitted token; returns whether the reply ends with it.

    Example:
        >>> from drafters.api import chain
        >>> target = {-1: 5, 0: 6, 1: 9}
        >>> verify_draft(chain([5, 6, 7]), target.__getitem__, lambda token: False)
        Verdict(token_ids=(5, 6, 9), accepted_nodes=(0, 1))
    """
    children = {
        (parent, token): node
        # Reversed, so that of equal siblings the first, which the drafter ranked best, stays.
        for node, (parent, token) in reversed(
            list(enumerate(zip(draft.parents, draft.token_ids, strict=True)))
        )
    }
    emitted: list[int] = []
    accepted: list[int] = []
    node = ROOT
    while True:
        token = target_token(node)
        emitted.append(token)
        child = children.get((node, token))
        if child is not None:
            accepted.append(child)
        if ends_reply(token) or child is None:
            return Verdict(tuple(emitted), tuple(accepted))
        node = child
