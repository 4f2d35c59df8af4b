"""What an engine's steps and requests gave, counted once a step.

Belongs to the engine's thread, except for ``samples`` and ``count_errors``. During a step events
are only noted; ``end_step`` adds them up under one lock, so that a scrape never sees half a step.
Everything is counted where tokens are made, once, however many Ingresses there are.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from replicas.engine.rounds import DecodingRound
from replicas.engine.sequence import EngineSequence
from replicas.metrics.round_counts import RoundCounts
from replicas.metrics.samples import Distribution, Labels, Sample, by_label
from replicas.metrics.series import SECONDS, STEP_SECONDS, STEP_TOKENS, TOKENS

FINISHED_REASONS = ("stop", "length", "abort", "error")

_BUCKETS = {
    "vllm:time_to_first_token_seconds": SECONDS,
    "vllm:inter_token_latency_seconds": STEP_SECONDS,
    "vllm:request_time_per_output_token_seconds": STEP_SECONDS,
    "vllm:e2e_request_latency_seconds": SECONDS,
    "vllm:request_queue_time_seconds": SECONDS,
    "vllm:request_inference_time_seconds": SECONDS,
    "vllm:request_prefill_time_seconds": SECONDS,
    "vllm:request_decode_time_seconds": SECONDS,
    "vllm:request_prompt_tokens": TOKENS,
    "vllm:request_generation_tokens": TOKENS,
    "vllm:request_params_max_tokens": TOKENS,
    "vllm:iteration_tokens_total": STEP_TOKENS,
    "banditserve_step_seconds": STEP_SECONDS,
    "banditserve_step_sequences": STEP_TOKENS,
}


class EngineMeter:
    """Counts one engine's steps and requests.

    Args:
        clock: Monotonic seconds; the engine's own.
        wall_clock: Seconds since 1970: when a request arrived at the Ingress is in these.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._delivered: list[tuple[EngineSequence, int, float]] = []
        self._rounds = RoundCounts()
        self._counts: Counter[str] = Counter()
        self._finished: Counter[str] = Counter(dict.fromkeys(FINISHED_REASONS, 0))
        self._distributions = {
            name: Distribution.empty(bounds) for name, bounds in _BUCKETS.items()
        }

    def expect(self, drafters: Iterable[str]) -> None:
        """Show these drafters' waits even before any step waited."""
        with self._lock:
            self._rounds.expect(drafters)

    def note_tokens(self, sequence: EngineSequence, num_tokens: int, now: float) -> None:
        """Note that a sequence got tokens, before its own times are set."""
        self._delivered.append((sequence, num_tokens, now))

    def end_step(self, rounds: Sequence[DecodingRound], num_prefilled: int, step_s: float) -> None:
        """Add up a step.

        Args:
            rounds: The sequences that decoded.
            num_prefilled: Tokens prefilled.
            step_s: How long it took.
        """
        with self._lock:
            distributions = self._distributions
            num_emitted = sum(num_tokens for _, num_tokens, _ in self._delivered)
            self._counts["vllm:generation_tokens_total"] += num_emitted
            distributions["vllm:iteration_tokens_total"].add(num_emitted + num_prefilled)
            distributions["banditserve_step_seconds"].add(step_s)
            if rounds:
                distributions["banditserve_step_sequences"].add(len(rounds))
                self._rounds.add(rounds)
            wall_offset_s = self._wall_clock() - self._clock()
            add_between = distributions["vllm:inter_token_latency_seconds"].add
            for sequence, _, now in self._delivered:
                if sequence.last_token_at:
                    add_between(now - sequence.last_token_at)
                else:
                    self._count_first_token(sequence, now, wall_offset_s)
                sequence.last_token_at = now
            self._delivered.clear()

    def count_finished(self, sequences: Sequence[EngineSequence], now: float) -> None:
        """Count replies that are complete."""
        if not sequences:
            return
        wall_offset_s = self._wall_clock() - self._clock()
        with self._lock:
            for sequence in sequences:
                self._count_finished(sequence, now, wall_offset_s)

    def count_cancelled(self, num_requests: int) -> None:
        """Count requests that were cancelled."""
        with self._lock:
            self._finished["abort"] += num_requests

    def count_errors(self, num_requests: int) -> None:
        """Count requests that ended because the engine did. From any thread."""
        with self._lock:
            self._finished["error"] += num_requests

    def samples(self, labels: Labels) -> list[Sample]:
        """Return everything counted so far. From any thread.

        Args:
            labels: The model's and the engine's name.
        """
        with self._lock:
            counted = [
                Sample(f"vllm:{name}_total", labels, self._counts[f"vllm:{name}_total"])
                for name in (
                    "prompt_tokens",
                    "generation_tokens",
                    "prefix_cache_queries",
                    "prefix_cache_hits",
                )
            ]
            finished = by_label(
                "vllm:request_success_total", labels, "finished_reason", self._finished.items()
            )
            distributions = [
                Sample(name, labels, one.copy()) for name, one in self._distributions.items()
            ]
            return [*counted, *finished, *distributions, *self._rounds.samples(labels)]

    def _count_first_token(
        self, sequence: EngineSequence, now: float, wall_offset_s: float
    ) -> None:
        request, distributions = sequence.request, self._distributions
        self._counts["vllm:prompt_tokens_total"] += sequence.num_prompt
        self._counts["vllm:prefix_cache_queries_total"] += sequence.num_prompt + len(
            request.resume_token_ids
        )
        self._counts["vllm:prefix_cache_hits_total"] += sequence.num_reused
        distributions["vllm:request_queue_time_seconds"].add(
            sequence.started_at - sequence.arrived_at
        )
        distributions["vllm:request_prefill_time_seconds"].add(now - sequence.started_at)
        if not request.resume_token_ids:  # else the client has had its first token long ago
            since_s = _since_arrival_s(sequence, now, wall_offset_s)
            distributions["vllm:time_to_first_token_seconds"].add(since_s)

    def _count_finished(self, sequence: EngineSequence, now: float, wall_offset_s: float) -> None:
        assert sequence.stop is not None
        request, distributions = sequence.request, self._distributions
        decode_s = sequence.last_token_at - sequence.first_token_at
        num_new = sequence.num_emitted - len(request.resume_token_ids)
        self._finished[sequence.stop.finish_reason] += 1
        distributions["vllm:e2e_request_latency_seconds"].add(
            _since_arrival_s(sequence, now, wall_offset_s)
        )
        distributions["vllm:request_inference_time_seconds"].add(
            sequence.last_token_at - sequence.started_at
        )
        distributions["vllm:request_decode_time_seconds"].add(decode_s)
        if num_new > 1:
            distributions["vllm:request_time_per_output_token_seconds"].add(
                decode_s / (num_new - 1)
            )
        distributions["vllm:request_prompt_tokens"].add(sequence.num_prompt)
        distributions["vllm:request_generation_tokens"].add(sequence.num_emitted)
        distributions["vllm:request_params_max_tokens"].add(request.sampling.max_tokens)


def _since_arrival_s(sequence: EngineSequence, now: float, wall_offset_s: float) -> float:
    """Return the seconds since a request arrived at the Ingress, by the machines' wall clocks.

    Where those disagree, or nobody said when that was, it is at least the time since it arrived
    here.
    """
    here_s = now - sequence.arrived_at
    if not sequence.request.arrived_at:
        return here_s
    return max(here_s, now + wall_offset_s - sequence.request.arrived_at)
