"""What engine tests share: scripted drafters, random requests, a plain loop to compare with."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from drafters.api import EMPTY_DRAFT, ROOT, Draft, chain
from drafters.client import DrafterClient, DraftResult, DraftWanted
from models.paged_model import PagedModel
from policy_service.api import SpeculationOptions
from policy_service.client import Planner
from policy_service.config import PolicyConfig
from replicas.api import GenerationRequest, GenerationResult, ReplyTo, SamplingParams
from replicas.engine.core import EngineCore, OnRounds
from replicas.engine.sampler import Sampler
from replicas.engine.step_time import StepTimeModel
from tests.unit.models.tiny_models import VOCAB

EOS = 2
REPLY_TO = ReplyTo("127.0.0.1", 1, "secret")
PINNED = SpeculationOptions(drafter="scripted", gamma=6)


@dataclass
class ScriptedDrafters:
    """Drafts right, wrong and branching continuations of replies that it is told."""

    replies: dict[str, list[int]]
    rng: random.Random
    num_open: set[str] = field(default_factory=set)

    def draft(
        self, wanted: Sequence[DraftWanted], worth_ms: float | None = None
    ) -> list[DraftResult]:
        results = []
        for one in wanted:
            self.num_open.add(one.session_id)
            rest = self.replies[one.session_id][len(one.token_ids) - one.prompt_length :]
            draft = self._draft(rest[: one.max_tokens], one.max_tokens)
            results.append(DraftResult(draft, "ok" if len(draft) else "empty", 0.1))
        return results

    def observe(self, drafter: str, verified: Draft, accepted_nodes: Collection[int]) -> None:
        assert all(node < len(verified) for node in accepted_nodes)

    def follows(self, session_id: str) -> bool:
        return False

    def close(self, session_id: str, token_ids: Sequence[int] = ()) -> None:
        self.num_open.discard(session_id)

    def _draft(self, right: list[int], max_tokens: int) -> Draft:
        kind = self.rng.choice(["right", "wrong", "tree", "empty"])
        if kind == "empty":
            return EMPTY_DRAFT
        tokens = list(right)
        if kind == "wrong" and tokens:
            tokens[self.rng.randrange(len(tokens))] = self.rng.randrange(VOCAB)
        if kind != "tree" or len(tokens) < 2:
            return chain(tokens)
        # A wrong child before each right one, so that the accepted branch has holes.
        nodes: list[tuple[int, int]] = []
        parent = ROOT
        for token in tokens[: max_tokens // 2]:
            nodes.append((self.rng.randrange(VOCAB), parent))
            nodes.append((token, parent))
            parent = len(nodes) - 1
        return Draft(tuple(t for t, _ in nodes), tuple(p for _, p in nodes))


def scripted_core(
    model: PagedModel,
    drafters: ScriptedDrafters | DrafterClient,
    max_sequences: int = 8,
    step_tokens: int = 64,
    policy: PolicyConfig | None = None,
    on_rounds: OnRounds | None = None,
) -> EngineCore:
    """Return an engine whose requests draft with the one drafter that ``PINNED`` names."""
    versions = {str(PINNED.drafter): "1"}
    planner = Planner(policy or PolicyConfig(), versions, np.random.default_rng(0))
    step_time = StepTimeModel({1: 1.0})
    return EngineCore(
        model,
        planner,
        drafters,  # type: ignore[arg-type]  # ScriptedDrafters has the part that is used
        None,
        step_time,
        max_sequences,
        step_tokens,
        on_rounds=on_rounds,
    )


def plain_reply(model: Any, request: GenerationRequest) -> list[int]:
    """Generate with one full forward a token and nothing else of the engine but its sampler."""
    sampling = request.sampling
    ends = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else {EOS})
    sampler = Sampler(
        sampling,
        request.seed,
        request.choice_index,
        request.prompt_token_ids,
        ends,
        torch.arange(VOCAB),
    )
    tokens, reply = list(request.prompt_token_ids), list[int]()
    with torch.inference_mode():
        while len(reply) < sampling.max_tokens:
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
            token = sampler.token(logits, len(tokens))
            sampler.emit(token)
            tokens.append(token)
            reply.append(token)
            if token in ends:
                break
    return reply


def random_request(rng: random.Random, index: int, prefix: list[int]) -> GenerationRequest:
    prompt = prefix[: rng.randrange(len(prefix))] + [
        rng.randrange(3, VOCAB) for _ in range(rng.randrange(1, 30))
    ]
    sampling = SamplingParams(
        max_tokens=rng.randrange(1, 25),
        temperature=rng.choice([0.0, 0.0, 0.7, 1.3]),
        top_k=rng.choice([0, 0, 5]),
        top_p=rng.choice([1.0, 0.8]),
        min_p=rng.choice([0.0, 0.05]),
        frequency_penalty=rng.choice([0.0, 0.6]),
        repetition_penalty=rng.choice([1.0, 1.2]),
        logit_bias=rng.choice([{}, {5: 2.0}]),
        stop_token_ids=rng.choice([(), (11, 12)]),
        ignore_eos=rng.random() < 0.5,
        min_tokens=0,
    )
    return GenerationRequest(
        request_id=f"r{index}",
        prompt_token_ids=tuple(prompt),
        sampling=sampling,
        seed=rng.randrange(2**63),
        choice_index=rng.randrange(3),
        speculation=rng.choice([PINNED, SpeculationOptions(mode="off"), PINNED]),
        reply_to=REPLY_TO,
    )


def run(
    core: EngineCore,
    requests: Sequence[GenerationRequest],
    between: Callable[[int], None] = lambda step: None,
) -> tuple[dict[str, GenerationResult], dict[str, list[int]]]:
    results: dict[str, GenerationResult] = {}
    streamed: dict[str, list[int]] = {request.request_id: [] for request in requests}
    arriving = list(requests)
    step = 0
    while core.has_work or arriving:
        for request in arriving[:2]:
            core.add(request, 0.0)
        del arriving[:2]
        between(step)
        if core.has_work:
            output = core.step()
            core.finish(output)
            for _, chunk in output.chunks:
                assert chunk.start == len(streamed[chunk.request_id])
                streamed[chunk.request_id].extend(chunk.token_ids)
            results |= {result.request_id: result for result in output.finished}
        step += 1
    return results, streamed
