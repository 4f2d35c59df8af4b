"""Contract of the replicas: the request that Ingress hands to a Verifier and what comes back.

A request says everything that its reply depends on, the seed included, so any Verifier gives the
same reply; with ``resume_token_ids`` another one goes on where the first was lost. This module
knows neither Ray nor HTTP nor torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from policy_service.api import RequestFeatures, SpeculationOptions

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when to stop.

    Checked by ``replicas.engine.admission``, and before that, as far as HTTP goes, by
    ``replicas.ingress.validation``.

    Attributes:
        max_tokens: Most tokens to emit, at least 1; resumed ones count.
        temperature: 0 is greedy; so is all below 1e-5.
        top_p: Smallest set of tokens whose probability reaches this, in (0, 1].
        top_k: Only the most likely ``top_k`` tokens; 0 is all.
        min_p: Only tokens at least this likely relative to the most likely, in [0, 1].
        presence_penalty: Taken off the logit of every token already emitted, in [-2, 2].
        frequency_penalty: The same, times how often it was emitted, in [-2, 2].
        repetition_penalty: Divides positive and multiplies negative logits of tokens in prompt or
            reply, above 0.
        logit_bias: Added to the logits of these tokens.
        allowed_token_ids: Only these tokens may come; None allows all. Without an end of sequence
            among them the reply ends by length or stop string.
        banned_token_ids: These tokens never come.
        banned_sequences: Tokens that never come one after the other in the reply: the last of each
            is banned where the reply ends with those before it.
        stop: Strings that end the reply; not part of it.
        stop_token_ids: Tokens that end the reply; not part of the text.
        ignore_eos: Go on past the model's end of sequence.
        min_tokens: Do not end (by token) before this many tokens.
        logprobs: How many likely alternatives to report with each token; None for no logprobs.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    banned_token_ids: tuple[int, ...] = ()
    banned_sequences: tuple[tuple[int, ...], ...] = ()
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """Where a Verifier sends the tokens of a request, step by step.

    Attributes:
        host: Address of the Ingress' token receiver.
        port: Its port.
        token: Secret that the receiver expects on a connection.
    """

    host: str
    port: int
    token: str


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One choice of one HTTP request, as a Verifier gets it.

    Attributes:
        request_id: Unique among all live requests; the HTTP request's id and the choice index.
        prompt_token_ids: The prompt, never empty.
        sampling: How to choose tokens.
        seed: Key of the sampling noise; the reply is a function of it.
        choice_index: Which of the ``n`` choices this is; part of the key.
        resume_token_ids: Tokens of the reply that a lost Verifier already passed on.
        speculation: What the request says about speculation.
        features: What the policy may pool statistics by.
        reply_to: Where to send tokens as they come; None to have them only at the end.
        earlier_attempts: Ids under which the request was given to other Verifiers before, which
            are better avoided now.
        arrived_at: When it arrived at the Ingress, in seconds since 1970; 0 if nobody said.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    seed: int
    choice_index: int = 0
    resume_token_ids: tuple[int, ...] = ()
    speculation: SpeculationOptions = field(default_factory=SpeculationOptions)
    features: RequestFeatures = field(default_factory=RequestFeatures)
    reply_to: ReplyTo | None = None
    earlier_attempts: tuple[str, ...] = ()
    arrived_at: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The target's log-probability of an emitted token and its likeliest alternatives.

    Attributes:
        logprob: Of the emitted token, in nats.
        top: (token id, log-probability), likeliest first.
    """

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """Tokens that one step added to one reply.

    Attributes:
        request_id: The reply they belong to.
        start: Index in the reply of the first one (resumed tokens count).
        token_ids: The tokens, oldest first.
        logprobs: One entry a token if they were asked for, else empty.
    """

    request_id: str
    start: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round, explained: what was chosen, why, what it cost and earned.

    Attributes:
        arm: ``str`` of the arm.
        learner: Who chose it.
        reason: Why.
        propensity: With what probability.
        snapshot_version: Version of the pooled priors.
        estimates: The learner's estimate of each arm.
        draft_status: ``ok``, or why there was no draft.
        num_drafted: Tokens proposed.
        num_verified: Tokens verified.
        num_accepted: Tokens accepted.
        num_emitted: Tokens added to the reply.
        step_ms: Wall time of the step.
        draft_wait_ms: Of it, the wait for drafters.
        batch_size: Sequences that decoded in the step.
        position: Tokens of the reply before it.
    """

    arm: str
    learner: str
    reason: str
    propensity: float
    snapshot_version: int
    estimates: Mapping[str, float]
    draft_status: str
    num_drafted: int
    num_verified: int
    num_accepted: int
    num_emitted: int
    step_ms: float
    draft_wait_ms: float
    batch_size: int
    position: int = 0


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """How one reply came about on one Verifier.

    Attributes:
        queue_ms: From arrival to the first step.
        first_token_ms: From arrival to the first token.
        total_ms: From arrival to the end.
        acceptance_histogram: Entry ``j`` counts the verify steps that accepted ``j`` draft tokens;
            rounds without a draft do not count.
        num_draft_tokens: Draft tokens verified.
        num_accepted_tokens: Draft tokens accepted.
        num_cached_tokens: Prompt tokens whose keys and values another request had left.
    """

    queue_ms: float = 0.0
    first_token_ms: float = 0.0
    total_ms: float = 0.0
    acceptance_histogram: tuple[int, ...] = ()
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """A finished reply.

    Attributes:
        request_id: The request's.
        token_ids: All tokens of the reply, resumed ones included; a stop token is the last one.
        logprobs: One entry a token that this Verifier emitted, if asked for; ``token_ids`` ends
            with those.
        finish_reason: ``stop`` or ``length``.
        stop_reason: The stop string or token id that ended the reply; None for end of sequence or
            length.
        num_text_tokens: How many of ``token_ids`` may appear in the text; a stop string may cut
            within the last of them.
        stats: How it came about.
        rounds: Every round, if the request asked for an explanation.
        replica: Name of the Verifier.
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None
    num_text_tokens: int
    logprobs: tuple[TokenLogprobs, ...] = ()
    stats: GenerationStats = field(default_factory=GenerationStats)
    rounds: tuple[RoundReport, ...] = ()
    replica: str = ""
