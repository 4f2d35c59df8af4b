"""Verifiers without a model, for tests of what is around them; imports little, so starts fast."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from ray import serve

from replicas.api import GenerationRequest, GenerationResult, TokenChunk
from replicas.errors import QueueFullError, RequestError
from replicas.token_sender import TokenSender

STEP_S = 0.02


class ScriptedVerifier:
    """Emits ids that follow from the seed and the position, one a step; has no model."""

    def __init__(self) -> None:
        self._sender = TokenSender()
        self._running: set[str] = set()
        self._num_cancelled = 0

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        if request.seed == 400:
            raise RequestError("the seed is odd", "invalid_parameter", "seed")
        if request.seed == 429:
            raise QueueFullError("full")
        self._running.add(request.request_id)
        ids = [5 + (request.seed + n) % 200 for n in range(request.sampling.max_tokens)]
        assert tuple(ids[: len(request.resume_token_ids)]) == request.resume_token_ids
        try:
            for n in range(len(request.resume_token_ids), len(ids)):
                await asyncio.sleep(STEP_S)
                chunk = TokenChunk(request.request_id, n, (ids[n],))
                if request.reply_to is not None:
                    self._sender.send(request.reply_to, [chunk])
        except asyncio.CancelledError:
            self._num_cancelled += 1
            raise
        finally:
            self._running.discard(request.request_id)
        name = str(os.getpid())
        return GenerationResult(
            request.request_id, tuple(ids), "length", None, len(ids), replica=name
        )

    async def report(self) -> dict[str, Any]:
        return {
            "replica": serve.get_replica_context().replica_id.unique_id,
            "pid": os.getpid(),
            "num_running": len(self._running),
            "num_cancelled": self._num_cancelled,
        }


class Quiet:
    """Plays the Policy."""

    async def status(self) -> dict[str, Any]:
        return {"version": 1}
