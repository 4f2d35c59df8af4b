"""What a server allows of requests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What this server allows.

    Attributes:
        context_length: Most tokens of prompt and reply together.
        vocab_size: Token ids are smaller.
        max_choices: Largest ``n``.
        max_prompts: Most prompts in one request.
        max_logprobs: Most alternatives with each token.
        default_max_tokens: Reply length of a chat request that names none.
    """

    context_length: int
    vocab_size: int
    max_choices: int
    max_prompts: int
    max_logprobs: int
    default_max_tokens: int
