"""Single draws over vocabularies of several blocks follow the softmax, whatever is skipped."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.drawing import draw_tokens
from models.noise import noise_key
from replicas.api import SamplingParams
from replicas.engine.sampler import Sampler
from tests.statistical.chi_square import SIGNIFICANT, p_value

VOCAB = 1000
NUM_DRAWS = 6000
KEYS = [noise_key(3, 0, position) for position in range(NUM_DRAWS)]


def language(kind: str) -> torch.Tensor:
    ids = torch.arange(VOCAB)
    scattered = ids[torch.randperm(VOCAB, generator=torch.Generator().manual_seed(1))]
    return {
        "flat": torch.zeros(VOCAB),
        "zipf": -1.1 * torch.log(scattered + 1.0),
        "one peak": torch.where(ids == 700, 4.0, 0.0),
        "in the last, short block": torch.where(ids >= 990, 3.0, -1.0),
    }[kind]


@pytest.mark.parametrize("kind", ["flat", "zipf", "one peak", "in the last, short block"])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.8])
def test_draws_follow_the_softmax(kind: str, temperature: float) -> None:
    logits = language(kind)
    rows = logits.expand(500, -1)
    drawn: list[int] = []
    for start in range(0, NUM_DRAWS, 500):
        drawn += draw_tokens(rows, KEYS[start : start + 500], [temperature] * 500)
    law = torch.softmax(logits.double() / temperature, 0).tolist()
    assert p_value(drawn, dict(enumerate(law))) > SIGNIFICANT


def test_draws_from_what_is_kept_follow_its_softmax() -> None:
    params = SamplingParams(10, temperature=1.2, top_k=300, top_p=0.7, min_p=0.001)
    logits = language("zipf")
    sampler = Sampler(params, 3, 0, [1], [], torch.arange(VOCAB))
    drawn = [sampler.token(logits, position) for position in range(1500)]
    weights = np.exp(logits.double().numpy() / 1.2)
    order = np.argsort(-weights, kind="stable")[:300]
    shares = weights[order] / weights[order].sum()
    kept = order[np.cumsum(shares) - shares < 0.7]
    kept = kept[weights[kept] >= 0.001 * weights.max()]
    law = dict(zip(kept.tolist(), (weights[kept] / weights[kept].sum()).tolist(), strict=True))
    assert p_value(drawn, law) > SIGNIFICANT
