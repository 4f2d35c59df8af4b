"""The request router between Ingress and Verifiers, as Ray Serve wants it.

One lives in every Ingress. What it decides is in ``replicas.routing``; here is what Serve tells it.
Serve pickles this module by value.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import (
    FIFOMixin,
    PendingRequest,
    ReplicaID,
    RequestRouter,
    RunningReplica,
)

from models.pages import page_hashes
from replicas.api import GenerationRequest
from replicas.config import RoutingConfig
from replicas.routing import MAX_KNOWN, Candidate, Placements, PrefixMemory, ranked, without

MAX_PAGES_A_PROMPT = 256
"""Pages of a prompt that are looked at; further ones decide nothing."""


class PrefixRouter(FIFOMixin, RequestRouter):
    """Sends a request where its prefix is cached, unless that Verifier is loaded.

    A request that was given to other Verifiers before (they died or refused it) goes to none of
    them while there is another.
    """

    def initialize_state(  # type: ignore[override]  # Serve passes what router_config names
        self, page_tokens: int, tokens_per_request: float, max_pages: int
    ) -> None:
        """Begin; called by Serve with the arguments that ``router_config`` names.

        Args:
            page_tokens: Tokens in a page of the Verifiers' caches.
            tokens_per_request: Cached tokens that one request more on a Verifier outweighs.
            max_pages: Most pages remembered.
        """
        self._page_tokens = page_tokens
        self._tokens_per_request = tokens_per_request
        self._memory = PrefixMemory(max_pages)
        self._rng = random.Random()
        self._placements = Placements()
        self._had_by: OrderedDict[str, str] = OrderedDict()

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return the Verifiers, each a rank of its own, best first."""
        request = _generation(pending_request)
        pages = self._pages(request)
        candidates = [self._candidate(replica.replica_id, pages) for replica in candidate_replicas]
        earlier = request.earlier_attempts if request is not None else ()
        avoided = {self._had_by[one] for one in earlier if one in self._had_by}
        order = ranked(without(candidates, avoided), self._tokens_per_request, self._rng)
        if pending_request is not None:
            # Only if all of them are full it makes sense to wait before the next try.
            pending_request.routing_context.should_backoff = True
            if order:
                self._memory.note(pages, order[0])
                call_id = pending_request.metadata.internal_request_id
                self._placements.place(call_id, order[0], time.monotonic())
        by_name = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        return [[by_name[name]] for name in order]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        """Note that a Verifier took the request on."""
        name = replica_id.unique_id
        self._placements.arrive(pending_request.metadata.internal_request_id, name)
        request = _generation(pending_request)
        if request is None:
            return
        self._memory.note(self._pages(request), name)
        self._had_by[request.request_id] = name
        while len(self._had_by) > MAX_KNOWN:
            self._had_by.popitem(last=False)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Note that a request has ended, however it did."""
        self._placements.end(internal_request_id)

    def _fulfill_next_pending_request(
        self, replica: RunningReplica, request_metadata: Any | None = None
    ) -> None:
        """Give a Verifier to the call that it was chosen for, or else to the oldest that waits.

        The calls of one HTTP request (several choices or prompts) share Serve's id, of which Serve
        finds but one; without the second way the others would wait for ever.
        """
        if self._get_pending_request_matching_internal_request_id(request_metadata) is not None:
            RequestRouter._fulfill_next_pending_request(self, replica, request_metadata)
        else:
            super()._fulfill_next_pending_request(replica, request_metadata)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Take over which Verifiers there are."""
        before = set(self.curr_replicas)
        super().update_replicas(replicas)
        if before - set(self.curr_replicas):
            self._memory.forget_all_but({one.unique_id for one in self.curr_replicas})

    def _candidate(self, replica_id: ReplicaID, pages: Sequence[bytes]) -> Candidate:
        name = replica_id.unique_id
        ours = self._placements.load(name, time.monotonic())
        all_known = self.replica_queue_len_cache.get(replica_id) or 0  # lately, of any Ingress
        return Candidate(
            name,
            max(ours, all_known),
            self._memory.num_cached(pages, name) * self._page_tokens,
        )

    def _pages(self, request: GenerationRequest | None) -> list[bytes]:
        if request is None:
            return []
        return page_hashes(request.prompt_token_ids, self._page_tokens, MAX_PAGES_A_PROMPT)


def router_config(config: RoutingConfig, page_tokens: int) -> RequestRouterConfig:
    """Return what Serve is told about routing to the Verifiers.

    Args:
        config: How to route.
        page_tokens: Tokens in a page of the Verifiers' caches.
    """
    if config.policy == "power_of_two":
        return RequestRouterConfig()
    return RequestRouterConfig(
        request_router_class=f"{__name__}.{PrefixRouter.__name__}",  # type: ignore[arg-type]  # Ray's own annotation is of all keywords at once
        request_router_kwargs={
            "page_tokens": page_tokens,
            "tokens_per_request": config.tokens_per_request,
            "max_pages": config.remembered_pages,
        },
    )


def _generation(pending: PendingRequest | None) -> GenerationRequest | None:
    """Return the request to generate, if it is one."""
    first = pending.args[0] if pending is not None and pending.args else None
    return first if isinstance(first, GenerationRequest) else None
