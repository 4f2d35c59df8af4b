"""The objects of a response, whole or in chunks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from replicas.ingress.choices import ChoiceEvent, Done
from replicas.ingress.explain import metrics, provenance
from replicas.ingress.reply import ReplyToken
from replicas.ingress.shapes import Shape


@dataclass(frozen=True, slots=True)
class Head:
    """What all objects of one response share.

    Attributes:
        response_id: The same in all chunks.
        created: Seconds since 1970.
        model: Name of the model.
        shape: The route's objects.
        num_choices: Choices that come.
        num_prompt_tokens: Tokens of all prompts, each counted once.
        seed: The request's, or the one drawn for it.
        max_gamma: Largest configured speculation length.
        explain: Whether every round is returned.
    """

    response_id: str
    created: int
    model: str
    shape: Shape
    num_choices: int
    num_prompt_tokens: int
    seed: int
    max_gamma: int
    explain: bool

    def envelope(self, object_name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the outer object."""
        return {
            "id": self.response_id,
            "object": object_name,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


class _Tally:
    """Counts tokens and gathers endings over all choices."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._num_tokens: dict[int, int] = {}
        self.done: dict[int, Done] = {}

    @property
    def is_complete(self) -> bool:
        return len(self.done) == self._head.num_choices

    def add(self, event: ChoiceEvent) -> None:
        self._num_tokens[event.index] = event.num_tokens
        if event.done is not None:
            self.done[event.index] = event.done

    def usage(self) -> dict[str, Any]:
        """Return OpenAI's usage of what has come so far."""
        head = self._head
        completion = sum(self._num_tokens.values())
        cached = max((d.result.stats.num_cached_tokens for d in self.done.values()), default=0)
        return {
            "prompt_tokens": head.num_prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": head.num_prompt_tokens + completion,
            "prompt_tokens_details": {"cached_tokens": min(cached, head.num_prompt_tokens)},
        }

    def extras(self) -> dict[str, Any]:
        """Return how it came about; times and speculation only for a single choice, as vLLM."""
        head = self._head
        extras = {"banditserve": provenance(head.seed, self.done, head.explain)}
        if head.num_choices == 1:
            extras["metrics"] = metrics(self.done[0].result, head.max_gamma)
        return extras


def _finish(done: Done) -> dict[str, Any]:
    return {"finish_reason": done.ending.finish_reason, "stop_reason": done.ending.stop_reason}


class WholeResponse:
    """Gathers all events into one object."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._tally = _Tally(head)
        self._texts: dict[int, list[str]] = {}
        self._tokens: dict[int, list[ReplyToken]] = {}

    def add(self, event: ChoiceEvent) -> None:
        """Take an event."""
        self._tally.add(event)
        self._texts.setdefault(event.index, []).append(event.piece.text)
        self._tokens.setdefault(event.index, []).extend(event.piece.tokens)

    def body(self) -> dict[str, Any]:
        """Return the response, now that all choices are done."""
        head, tally = self._head, self._tally
        choices = [
            {
                "index": index,
                **head.shape.whole("".join(self._texts[index]), self._tokens[index]),
                **_finish(tally.done[index]),
            }
            for index in sorted(tally.done)
        ]
        body = head.envelope(head.shape.object_name, choices)
        return {**body, "usage": tally.usage(), **tally.extras()}


class ChunkedResponse:
    """Turns events into the chunks of a stream.

    The last chunk also carries ``metrics`` and ``banditserve``: the one with the usage if usage was
    asked for, else the one with the last finish reason.

    Args:
        head: What all chunks share.
        has_usage: Send the usage in a chunk of its own at the end.
        has_running_usage: Send the usage so far with every chunk.
    """

    def __init__(self, head: Head, has_usage: bool, has_running_usage: bool) -> None:
        self._head = head
        self._has_usage = has_usage
        self._has_running_usage = has_running_usage
        self._tally = _Tally(head)
        self._opened: set[int] = set()

    def chunks(self, event: ChoiceEvent) -> Iterator[dict[str, Any]]:
        """Yield the chunks that an event makes."""
        self._tally.add(event)
        shape, index = self._head.shape, event.index
        if index not in self._opened:
            self._opened.add(index)
            if (opening := shape.opening()) is not None:
                yield self._chunk({"index": index, **opening, "finish_reason": None})
        if event.piece:
            yield self._chunk({"index": index, **shape.delta(event.piece), "finish_reason": None})
        if event.done is not None:
            yield from self._closing(index, event.done)

    def _closing(self, index: int, done: Done) -> Iterator[dict[str, Any]]:
        tally = self._tally
        last = self._chunk({"index": index, **self._head.shape.closing(), **_finish(done)})
        if not tally.is_complete:
            yield last
        elif self._has_usage:
            yield last
            empty = self._head.envelope(self._head.shape.chunk_object_name, [])
            yield {**empty, "usage": tally.usage(), **tally.extras()}
        else:
            yield {**last, **tally.extras()}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = self._head.envelope(self._head.shape.chunk_object_name, [choice])
        if self._has_running_usage:
            chunk["usage"] = self._tally.usage()
        elif self._has_usage:
            chunk["usage"] = None
        return chunk
