"""Draft with a language model for all sequences of a call at once.

First the tokens of their contexts that are not in the cache are computed, in one packed forward;
then the drafts grow, one packed forward a depth for all sequences and all branches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drafters.api import EMPTY_DRAFT, Draft
from drafters.model_drafting.candidates import DraftedRow, find_candidates
from drafters.model_drafting.growth import DraftGrowth
from drafters.model_drafting.session_cache import DraftSession, SessionCache
from models.batch import PackedBatch
from models.paged_model import PagedModel


@dataclass(frozen=True, slots=True)
class GrowthLimits:
    """How large drafts get.

    Attributes:
        max_nodes: Most nodes of a draft.
        top_k: Children that a node gets.
        beam: Most nodes computed at each depth.
        depth: Longest path.
    """

    max_nodes: int
    top_k: int
    beam: int
    depth: int


@dataclass(frozen=True, slots=True)
class _Growing:
    """One sequence's draft in a call."""

    session_id: str
    session: DraftSession
    growth: DraftGrowth
    slots: list[int]

    def rows(self) -> list[DraftedRow]:
        """Return what the rows of the frontier are for."""
        position = len(self.session.token_ids) + self.growth.num_levels
        row = DraftedRow(self.session.noise, position)
        return [row] * len(self.growth.frontier)


class ModelDrafting:
    """Drafts for sessions.

    Args:
        model: The draft model.
        num_tokens: Token ids that are smaller may be drafted.
        limits: How large drafts get.
        max_step_tokens: Most tokens of contexts computed in a call. Sessions that lack more get an
            empty draft and are further the next time.

    Attributes:
        sessions: The sessions and what is cached of them.
        num_computed: Rows computed so far.
    """

    def __init__(
        self,
        model: PagedModel,
        num_tokens: int,
        limits: GrowthLimits,
        max_step_tokens: int,
    ) -> None:
        self.sessions = SessionCache(model.cache, model.num_pages)
        self.num_computed = 0
        self._model = model
        self._num_tokens = num_tokens
        self._limits = limits
        self._max_step_tokens = max_step_tokens

    @torch.inference_mode()
    def draft(self, wanted: Mapping[str, int]) -> dict[str, Draft]:
        """Return a draft for each session of at most the given number of tokens.

        Raises:
            UnknownSessionError: If a session is not open.
        """
        growing = self._begin(wanted)
        logits, growing = self._catch_up(growing)
        active = growing
        while active:
            self._expand(active, logits)
            active = [one for one in active if one.growth.frontier]
            if active:
                logits = self._compute(active)
        for one in growing:
            self.sessions.keep_rows(one.session, one.growth.row_tokens, one.growth.row_parents)
        drafts = {one.session_id: one.growth.draft() for one in growing}
        return {session_id: drafts.get(session_id, EMPTY_DRAFT) for session_id in wanted}

    def _begin(self, wanted: Mapping[str, int]) -> list[_Growing]:
        """Return those sessions that can be drafted for, with pages for it."""
        growing = []
        for session_id, session in [(name, self.sessions.get(name)) for name in wanted]:
            growth = self._growth(session, wanted[session_id])
            if growth is None or not self.sessions.prepare(session_id, growth.max_rows, wanted):
                continue
            slots = self.sessions.slots(session, len(session.token_ids) + growth.max_rows)
            growing.append(_Growing(session_id, session, growth, slots))
        return growing

    def _growth(self, session: DraftSession, most: int) -> DraftGrowth | None:
        limits = self._limits
        most = min(most, limits.max_nodes)
        # The last token of a path is never computed, so it may lie one beyond the context.
        depth = min(limits.depth, most, self._model.max_context - len(session.token_ids) + 1)
        if depth < 1 or not 0 <= session.largest_token < self._model.vocab_size:
            return None
        return DraftGrowth(most, limits.beam, depth)

    def _catch_up(self, growing: Sequence[_Growing]) -> tuple[Tensor, list[_Growing]]:
        """Compute what the contexts lack, the least first, as far as the budget goes.

        Returns:
            The logits at the ends of the contexts that are complete, and whose they are.
        """
        budget = self._max_step_tokens
        batch = PackedBatch()
        computed: list[tuple[_Growing, int]] = []
        for one in sorted(growing, key=lambda one: one.session.num_missing):
            session = one.session
            size = min(session.num_missing, budget)
            if not size:
                break
            stop = session.num_cached + size
            batch.add(
                session.num_cached,
                session.token_ids[session.num_cached : stop],
                one.slots[:stop],
                needs_logits=stop == len(session.token_ids),
            )
            computed.append((one, size))
            budget -= size
        logits = self._forward(batch)
        for one, size in computed:
            self.sessions.commit(one.session, size)
        return logits, [one for one, _ in computed if not one.session.num_missing]

    def _expand(self, active: Sequence[_Growing], logits: Tensor) -> None:
        rows = [row for one in active for row in one.rows()]
        found = iter(find_candidates(logits, rows, self._limits.top_k))
        for one in active:
            one.growth.expand([next(found) for _ in one.growth.frontier])

    def _compute(self, active: Sequence[_Growing]) -> Tensor:
        """Compute the frontiers; return their logits."""
        batch = PackedBatch()
        for one in active:
            growth = one.growth
            token_ids = growth.row_tokens[-len(growth.frontier) :]
            slots = one.slots[: len(one.session.token_ids) + len(growth.row_tokens)]
            num_cached = len(slots) - len(token_ids)
            batch.add(num_cached, token_ids, slots, needs_logits=True, tree=growth.row_parents)
        return self._forward(batch)

    def _forward(self, batch: PackedBatch) -> Tensor:
        if not batch.segments:
            return torch.empty(0, self._num_tokens)
        self.num_computed += batch.num_rows
        return self._model.forward(batch)[:, : self._num_tokens]
