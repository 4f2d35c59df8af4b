"""How often a drafter's drafts are of use, judged by the tokens that came. Pure."""

from __future__ import annotations

from drafters.api import ROOT, Draft


class Usefulness:
    """Compares the first tokens of each draft with the token that came in their place.

    A draft whose first token did not come earned nothing, whatever followed; so did an empty one.
    Whether it was verified does not matter.

    Attributes:
        num_judged: Drafts whose place is known to have been taken by a token.
        num_useful: Of those, the drafts that had that token.
    """

    def __init__(self) -> None:
        self.num_judged = 0
        self.num_useful = 0
        self._first: dict[str, frozenset[int]] = {}

    def __len__(self) -> int:
        return len(self._first)

    def proposed(self, session_id: str, draft: Draft) -> None:
        """Remember a draft until the session goes on."""
        nodes = zip(draft.token_ids, draft.parents, strict=True)
        self._first[session_id] = frozenset(token for token, parent in nodes if parent == ROOT)

    def came(self, session_id: str, token_id: int) -> None:
        """Judge the session's last draft by the token that came next."""
        first = self._first.pop(session_id, None)
        if first is not None:
            self.num_judged += 1
            self.num_useful += token_id in first

    def forget(self, session_id: str) -> None:
        """Judge the session's last draft no more."""
        self._first.pop(session_id, None)
