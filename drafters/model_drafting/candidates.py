"""From rows of logits to the tokens that may follow, with the target's own noise.

The target's token is the largest sum of logit and noise times temperature, and the noise is a
function of request, position and token, so the drafter knows it. Candidates are therefore the
largest such sums of the draft model's logits; greedy requests have no noise. The first of them is
the draft model's own sample, which is the target's with probability at least (1 - TV) / (1 + TV),
TV being the distance of the two distributions (Daliri et al. 2024, arXiv:2408.07978).

A candidate's probability is the softmax of these sums. It is the probability that the target's sum
is largest there if its logits differ from the draft model's by independent Gumbel errors of scale 1
(Gumbel-max). Without noise it is the draft model's own probability, the usual guess of acceptance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from drafters.api import NoiseKey
from drafters.model_drafting.growth import Candidates
from models.drawing import LOWEST_TEMPERATURE, draw_tokens
from models.noise import gumbel_noise, key_array, noise_key
from models.row_blocks import likeliest_tokens

_POOL = 128
"""Likeliest tokens among which a sampled row's candidates are sought, beside its sample; the others
come so seldom that finding them would cost more than they bring."""


class DraftedRow(NamedTuple):
    """What a row of logits is for.

    Attributes:
        noise: Key of the request's sampling noise.
        position: Absolute position of the token that comes next.
    """

    noise: NoiseKey
    position: int

    @property
    def is_greedy(self) -> bool:
        """Whether the target takes its likeliest token."""
        return self.noise.temperature < LOWEST_TEMPERATURE

    @property
    def key(self) -> int:
        """Key of the noise at the position."""
        return noise_key(self.noise.seed, self.noise.choice_index, self.position)


def find_candidates(logits: Tensor, rows: Sequence[DraftedRow], top_k: int) -> list[Candidates]:
    """Return the ``top_k`` best candidates of each row, the best first.

    Args:
        logits: ``[num_rows, vocab_size]``, float32.
        rows: What they are for.
        top_k: At least 1; there are fewer where the vocabulary is smaller.
    """
    top_k = min(top_k, logits.shape[-1])
    greedy = [index for index, row in enumerate(rows) if row.is_greedy]
    if len(greedy) == len(rows):
        return _likeliest(logits, top_k)
    sampled = [index for index, row in enumerate(rows) if not row.is_greedy]
    found = dict(
        zip(sampled, _sampled(logits[sampled], [rows[one] for one in sampled], top_k), strict=True)
    )
    if greedy:
        found |= zip(greedy, _likeliest(logits[greedy], top_k), strict=True)
    return [found[index] for index in range(len(rows))]


def _likeliest(logits: Tensor, top_k: int) -> list[Candidates]:
    if top_k == 1:
        token_ids = likeliest_tokens(logits)[:, None]
        values = logits.gather(1, token_ids)
    else:
        values, token_ids = logits.topk(top_k, dim=-1)
    logprobs = (values - logits.logsumexp(-1, keepdim=True)).clamp_(max=0)
    return [Candidates(*one) for one in zip(token_ids.tolist(), logprobs.tolist(), strict=True)]


def _sampled(logits: Tensor, rows: Sequence[DraftedRow], top_k: int) -> list[Candidates]:
    keys = [row.key for row in rows]
    temperatures = [row.noise.temperature for row in rows]
    drawn = torch.tensor(draw_tokens(logits, keys, temperatures), device=logits.device)[:, None]
    token_ids = logits.topk(min(max(_POOL, top_k), logits.shape[-1]), dim=-1).indices
    # The sample is among the candidates even where it is none of the likeliest.
    is_missing = ~(token_ids == drawn).any(-1)
    token_ids[is_missing, -1] = drawn[is_missing, 0]
    ids = token_ids.cpu().numpy()
    sums = logits.gather(1, token_ids).cpu().numpy() + np.array(temperatures)[:, None] * (
        gumbel_noise(key_array(keys)[:, None], ids)
    )
    logprobs = sums - np.logaddexp.reduce(sums, axis=-1, keepdims=True)
    order = np.argsort(-sums, axis=-1, kind="stable")[:, :top_k]
    best = (np.take_along_axis(part, order, -1).tolist() for part in (ids, logprobs))
    return [Candidates(*one) for one in zip(*best, strict=True)]
