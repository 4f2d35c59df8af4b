"""Sampling controls that change a row of logits: penalties, bias, bans.

The order is fixed and documented: repetition, frequency and presence penalty; logit bias; tokens
that may not come, at all or yet; then temperature, top-k, top-p and min-p
(``replicas.engine.truncation``). Every row is processed with the tokens accepted before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from replicas.api import SamplingParams

_NEVER = float("-inf")


def needs_history(params: SamplingParams) -> bool:
    """Return whether a row depends on which tokens came before."""
    return (
        params.presence_penalty != 0
        or params.frequency_penalty != 0
        or params.repetition_penalty != 1
        or any(len(sequence) > 1 for sequence in params.banned_sequences)
    )


def apply_penalties(
    row: Tensor,
    params: SamplingParams,
    prompt_token_ids: Tensor | None,
    reply_counts: Mapping[int, int],
) -> None:
    """Apply repetition, frequency and presence penalty to a row, in place.

    The repetition penalty (Keskar et al. 2019, arXiv:1909.05858) touches tokens of prompt and
    reply; frequency and presence penalty, as OpenAI defines them, only those of the reply.

    Args:
        row: ``[vocab_size]``.
        params: The request's parameters.
        prompt_token_ids: Tokens of the prompt; needed only for the repetition penalty.
        reply_counts: How often each token was emitted before this row.
    """
    emitted = torch.tensor(list(reply_counts), dtype=torch.int64, device=row.device)
    if params.repetition_penalty != 1:
        seen = emitted if prompt_token_ids is None else torch.cat([prompt_token_ids, emitted])
        values = row[seen]
        factor = params.repetition_penalty
        # A token of both prompt and reply is written twice, with the same value.
        row[seen] = torch.where(values > 0, values / factor, values * factor)
    if reply_counts and (params.frequency_penalty or params.presence_penalty):
        counts = torch.tensor(list(reply_counts.values()), device=row.device, dtype=row.dtype)
        row[emitted] -= params.frequency_penalty * counts + params.presence_penalty


def has_bias_or_bans(params: SamplingParams) -> bool:
    """Return whether every row of a request is changed in the same way."""
    return (
        bool(params.logit_bias)
        or params.allowed_token_ids is not None
        or bool(never_allowed(params))
    )


def bias_and_bans(params: SamplingParams, vocab: Tensor) -> Tensor:
    """Return what is added to every row of a request: its bias, and ``-inf`` for what never comes.

    Args:
        params: The request's parameters.
        vocab: Ids 0, 1, ... of the vocabulary.

    Returns:
        float32, ``[vocab_size]``.
    """
    added = torch.zeros(len(vocab), device=vocab.device)
    if params.logit_bias:
        index = torch.tensor(list(params.logit_bias), device=vocab.device)
        values = list(params.logit_bias.values())
        added[index] = torch.tensor(values, device=vocab.device, dtype=added.dtype)
    if params.allowed_token_ids is not None:
        others = torch.ones(len(vocab), dtype=torch.bool, device=vocab.device)
        others[torch.tensor(params.allowed_token_ids, device=vocab.device)] = False
        added[others] = _NEVER
    if banned := never_allowed(params):
        added[torch.tensor(sorted(banned), device=vocab.device)] = _NEVER
    return added


def never_allowed(params: SamplingParams) -> frozenset[int]:
    """Return the tokens that are banned at every row."""
    single = (sequence[0] for sequence in params.banned_sequences if len(sequence) == 1)
    return frozenset(params.banned_token_ids).union(single)


def banned_next(sequences: Sequence[Sequence[int]], reply: Sequence[int]) -> Iterator[int]:
    """Yield the tokens that would complete a banned sequence of several tokens.

    >>> list(banned_next([(5, 6), (7, 5, 8), (9,)], [7, 5]))
    [6, 8]

    Args:
        sequences: The banned sequences.
        reply: Tokens emitted so far, or at least the last of them; the prompt does not count.
    """
    for sequence in sequences:
        num_before = len(sequence) - 1
        if 0 < num_before <= len(reply) and list(sequence[:-1]) == list(reply[-num_before:]):
            yield sequence[-1]
