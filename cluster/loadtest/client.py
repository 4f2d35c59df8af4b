"""Send one request over HTTP, streaming, and write down what comes and when."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from cluster.loadtest.arrivals import Arrival
from cluster.loadtest.records import ArmTally, RequestRecord

logger = logging.getLogger(__name__)

_PATH = "/v1/chat/completions"


class LoadClient:
    """Sends the requests of a load test. Nothing is ever sent twice: a failure must be seen.

    Args:
        url: The system, without ``/v1``.
        model: Its model's name.
        api_key: Key that it wants, or None.
        timeout_s: After how long without an end a request has failed.
        clock: Seconds from the start of the load test.
    """

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str | None,
        timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._model = model
        self._timeout_s = timeout_s
        self._clock = clock
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.AsyncClient(
            base_url=url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,
        )

    async def send(self, arrival: Arrival, record: RequestRecord | None = None) -> RequestRecord:
        """Send one request and return what became of it; never raises because it failed.

        Args:
            arrival: The request.
            record: Where to write it down, for those who want to look on.
        """
        record = record or empty_record(arrival)
        record.sent_s = self._clock()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._stream(arrival, record)
        except TimeoutError:
            record.error = f"no end within {self._timeout_s:g} s"
        except (httpx.HTTPError, ValueError) as error:
            record.error = str(error) or type(error).__name__
        record.ended_s = self._clock()
        return record

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _stream(self, arrival: Arrival, record: RequestRecord) -> None:
        body = request_body(arrival, self._model)
        async with self._http.stream("POST", _PATH, json=body) as answer:
            if answer.status_code != 200:
                text = (await answer.aread()).decode(errors="replace")
                raise ValueError(f"HTTP {answer.status_code}: {text[:200]}")
            is_done = False
            async for line in answer.aiter_lines():
                data = line.removeprefix("data: ") if line.startswith("data: ") else ""
                if data == "[DONE]":
                    is_done = True
                elif data:
                    take_chunk(record, json.loads(data), self._clock())
        if not is_done or not record.finish_reason:
            raise ValueError("the stream ended before the reply did")


def empty_record(arrival: Arrival) -> RequestRecord:
    """Return the record of a request that has not been sent yet."""
    return RequestRecord(
        arrival.index, arrival.phase, arrival.workload, arrival.prompt.id, arrival.at_s
    )


def request_body(arrival: Arrival, model: str) -> dict[str, Any]:
    """Return the body of a request."""
    settings = arrival.settings
    return {
        "model": model,
        "messages": [{"role": "user", "content": arrival.prompt.turns[0]}],
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "ignore_eos": settings.ignore_eos,
        "seed": arrival.seed,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "speculation": {"explain": True, **settings.speculation},
    }


def take_chunk(record: RequestRecord, chunk: Mapping[str, Any], now_s: float) -> None:
    """Add a chunk of the stream to the record.

    Raises:
        ValueError: If it says that the request failed.
    """
    if error := chunk.get("error"):
        raise ValueError(str(error.get("message") if isinstance(error, dict) else error))
    for choice in chunk.get("choices") or ():
        record.text += (choice.get("delta") or {}).get("content") or ""
        record.finish_reason = choice.get("finish_reason") or record.finish_reason
    if usage := chunk.get("usage"):
        record.prompt_tokens = int(usage["prompt_tokens"])
        if int(usage["completion_tokens"]) > record.num_tokens:
            record.tokens.append((now_s, int(usage["completion_tokens"])))
    if told := chunk.get("banditserve"):
        record.verifier = str(told.get("verifier") or record.verifier)
        record.attempts = int(told.get("attempts") or record.attempts)
        _take_rounds(record, told.get("rounds") or ())


def _take_rounds(record: RequestRecord, rounds: Any) -> None:
    for told in rounds:
        tally = ArmTally(1, told["num_verified"], told["num_accepted"], told["num_emitted"])
        record.arms.setdefault(str(told["arm"]), ArmTally()).add(tally)
