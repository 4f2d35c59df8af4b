"""Which sequences run in a step, and how much of each. Owns the queue and the pages.

Sequences that decode always run. What is left of the step's token budget prefills, in the order of
arrival, in chunks; so a decode waits for at most one budget of prefill. When pages run out the
youngest sequence gives its pages up and is computed anew later, from its own tokens, unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from models.pages import PagePool
from replicas.engine.sequence import EngineSequence


class Scheduler:
    """Queue, running sequences and their pages.

    Args:
        pool: The pages.
        max_sequences: Most sequences that run at a time.
        max_step_tokens: Token budget of a step.
    """

    def __init__(self, pool: PagePool, max_sequences: int, max_step_tokens: int) -> None:
        self.pool = pool
        self.waiting: deque[EngineSequence] = deque()
        self.running: list[EngineSequence] = []
        self.num_preemptions = 0
        self._max_sequences = max_sequences
        self._max_step_tokens = max_step_tokens

    @property
    def has_work(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self.waiting or self.running)

    def admit(self, now: float) -> None:
        """Let waiting sequences run while there is room for their tokens."""
        while self.waiting and len(self.running) < self._max_sequences:
            sequence = self.waiting[0]
            num_reused = self.pool.reuse_prefix(sequence.pages, sequence.token_ids)
            if not self.pool.grow(sequence.pages, len(sequence.token_ids) + 1):
                self.pool.release(sequence.pages)
                break
            self.waiting.popleft()
            sequence.num_cached = num_reused
            if not sequence.started_at:
                sequence.started_at = now
                sequence.num_reused = num_reused
            self.running.append(sequence)

    def decoding(self) -> list[EngineSequence]:
        """Return the sequences that decode, each with a page for its next token.

        May preempt the youngest sequences to get those pages.
        """
        for sequence in list(self.running):
            while sequence in self.running and not self.pool.grow(
                sequence.pages, len(sequence.token_ids)
            ):
                self._preempt(self.running[-1])
        return [sequence for sequence in self.running if sequence.is_decoding]

    def draft_room(self, sequence: EngineSequence, num_decoding: int) -> int:
        """Return the most draft tokens that make sense for a sequence in this step.

        No more than the reply can still take (one token comes from the target itself), and an
        equal share of the budget, of which a quarter is kept for prefill where there is any.
        """
        budget = self._max_step_tokens - num_decoding
        if num_decoding < len(self.running):
            budget -= self._max_step_tokens // 4
        return max(0, min(sequence.stop_rules.num_left - 1, budget // max(1, num_decoding)))

    def grow_for_draft(self, sequence: EngineSequence, num_nodes: int) -> int:
        """Get pages for a draft; return how many of its nodes there is room for."""
        while num_nodes and not self.pool.grow(sequence.pages, len(sequence.token_ids) + num_nodes):
            num_nodes -= 1
        return num_nodes

    def prefill_chunks(self, num_rows: int) -> list[tuple[EngineSequence, int]]:
        """Return which sequences prefill and how many tokens each.

        Args:
            num_rows: Rows that the step has already.
        """
        budget = max(1, self._max_step_tokens - num_rows)
        chunks = []
        for sequence in self.running:
            if sequence.is_decoding or not budget:
                continue
            size = min(budget, len(sequence.token_ids) - sequence.num_cached)
            chunks.append((sequence, size))
            budget -= size
        return chunks

    def commit(self, sequence: EngineSequence, num_cached: int) -> None:
        """Record how many tokens are in the cache; return pages beyond, publish full ones."""
        sequence.num_cached = num_cached
        self.pool.shrink(sequence.pages, num_cached + 1)
        self.pool.publish(sequence.pages, sequence.token_ids, num_cached)

    def remove(self, sequences: Iterable[EngineSequence]) -> None:
        """Drop sequences that have ended or were cancelled and return their pages."""
        for sequence in sequences:
            if sequence in self.running:
                self.running.remove(sequence)
            else:
                self.waiting.remove(sequence)
            self.pool.release(sequence.pages)

    def _preempt(self, sequence: EngineSequence) -> None:
        self.running.remove(sequence)
        self.pool.release(sequence.pages)
        sequence.num_cached = 0
        self.waiting.appendleft(sequence)
        self.num_preemptions += 1
