"""What an engine has before it and how fast it gets through it, for autoscaling. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from replicas.autoscaling import (
    BLOCKED_TOKENS,
    GOODPUT,
    PROMPT_RATE,
    QUEUED_TOKENS,
    REPLY_TOKENS,
)
from replicas.engine.sequence import EngineSequence
from replicas.engine.step_time import StepTimeModel

MEMORY_S = 30.0
"""Steps count for the pace with a weight that falls by a factor e in so much time of steps."""
SEED_S = 1.0
"""The pace known from the warm-up counts as much as so many seconds of steps."""
REPLY_WEIGHT = 0.05
"""Weight of a finished reply in the mean length."""


class Pace:
    """Tokens a second of time that the engine worked, lately.

    Args:
        rate: Tokens a second to begin with.
    """

    def __init__(self, rate: float) -> None:
        self._tokens = rate * SEED_S
        self._seconds = SEED_S

    def observe(self, tokens: int, seconds: float) -> None:
        """Count a step."""
        kept = math.exp(-seconds / MEMORY_S)
        self._tokens = kept * self._tokens + tokens
        self._seconds = kept * self._seconds + seconds

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self._tokens / self._seconds


class WorkMeter:
    """Measures an engine's work and pace.

    Args:
        step_time: What the warm-up said of steps.
        max_step_tokens: Most tokens in a step.
    """

    def __init__(self, step_time: StepTimeModel, max_step_tokens: int) -> None:
        self._prompt = Pace(1e3 * max_step_tokens / step_time.predict_ms(max_step_tokens))
        self._reply = Pace(1e3 / step_time.predict_ms(1))
        self._mean_reply: float | None = None

    def observe_step(self, seconds: float, num_prompt: int, num_emitted: int) -> None:
        """Count a step.

        Args:
            seconds: How long it took, drafts included.
            num_prompt: Prompt tokens it computed.
            num_emitted: Tokens it emitted.
        """
        self._reply.observe(num_emitted, seconds)
        if num_prompt:
            self._prompt.observe(num_prompt, seconds)

    def observe_reply(self, num_tokens: int) -> None:
        """Count a finished reply."""
        if self._mean_reply is None:
            self._mean_reply = float(num_tokens)
        self._mean_reply += REPLY_WEIGHT * (num_tokens - self._mean_reply)

    def metrics(
        self, waiting: Iterable[EngineSequence], running: Iterable[EngineSequence]
    ) -> dict[str, float]:
        """Return what ``replicas.autoscaling`` decides by, after a step.

        Args:
            waiting: Requests for which the step had no room.
            running: Requests under way.
        """
        waiting, running = list(waiting), list(running)
        blocked = sum(map(self._tokens_left, waiting))
        queued = sum(
            len(one.token_ids) - one.num_cached
            for one in (*waiting, *running)
            if not one.is_decoding
        )
        return {
            QUEUED_TOKENS: float(queued),
            BLOCKED_TOKENS: blocked,
            REPLY_TOKENS: blocked + sum(map(self._tokens_left, running)),
            PROMPT_RATE: self._prompt.rate,
            GOODPUT: self._reply.rate,
        }

    def _tokens_left(self, sequence: EngineSequence) -> float:
        """Return how many tokens a reply is expected to need still.

        As many as replies have on average, however long it is already, up to its limit.
        """
        most = float(sequence.stop_rules.num_left)
        return most if self._mean_reply is None else min(most, self._mean_reply)
