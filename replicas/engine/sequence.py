"""One request while the engine works on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from models.pages import PageTable
from replicas.api import (
    GenerationRequest,
    GenerationResult,
    GenerationStats,
    RoundReport,
    TokenLogprobs,
)
from replicas.engine.sampler import Sampler
from replicas.engine.stopping import Stop, StopRules


@dataclass(slots=True, eq=False)
class EngineSequence:
    """State of one request.

    Attributes:
        request: The request.
        sampler: Draws its tokens.
        stop_rules: Watches for its end.
        arrived_at: Monotonic seconds.
        token_ids: Prompt and reply so far.
        pages: Its pages of the cache.
        num_cached: Tokens whose keys and values are in the cache.
        num_reused: Of those, how many were another request's when this one was admitted first.
        logprobs: One entry an emitted token, if asked for.
        rounds: Reports of its rounds, if asked for.
        histogram: Rounds with a draft, by accepted tokens.
        num_draft_tokens: Draft tokens verified.
        num_rounds: Rounds, with a draft or without.
        started_at: When its first step began; 0 before.
        first_token_at: When its first token came; 0 before.
        last_token_at: When its last token came, as metrics know it; 0 before.
        context: Its coarse context, as metrics name it; empty before its first round.
        stop: Why it has ended.
    """

    request: GenerationRequest
    sampler: Sampler
    stop_rules: StopRules
    arrived_at: float
    token_ids: list[int]
    pages: PageTable = field(default_factory=PageTable)
    num_cached: int = 0
    num_reused: int = 0
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    rounds: list[RoundReport] = field(default_factory=list)
    histogram: dict[int, int] = field(default_factory=dict)
    num_draft_tokens: int = 0
    num_rounds: int = 0
    started_at: float = 0.0
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    context: str = ""
    stop: Stop | None = None

    @property
    def id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def num_prompt(self) -> int:
        """Length of the prompt."""
        return len(self.request.prompt_token_ids)

    @property
    def num_emitted(self) -> int:
        """Length of the reply so far, resumed tokens included."""
        return len(self.token_ids) - self.num_prompt

    @property
    def is_decoding(self) -> bool:
        """Whether only the last token is not in the cache, so that a draft may follow it."""
        return len(self.token_ids) - self.num_cached == 1 and self.num_cached > 0

    def emit(self, token_id: int, logits: Tensor) -> bool:
        """Append the target's token of a row; return whether the reply ends with it."""
        if self.request.sampling.logprobs is not None:
            self.logprobs.append(self.sampler.logprobs(logits, token_id))
        self.token_ids.append(token_id)
        self.sampler.emit(token_id)
        self.stop = self.stop_rules.emit(token_id)
        return self.stop is not None

    def count_round(self, num_verified: int, num_accepted: int) -> None:
        """Count a round, and what it verified of a draft."""
        self.num_rounds += 1
        if num_verified:
            self.num_draft_tokens += num_verified
            self.histogram[num_accepted] = self.histogram.get(num_accepted, 0) + 1

    def result(self, now: float, replica: str) -> GenerationResult:
        """Return the finished reply."""
        assert self.stop is not None
        return GenerationResult(
            request_id=self.id,
            token_ids=tuple(self.token_ids[self.num_prompt :]),
            finish_reason=self.stop.finish_reason,
            stop_reason=self.stop.stop_reason,
            num_text_tokens=self.stop.num_text_tokens,
            logprobs=tuple(self.logprobs),
            stats=self._stats(now),
            rounds=tuple(self.rounds),
            replica=replica,
        )

    def _stats(self, now: float) -> GenerationStats:
        longest = max(self.histogram, default=-1)
        histogram = tuple(self.histogram.get(j, 0) for j in range(longest + 1))
        return GenerationStats(
            queue_ms=(self.started_at - self.arrived_at) * 1e3,
            first_token_ms=(self.first_token_at - self.arrived_at) * 1e3,
            total_ms=(now - self.arrived_at) * 1e3,
            acceptance_histogram=histogram,
            num_draft_tokens=self.num_draft_tokens,
            num_accepted_tokens=sum(j * count for j, count in enumerate(histogram)),
            num_cached_tokens=self.num_reused,
        )
