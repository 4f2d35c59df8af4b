"""All choices of one HTTP request, side by side, as one stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from replicas.api import GenerationRequest, GenerationResult
from replicas.ingress.generation import Finished, Generator
from replicas.ingress.reply import Ending, Piece, Reply


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice to generate.

    Attributes:
        index: Its place in the response.
        request: What to generate.
        reply: Builds its text.
    """

    index: int
    request: GenerationRequest
    reply: Reply


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a choice.

    Attributes:
        ending: Why it ended.
        result: What the Verifier said about it.
        num_attempts: How many Verifiers it took.
    """

    ending: Ending
    result: GenerationResult
    num_attempts: int


@dataclass(frozen=True, slots=True)
class ChoiceEvent:
    """Something happened to a choice.

    Attributes:
        index: Which one.
        piece: More of its text; empty if what came is not certain yet.
        num_tokens: Tokens that it has so far.
        done: Set with the last event.
    """

    index: int
    piece: Piece
    num_tokens: int
    done: Done | None = None


async def run_choices(
    generator: Generator, choices: Sequence[Choice]
) -> AsyncGenerator[ChoiceEvent]:
    """Generate all choices at once; yield what happens, as it happens.

    The first failure ends them all. Closing the iterator cancels what is under way.

    Raises:
        ApiError: If a choice cannot be generated.
    """
    if len(choices) == 1:
        async with aclosing(_run(generator, choices[0])) as events:
            async for event in events:
                yield event
        return
    queue: asyncio.Queue[ChoiceEvent | BaseException] = asyncio.Queue()
    tasks = [asyncio.ensure_future(_pump(generator, choice, queue)) for choice in choices]
    num_left = len(tasks)
    try:
        while num_left:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            num_left -= item.done is not None
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(generator: Generator, choice: Choice) -> AsyncGenerator[ChoiceEvent]:
    reply = choice.reply
    async with aclosing(generator.run(choice.request)) as events:
        async for event in events:
            if isinstance(event, Finished):
                piece, ending = reply.finish(event.result)
                done = Done(ending, event.result, event.num_attempts)
                num_tokens = len(event.result.token_ids)
                yield ChoiceEvent(choice.index, piece, num_tokens, done)
            else:
                piece = reply.add(event)
                yield ChoiceEvent(choice.index, piece, reply.num_tokens)


async def _pump(
    generator: Generator, choice: Choice, queue: asyncio.Queue[ChoiceEvent | BaseException]
) -> None:
    try:
        async with aclosing(_run(generator, choice)) as events:
            async for event in events:
                queue.put_nowait(event)
    except Exception as error:  # handed on, and raised where the events are read
        queue.put_nowait(error)
