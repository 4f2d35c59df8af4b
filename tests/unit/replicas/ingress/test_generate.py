"""Replies through the routes: text, stops, logprobs, usage, several choices, streaming."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import httpx2
import openai
import pytest

from replicas.ingress import streaming
from tests.unit.models.small_tokenizers import byte_level
from tests.unit.replicas.ingress.fakes import (
    ANSWER,
    MODEL,
    FakeVerifier,
    Fate,
    Server,
    serving,
)

Body = Callable[[Server], Awaitable[None]]


def run(body: Body, verifier: FakeVerifier | None = None, **options: Any) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20), serving(verifier, **options) as server:
            await body(server)

    asyncio.run(limited())


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = response.text.strip().split("\n\n")
    assert blocks[-1] == "data: [DONE]"
    return [json.loads(b.removeprefix("data: ")) for b in blocks[:-1] if not b.startswith(":")]


def text_of(events: list[dict[str, Any]], index: int = 0) -> str:
    choices = [c for event in events for c in event["choices"] if c["index"] == index]
    return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices)


def test_a_chat_reply() -> None:
    async def body(server: Server) -> None:
        response = await server.chat(temperature=0)
        assert response.status_code == 200
        reply = response.json()
        assert reply["object"] == "chat.completion"
        assert reply["id"].startswith("chatcmpl-")
        (choice,) = reply["choices"]
        assert choice["message"] == {"role": "assistant", "content": ANSWER, "refusal": None}
        assert choice["finish_reason"] == "stop"
        assert choice["stop_reason"] is None
        request = server.verifier.requests[0]
        assert "user: Hello" in byte_level().decode(list(request.prompt_token_ids))
        assert request.sampling.max_tokens == 200 - len(request.prompt_token_ids)
        num_reply = len(byte_level().encode(ANSWER, add_special_tokens=False)) + 1
        assert reply["usage"]["completion_tokens"] == num_reply
        assert reply["usage"]["prompt_tokens"] == len(request.prompt_token_ids)
        assert reply["banditserve"]["verifier"] == "v1"
        assert reply["banditserve"]["seed"] == request.seed
        assert "rounds" not in reply["banditserve"]

    run(body)


@pytest.mark.parametrize("step_tokens", [1, 2, 5, 1000])
def test_a_stream_is_the_whole_reply_in_pieces(step_tokens: int) -> None:
    async def body(server: Server) -> None:
        events = events_of(await server.chat(stream=True))
        assert text_of(events) == ANSWER
        assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert len({event["id"] for event in events}) == 1
        last = events[-1]["choices"][0]
        assert (last["delta"], last["finish_reason"]) == ({}, "stop")
        assert events[-1]["metrics"]["speculative_decoding"]["num_spec_tokens"] == 4
        assert all("usage" not in event for event in events)

    run(body, FakeVerifier(fates=[Fate(step_tokens)]))


def test_usage_in_a_stream() -> None:
    async def body(server: Server) -> None:
        options = {"include_usage": True, "continuous_usage_stats": True}
        events = events_of(await server.complete(stream=True, stream_options=options))
        counts = [event["usage"]["completion_tokens"] for event in events]
        assert counts == sorted(counts)
        assert events[-1]["choices"] == []
        assert "metrics" in events[-1]
        events = events_of(
            await server.complete(
                stream=True, stream_options=options | {"continuous_usage_stats": False}
            )
        )
        assert [event["usage"] for event in events[:-1]] == [None] * (len(events) - 1)
        assert events[-1]["usage"]["completion_tokens"] == counts[-1]

    run(body)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("step_tokens", [1, 3, 100])
def test_a_stop_string_cuts_text_and_logprobs(stream: bool, step_tokens: int) -> None:
    """ST-1: ids, logprobs and text end together, and nothing of the stop string is shown."""

    async def body(server: Server) -> None:
        response = await server.complete(stop=["fine day", "zzz"], stream=stream, logprobs=1)
        want = ANSWER[: ANSWER.index("fine day")]
        choices = [
            c for e in (events_of(response) if stream else [response.json()]) for c in e["choices"]
        ]
        assert "".join(c["text"] for c in choices) == want
        assert choices[-1]["finish_reason"] == "stop"
        assert choices[-1]["stop_reason"] == "fine day"
        tokens = [t for c in choices if c["logprobs"] for t in c["logprobs"]["tokens"]]
        assert want.startswith("".join(tokens)[: len(want)])
        assert "fine" not in "".join(tokens)

    run(body, FakeVerifier(fates=[Fate(step_tokens)]))


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_token_is_not_in_the_text(stream: bool) -> None:
    comma = byte_level().encode(",", add_special_tokens=False)[0]

    async def body(server: Server) -> None:
        response = await server.complete(stop_token_ids=[comma], stream=stream)
        events = events_of(response) if stream else [response.json()]
        assert text_of(events) == "Hello there"
        assert events[-1]["choices"][0]["stop_reason"] == comma

    run(body)


def test_the_length_limit() -> None:
    async def body(server: Server) -> None:
        reply = (await server.complete(max_tokens=4)).json()
        assert reply["choices"][0]["finish_reason"] == "length"
        assert reply["usage"]["completion_tokens"] == 4
        assert ANSWER.startswith(reply["choices"][0]["text"])

    run(body)


def test_chat_logprobs() -> None:
    async def body(server: Server) -> None:
        reply = (await server.chat(logprobs=True, top_logprobs=2)).json()
        content = reply["choices"][0]["logprobs"]["content"]
        ids = byte_level().encode(ANSWER, add_special_tokens=False)
        assert [entry["token"] for entry in content] == [byte_level().decode([i]) for i in ids]
        assert content[0]["top_logprobs"][1]["logprob"] == -9999.0
        whole = bytes(b for e in content if e["bytes"] for b in e["bytes"])
        assert whole.decode().startswith("Hello there")
        streamed = events_of(await server.chat(logprobs=True, top_logprobs=2, stream=True))
        entries = [
            e
            for event in streamed
            for c in event["choices"]
            for e in (c["logprobs"] or {"content": []})["content"]
        ]
        assert entries == content

    run(body)


def test_completion_logprobs_have_offsets() -> None:
    async def body(server: Server) -> None:
        reply = (await server.complete(logprobs=0)).json()
        logprobs = reply["choices"][0]["logprobs"]
        text = reply["choices"][0]["text"]
        for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
            if "\ufffd" not in token:
                assert text[offset:].startswith(token)

    run(body)


@pytest.mark.parametrize("stream", [False, True])
def test_prompts_and_choices(stream: bool) -> None:
    def answers(request: Any) -> str:
        return f"{len(request.prompt_token_ids)}/{request.choice_index}"

    async def body(server: Server) -> None:
        prompt = [[5, 6, 7], [5, 6]]
        response = await server.complete(prompt=prompt, n=2, seed=9, stream=stream)
        events = events_of(response) if stream else [response.json()]
        assert [text_of(events, i) for i in range(4)] == ["3/0", "3/1", "2/0", "2/1"]
        assert {r.seed for r in server.verifier.requests} == {9}
        assert len({r.request_id for r in server.verifier.requests}) == 4
        extras = events[-1]["banditserve"]
        assert [c["index"] for c in extras["choices"]] == [0, 1, 2, 3]
        assert "metrics" not in events[-1]
        if not stream:
            assert events[0]["usage"]["prompt_tokens"] == 5

    run(body, FakeVerifier(answers=answers))


def test_what_may_come_and_what_may_not_reaches_the_verifier() -> None:
    async def body(server: Server) -> None:
        fields = {
            "allowed_token_ids": [5, 6],
            "banned_token_ids": [6],
            "bad_words": ["day", " day"],
        }
        assert (await server.complete(**fields)).status_code == 200
        sampling = server.verifier.requests[0].sampling
        assert sampling.allowed_token_ids == (5, 6)
        assert sampling.banned_token_ids == (6,)
        tokenizer = server.verifier.tokenizer
        words = {str(tokenizer.decode(list(ids))) for ids in sampling.banned_sequences}
        assert words == {"day", " day"}

    run(body)


def test_a_prompt_given_twice_has_unrelated_replies_unless_there_is_a_seed() -> None:
    async def body(server: Server) -> None:
        for fields, expected in (({}, [0, 1, 2, 3]), ({"seed": 7}, [0, 1, 0, 1])):
            server.verifier.requests.clear()
            await server.complete(prompt=["a", "a"], n=2, **fields)
            assert [one.choice_index for one in server.verifier.requests] == expected
            assert len({one.seed for one in server.verifier.requests}) == 1

    run(body)


def test_metrics_have_the_common_formulas() -> None:
    async def body(server: Server) -> None:
        reply = (await server.complete(speculation={"explain": True})).json()
        n = reply["usage"]["completion_tokens"]
        assert reply["metrics"] == {
            "time_to_first_token_ms": 10.0,
            "generation_time_ms": 100.0,
            "queue_time_ms": 1.0,
            "mean_itl_ms": round(100 / (n - 1), 3),
            "tokens_per_second": round(1000 * n / 110, 3),
            "speculative_decoding": {
                "mean_acceptance_length": 1 + 4 / 3,
                "draft_acceptance_rate": 4 / 12,
                "acceptance_histogram": [1, 0, 2, 0, 0],
                "num_spec_steps": 3,
                "num_accepted_draft_tokens": 4,
                "num_draft_tokens": 12,
                "num_spec_tokens": 4,
            },
        }
        (round_,) = reply["banditserve"]["rounds"]
        assert round_["arm"] == "prompt_lookup:4"
        assert round_["reason"] == "highest index"
        assert reply["banditserve"]["attempts"] == 1

    run(body)


def test_a_silent_stream_has_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.02)

    async def body(server: Server) -> None:
        server.verifier.answers = lambda _: "slow " * 20
        response = await server.complete(stream=True)
        assert text_of(events_of(response)) == "slow " * 20

    verifier = FakeVerifier(fates=[Fate(step_tokens=100, streamed=0, error=None)])
    run(body, verifier)


def test_the_openai_client() -> None:
    async def body(server: Server) -> None:
        transport = httpx2.ASGITransport(app=server.app)
        client = openai.AsyncOpenAI(
            base_url="http://test/v1",
            api_key="any",
            http_client=httpx2.AsyncClient(transport=transport),
            max_retries=0,
        )
        whole = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hello"}]
        )
        assert whole.choices[0].message.content == ANSWER
        assert whole.usage is not None
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Hello"}],
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"speculation": {"mode": "off"}},
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
        assert server.verifier.requests[-1].speculation.mode == "off"
        models = await client.models.list()
        assert [model.id for model in models.data] == [MODEL]
        with pytest.raises(openai.NotFoundError) as caught:
            await client.completions.create(model="other", prompt="x")
        assert caught.value.code == "model_not_found"
        await client.close()

    run(body)
