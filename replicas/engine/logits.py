"""Sampling controls on one row of logits: penalties, bias, bans, then temperature and truncation.

The order is fixed and documented: repetition, frequency and presence penalty; logit bias; tokens
that may not come yet (``min_tokens``); temperature; top-k; top-p; min-p. Ties are kept or broken by
the lowest token id. Every row is processed with the tokens accepted before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

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
    )


def apply_penalties(
    logits: Tensor,
    params: SamplingParams,
    prompt_token_ids: Collection[int],
    reply_counts: Mapping[int, int],
) -> Tensor:
    """Return logits with repetition, frequency and presence penalty.

    The repetition penalty (Keskar et al. 2019, arXiv:1909.05858) touches tokens of prompt and
    reply; frequency and presence penalty, as OpenAI defines them, only those of the reply.

    Args:
        logits: ``[vocab_size]``; not changed.
        params: The request's parameters.
        prompt_token_ids: Distinct tokens of the prompt.
        reply_counts: How often each token was emitted before this row.
    """
    logits = logits.clone()
    if params.repetition_penalty != 1:
        seen = torch.tensor(sorted({*prompt_token_ids, *reply_counts}), device=logits.device)
        values = logits[seen]
        factor = params.repetition_penalty
        logits[seen] = torch.where(values > 0, values / factor, values * factor)
    if reply_counts and (params.frequency_penalty or params.presence_penalty):
        emitted = torch.tensor(list(reply_counts), device=logits.device)
        counts = torch.tensor(list(reply_counts.values()), device=logits.device, dtype=logits.dtype)
        logits[emitted] -= params.frequency_penalty * counts + params.presence_penalty
    return logits


def apply_bias_and_bans(
    logits: Tensor, bias: Mapping[int, float], banned: Collection[int]
) -> Tensor:
    """Return logits with ``bias`` added and ``banned`` tokens made impossible."""
    if not bias and not banned:
        return logits
    logits = logits.clone()
    if bias:
        index = torch.tensor(list(bias), device=logits.device)
        logits[index] += torch.tensor(list(bias.values()), device=logits.device, dtype=logits.dtype)
    if banned:
        logits[torch.tensor(sorted(banned), device=logits.device)] = _NEVER
    return logits


def truncate(logits: Tensor, params: SamplingParams) -> Tensor:
    """Return logits in which tokens outside top-k, top-p and min-p are impossible.

    Args:
        logits: ``[vocab_size]``, already divided by the temperature.
        params: The request's parameters.
    """
    if params.top_k or params.top_p < 1:
        logits = _truncate_sorted(logits, params.top_k, params.top_p)
    if params.min_p > 0:
        floor = logits.max() + torch.log(torch.tensor(params.min_p, device=logits.device))
        logits = logits.masked_fill(logits < floor, _NEVER)
    return logits


def _truncate_sorted(logits: Tensor, top_k: int, top_p: float) -> Tensor:
    # A stable sort keeps equal logits in the order of their ids, so ties fall to the lowest.
    ordered, order = torch.sort(logits, descending=True, stable=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if top_k:
        keep[top_k:] = False
        ordered = ordered.masked_fill(~keep, _NEVER)
    if top_p < 1:
        probabilities = torch.softmax(ordered, dim=-1)
        before = probabilities.cumsum(-1) - probabilities
        keep &= before < top_p
        keep[0] = True
    return torch.full_like(logits, _NEVER).scatter(0, order[keep], logits[order[keep]])
