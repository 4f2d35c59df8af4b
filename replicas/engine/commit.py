"""Commit a step: accept, keep or roll back the cache, stop, pass on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from drafters.api import EMPTY_DRAFT, Draft
from drafters.client import DrafterClient
from models.batch import PackedBatch, Segment
from models.kv_cache import KVCache
from replicas.api import GenerationResult, ReplyTo, TokenChunk
from replicas.engine.counters import EngineCounters
from replicas.engine.rounds import DecodingRound
from replicas.engine.row_tokens import RowTokens
from replicas.engine.scheduler import Scheduler
from replicas.engine.sequence import EngineSequence
from replicas.engine.verification import Verdict, verify_draft
from replicas.metrics.engine_meter import EngineMeter


@dataclass(slots=True)
class StepOutput:
    """What a step gave to the outside.

    Attributes:
        chunks: New tokens and where to send them.
        finished: Replies that are complete.
    """

    chunks: list[tuple[ReplyTo, TokenChunk]] = field(default_factory=list)
    finished: list[GenerationResult] = field(default_factory=list)


class Committer:
    """Turns a step's logits into tokens of its sequences.

    Args:
        cache: The target's cache.
        scheduler: Keeps account of what of it is whose.
        drafters: Told of tokens where they follow a sequence.
        counters: Counted up.
        meter: Told of tokens.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        cache: KVCache,
        scheduler: Scheduler,
        drafters: DrafterClient,
        counters: EngineCounters,
        meter: EngineMeter,
        clock: Callable[[], float],
    ) -> None:
        self._cache = cache
        self._scheduler = scheduler
        self._drafters = drafters
        self._counters = counters
        self._meter = meter
        self._clock = clock

    def commit(
        self,
        batch: PackedBatch,
        logits: Tensor,
        rounds: Sequence[DecodingRound],
        prefills: Sequence[tuple[EngineSequence, int]],
    ) -> StepOutput:
        """Commit one step.

        Args:
            batch: Its segments, those of ``rounds`` first.
            logits: ``[num_logit_rows, vocab_size]``, float32.
            rounds: The sequences that decode.
            prefills: The sequences that prefill, with how many tokens.
        """
        output = StepOutput()
        ready = [
            one
            for one, segment in zip(prefills, batch.segments[len(rounds) :], strict=True)
            if segment.num_logits
        ]
        drafts = [(one.sequence, one.draft) for one in rounds]
        tokens = RowTokens(logits, [*drafts, *((sequence, EMPTY_DRAFT) for sequence, _ in ready)])
        row = 0
        for segment, one in zip(batch.segments, rounds, strict=False):
            one.verdict = self._verify(one.sequence, one.draft, tokens, row)
            self._keep_accepted(one.sequence, segment, one.verdict)
            self._deliver(one.sequence, one.verdict, output)
            row += segment.num_logits
        for segment, (sequence, size) in zip(batch.segments[len(rounds) :], prefills, strict=True):
            self._counters.prompt_tokens += size
            self._scheduler.commit(sequence, sequence.num_cached + size)
            if segment.num_logits:
                self._deliver(sequence, self._verify(sequence, EMPTY_DRAFT, tokens, row), output)
                row += segment.num_logits
        return output

    def _verify(
        self, sequence: EngineSequence, draft: Draft, tokens: RowTokens, first_row: int
    ) -> Verdict:
        row = first_row

        def target_token(node: int) -> int:
            nonlocal row
            row = first_row + 1 + node
            return tokens.token(sequence, row)

        return verify_draft(
            draft, target_token, lambda token: sequence.emit(token, tokens.logits[row])
        )

    def _keep_accepted(self, sequence: EngineSequence, segment: Segment, verdict: Verdict) -> None:
        """Line up the cache rows of the accepted branch and forget the others."""
        first = segment.num_committed
        sources = [segment.slots[first + node] for node in verdict.accepted_nodes]
        targets = segment.slots[first : first + len(sources)]
        if sources != targets:
            self._cache.move(sources, targets)
        self._scheduler.commit(sequence, min(first + len(sources), len(sequence.token_ids) - 1))

    def _deliver(self, sequence: EngineSequence, verdict: Verdict, output: StepOutput) -> None:
        now = self._clock()
        token_ids = verdict.token_ids
        self._counters.emitted_tokens += len(token_ids)
        self._meter.note_tokens(sequence, len(token_ids), now)
        if not sequence.first_token_at:
            sequence.first_token_at = now
        if self._drafters.follows(sequence.id):
            tenant = sequence.request.features.tenant
            self._drafters.follow(sequence.id, sequence.token_ids, tenant)
        reply_to = sequence.request.reply_to
        if reply_to is not None:
            start = sequence.num_emitted - len(token_ids)
            logprobs = tuple(sequence.logprobs[-len(token_ids) :])
            chunk = TokenChunk(sequence.id, start, token_ids, logprobs)
            output.chunks.append((reply_to, chunk))
