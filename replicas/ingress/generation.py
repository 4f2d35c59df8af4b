"""One choice of a request, from the first call to the last token, over the death of Verifiers.

The Ingress fixed the seed and holds the tokens passed on, so when a Verifier is lost another one
goes on from there and the client sees one stream, the same as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from replicas.api import GenerationRequest, GenerationResult, TokenChunk
from replicas.errors import EngineStoppedError, RequestError
from replicas.ingress.errors import ApiError, internal, invalid, queue_full, shorten, unavailable
from replicas.ingress.faults import Fault, classify
from replicas.ingress.handles import GenerationCall, VerifierHandle
from replicas.token_stream import TokenReceiver

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 0.1
"""Wait before the second attempt; it doubles with each further one."""

MAX_RETRY_DELAY_S = 5.0
"""Longest such wait."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a request is kept alive.

    Attributes:
        max_attempts: How often it is given to a Verifier.
        window_s: How long it may wait, without a token, for a Verifier to come back.
    """

    max_attempts: int
    window_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a choice.

    Attributes:
        result: What the last Verifier returned.
        num_attempts: How many Verifiers it took.
    """

    result: GenerationResult
    num_attempts: int


class Generator:
    """Runs choices on the Verifiers.

    Args:
        verifier: The Verifiers.
        receiver: Where they send tokens.
        retry: How long to keep a request alive.
        is_any_alive: Asks whether any Verifier answers.

    Attributes:
        counts: How many choices ``started``, ``finished`` and ``failed``, and how many calls were
            ``resubmitted``.
        last_success: Loop time of the last token or result; minus infinity before the first.
    """

    def __init__(
        self,
        verifier: VerifierHandle,
        receiver: TokenReceiver,
        retry: RetryPolicy,
        is_any_alive: Callable[[], Awaitable[bool]],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.last_success = float("-inf")
        self._generate = verifier.generate
        self._receiver = receiver
        self._retry = retry
        self._is_any_alive = is_any_alive

    async def run(self, request: GenerationRequest) -> AsyncGenerator[TokenChunk | Finished]:
        """Yield a choice's tokens without gap or overlap, and last its result.

        Closing the iterator cancels the call.

        Raises:
            ApiError: If the request cannot be served, after the attempts allowed.
        """
        self.counts["started"] += 1
        try:
            async with aclosing(self._run(request)) as events:
                async for event in events:
                    self.last_success = asyncio.get_running_loop().time()
                    yield event
        except ApiError:
            self.counts["failed"] += 1
            raise

    async def _run(self, request: GenerationRequest) -> AsyncGenerator[TokenChunk | Finished]:
        loop = asyncio.get_running_loop()
        token_ids: list[int] = list(request.resume_token_ids)
        deadline = loop.time() + self._retry.window_s
        num_attempts = 0
        while True:
            num_attempts += 1
            call = _Call(self._generate.remote, self._receiver, _attempt(request, num_attempts))
            try:
                async for chunk in self._chunks(call, token_ids):
                    deadline = loop.time() + self._retry.window_s
                    yield chunk
                self.counts["finished"] += 1
                yield Finished(call.result(), num_attempts)
                return
            except Exception as error:  # a boundary: whatever a replica raises ends up here
                self._raise_unless_lost(request, error, num_attempts, loop.time() < deadline)
            finally:
                call.cancel()
            self.counts["resubmitted"] += 1
            await asyncio.sleep(min(RETRY_DELAY_S * 2 ** (num_attempts - 1), MAX_RETRY_DELAY_S))
            # Less the last token: if it ended the reply, the next Verifier finds that out again.
            request = replace(request, resume_token_ids=tuple(token_ids[:-1]))

    async def _chunks(self, call: _Call, token_ids: list[int]) -> AsyncIterator[TokenChunk]:
        """Yield what is new as it comes and, when the call is over, what did not come."""
        while (chunk := await self._next(call)) is not None:
            if (new := _new_part(chunk, len(token_ids))) is not None:
                token_ids.extend(new.token_ids)
                yield new
        result = call.result()
        rest = _whole(result)
        if (new := _new_part(rest, len(token_ids))) is not None:
            token_ids.extend(new.token_ids)
            yield new

    async def _next(self, call: _Call) -> TokenChunk | None:
        """Wait for a chunk, for as long as there is a Verifier that might send one."""
        while True:
            try:
                async with asyncio.timeout(max(self._retry.window_s, 1.0)):
                    return await call.next()
            except TimeoutError:
                if not await self._is_any_alive():
                    raise unavailable("no replica answers") from None

    def _raise_unless_lost(
        self, request: GenerationRequest, error: Exception, num_attempts: int, has_time: bool
    ) -> None:
        """Raise what the client is told, unless the request can go on elsewhere.

        A full queue ends a request that is new, and makes one wait that had a place before.
        """
        if isinstance(error, ApiError):
            raise error
        fault = classify(error)
        if fault is Fault.REQUEST:
            raise _request_error(error) from error
        may_go_on = (fault is Fault.LOST and num_attempts < self._retry.max_attempts) or (
            fault is Fault.BUSY and num_attempts > 1
        )
        if may_go_on and has_time:
            kind = type(error).__name__
            logger.warning("request %s goes on elsewhere after %s", request.request_id, kind)
            return
        if fault is Fault.BUSY:
            raise queue_full() from error
        if fault in (Fault.LOST, Fault.UNAVAILABLE):
            logger.error("request %s given up: %r", request.request_id, type(error))
            raise unavailable("no replica could serve the request") from error
        logger.error("request %s failed", request.request_id, exc_info=error)
        raise internal() from error


def _attempt(request: GenerationRequest, number: int) -> GenerationRequest:
    """Return the request under an id of its own: the one before may still run somewhere."""
    if number == 1:
        return request
    first = request.request_id
    earlier = (first, *(f"{first}.{n}" for n in range(2, number)))
    return replace(request, request_id=f"{first}.{number}", earlier_attempts=earlier)


class _Call:
    """A Serve call and the chunks that come beside it, as one stream."""

    def __init__(
        self,
        start: Callable[[GenerationRequest], GenerationCall],
        receiver: TokenReceiver,
        request: GenerationRequest,
    ) -> None:
        self._request_id = request.request_id
        self._receiver = receiver
        self._subscription = receiver.subscribe(request.request_id)
        self._response: GenerationCall | None = None
        request = replace(request, reply_to=receiver.reply_to)
        self._task = asyncio.ensure_future(self._wait(start, request))
        self._task.add_done_callback(lambda _: self._subscription.put(None))

    async def next(self) -> TokenChunk | None:
        """Return the next chunk; None once the call is over."""
        return await self._subscription.get()

    def result(self) -> GenerationResult:
        """Return the call's result; the call is over.

        Raises:
            EngineStoppedError: If it was cancelled, which was not our doing.
            Exception: What the call raised.
        """
        if self._task.cancelled():
            raise EngineStoppedError("the call was cancelled")
        return self._task.result()

    def cancel(self) -> None:
        """Cancel the call if it is not over, and take no more chunks."""
        self._receiver.unsubscribe(self._request_id)
        if self._task.done():
            if not self._task.cancelled():
                self._task.exception()  # nobody else may have asked; asyncio would complain
            return
        if self._response is not None:
            self._response.cancel()
        self._task.cancel()

    async def _wait(
        self, start: Callable[[GenerationRequest], GenerationCall], request: GenerationRequest
    ) -> GenerationResult:
        self._response = start(request)
        return await self._response


def _new_part(chunk: TokenChunk, num_known: int) -> TokenChunk | None:
    """Return the part of a chunk after the tokens already known.

    None if there is none, or if tokens are missing between: those come with the result.
    """
    num_old = num_known - chunk.start
    if not 0 <= num_old < len(chunk.token_ids):
        return None
    return replace(
        chunk,
        start=num_known,
        token_ids=chunk.token_ids[num_old:],
        logprobs=chunk.logprobs[num_old:],
    )


def _whole(result: GenerationResult) -> TokenChunk:
    """Return a result as one chunk: all of it, or if there are logprobs, what they are for."""
    start = len(result.token_ids) - len(result.logprobs) if result.logprobs else 0
    return TokenChunk(result.request_id, start, result.token_ids[start:], result.logprobs)


def _request_error(error: BaseException) -> ApiError:
    """Return a replica's complaint about a request; Ray may have wrapped it."""
    cause = error if type(error) is RequestError else getattr(error, "cause", error)
    assert isinstance(cause, RequestError)
    return invalid(shorten(cause.message), cause.param, cause.code)
