"""The token stream over real sockets on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from replicas import token_sender, token_stream
from replicas.api import ReplyTo, TokenChunk, TokenLogprobs
from replicas.token_sender import TokenSender
from replicas.token_stream import TokenReceiver, decode_chunks, encode_chunks, encode_frame

DEADLINE_S = 10.0


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await body()

    asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0.002)


def chunk(request_id: str, start: int = 0, *token_ids: int) -> TokenChunk:
    return TokenChunk(request_id, start, token_ids or (7,))


def test_chunks_survive_the_wire() -> None:
    chunks = [
        TokenChunk("a-0", 3, (5, 6), (TokenLogprobs(-0.5, ((5, -0.5), (9, -1.25))),) * 2),
        TokenChunk("b-0", 0, (49151,)),
    ]
    assert decode_chunks(encode_chunks(chunks)) == chunks


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x01", b"\x91\x01", b"\x91\x94\xa1a\xa1b\x90\x90"]
)
def test_other_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="expected a list of token chunks"):
        decode_chunks(body)


def test_each_subscriber_gets_its_chunks_in_order() -> None:
    async def body() -> None:
        receiver, sender = TokenReceiver("127.0.0.1"), TokenSender()
        await receiver.start()
        first, second = receiver.subscribe("a"), receiver.subscribe("b")
        sender.send(receiver.reply_to, [chunk("a", 0, 1), chunk("b", 0, 2)])
        sender.send(receiver.reply_to, [chunk("a", 1, 3, 4)])
        assert await first.get() == chunk("a", 0, 1)
        assert await first.get() == chunk("a", 1, 3, 4)
        assert await second.get() == chunk("b", 0, 2)
        await sender.close()
        await receiver.stop()
        assert receiver.counts["accepted"] == 1
        assert sender.counts == {"chunks": 3, "dropped": 0}

    run(body)


def test_chunks_of_replies_that_nobody_waits_for_are_counted() -> None:
    async def body() -> None:
        receiver, sender = TokenReceiver("127.0.0.1"), TokenSender()
        await receiver.start()
        receiver.subscribe("a")
        with pytest.raises(ValueError, match="already"):
            receiver.subscribe("a")
        receiver.unsubscribe("a")
        receiver.unsubscribe("a")
        sender.send(receiver.reply_to, [chunk("a")])
        await until(lambda: receiver.counts["unclaimed"] == 1)
        await sender.close()
        await receiver.stop()

    run(body)


def test_a_wrong_secret_is_refused() -> None:
    async def body() -> None:
        receiver, sender = TokenReceiver("127.0.0.1"), TokenSender()
        await receiver.start()
        receiver.subscribe("a")
        real = receiver.reply_to
        sender.send(ReplyTo(real.host, real.port, "0" * len(real.token)), [chunk("a")])
        await until(lambda: receiver.counts["refused"] == 1)
        assert receiver.counts["chunks"] == 0
        await sender.close()
        await receiver.stop()

    run(body)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_frame_that_is_too_long_ends_the_connection_unread(is_known: bool) -> None:
    async def body() -> None:
        receiver = TokenReceiver("127.0.0.1", max_frame_bytes=1000)
        await receiver.start()
        address = receiver.reply_to
        reader, writer = await asyncio.open_connection(address.host, address.port)
        if is_known:
            writer.write(encode_frame(address.token.encode()))
        writer.write((1001).to_bytes(4, "big"))
        assert await reader.read() == b""
        assert receiver.counts["malformed"] == 1
        writer.close()
        await receiver.stop()

    run(body)


def test_silence_before_the_secret_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_stream, "HELLO_TIMEOUT_S", 0.05)

    async def body() -> None:
        receiver = TokenReceiver("127.0.0.1")
        await receiver.start()
        address = receiver.reply_to
        reader, writer = await asyncio.open_connection(address.host, address.port)
        assert await reader.read() == b""
        writer.close()
        await receiver.stop()

    run(body)


def test_a_sender_reconnects_after_the_connection_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_sender, "RETRY_AFTER_S", 0.0)

    async def body() -> None:
        receiver, sender = TokenReceiver("127.0.0.1"), TokenSender()
        await receiver.start()
        subscription = receiver.subscribe("a")
        sender.send(receiver.reply_to, [chunk("a", 0)])
        await subscription.get()
        for connection in tuple(receiver._connections):
            connection.cancel()
        await until(lambda: sender.counts["lost"] == 1)
        sender.send(receiver.reply_to, [chunk("a", 1)])
        assert await subscription.get() == chunk("a", 1)
        assert receiver.counts["accepted"] == 2
        await sender.close()
        await receiver.stop()

    run(body)


def test_an_ingress_that_is_gone_costs_drops_and_no_wait() -> None:
    async def body() -> None:
        receiver, sender = TokenReceiver("127.0.0.1"), TokenSender()
        await receiver.start()
        gone = receiver.reply_to
        await receiver.stop()
        sender.send(gone, [chunk("a")])
        await until(lambda: sender.counts["lost"] == 1)
        sender.send(gone, [chunk("a", 1), chunk("a", 2)])
        assert sender.counts == {"chunks": 3, "dropped": 3, "lost": 1}
        await sender.close()

    run(body)


def test_a_full_buffer_drops() -> None:
    async def body() -> None:
        receiver, sender = TokenReceiver("127.0.0.1"), TokenSender(max_buffered_chunks=2)
        await receiver.start()
        subscription = receiver.subscribe("a")
        sender.send(receiver.reply_to, [chunk("a", i) for i in range(5)])
        assert sender.counts["dropped"] == 3
        assert [await subscription.get() for _ in range(2)] == [chunk("a", 0), chunk("a", 1)]
        await sender.close()
        await receiver.stop()

    run(body)


def test_an_address_needs_a_started_receiver() -> None:
    with pytest.raises(RuntimeError, match="while it is started"):
        _ = TokenReceiver("127.0.0.1").reply_to
