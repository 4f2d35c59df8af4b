"""What an engine has done since it started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class EngineCounters:
    """What an engine has done since it started.

    Attributes:
        steps: Steps.
        prompt_tokens: Prompt tokens computed.
        emitted_tokens: Tokens emitted.
        finished: Replies completed.
        cancelled: Requests cancelled.
        drafted_tokens: Tokens that drafters proposed.
        verified_tokens: Draft tokens verified.
        accepted_tokens: Draft tokens accepted.
        step_s: Seconds spent in steps.
        forward_s: Of those, in the target's forward.
        draft_wait_s: Of those, waiting for drafters.
    """

    steps: int = 0
    prompt_tokens: int = 0
    emitted_tokens: int = 0
    finished: int = 0
    cancelled: int = 0
    drafted_tokens: int = 0
    verified_tokens: int = 0
    accepted_tokens: int = 0
    step_s: float = 0.0
    forward_s: float = 0.0
    draft_wait_s: float = 0.0
