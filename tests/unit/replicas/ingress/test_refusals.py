"""What is refused, with which status, code and field; always before the first byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from replicas.config import IngressConfig
from replicas.errors import QueueFullError, RequestError
from tests.unit.models.small_tokenizers import byte_level
from tests.unit.replicas.ingress.fakes import HELLO, MODEL, FakeVerifier, Fate, Server, serving

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def run(body: Callable[[Server], Awaitable[None]], **options: Any) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20), serving(**options) as server:
            await body(server)

    asyncio.run(limited())


def check(response: httpx.Response, status: int, code: str, param: str | None) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, code, param), error
    assert set(error) == {"message", "type", "param", "code"}
    assert len(response.content) < 4000
    return error


RULES: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"n": 2, "temperature": 0}, "n"),
    ({"presence_penalty": -2.1}, "presence_penalty"),
    ({"frequency_penalty": 2.5}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.01}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": ["x"] * 17}, "stop"),
    ({"stop": "x" * 300}, "stop"),
    ({"stop_token_ids": [10**6]}, "stop_token_ids"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"logit_bias": {"five": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logit_bias": {"999999": 1}}, "logit_bias"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [5, 10**6]}, "allowed_token_ids"),
    ({"allowed_token_ids": [5, 6], "banned_token_ids": [6, 5, 7]}, "allowed_token_ids"),
    ({"banned_token_ids": [-1]}, "banned_token_ids"),
    ({"bad_words": ["x", ""]}, "bad_words"),
    ({"bad_words": ["x" * 300]}, "bad_words"),
    ({"bad_words": ["x"] * 129}, "bad_words"),
    ({"seed": 2**64}, "seed"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"speculation": {"drafter": "nobody"}}, "speculation"),
    ({"speculation": {"gamma": 99}}, "speculation"),
    ({"speculation": {"mode": "off", "gamma": 3}}, "speculation"),
    ({"speculation": {"learner": "nobody"}}, "speculation"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"best_of": 2}, "best_of"),
    ({"echo": True}, "echo"),
    ({"suffix": "end"}, "suffix"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ({"include_stop_str_in_output": True}, "include_stop_str_in_output"),
]


@pytest.mark.parametrize(("fields", "param"), RULES, ids=lambda v: str(v)[:40])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
def test_rules(path: str, fields: dict[str, Any], param: str, stream: bool) -> None:
    if stream and param == "stream_options":
        return

    async def body(server: Server) -> None:
        given = {"messages": HELLO} if path == CHAT else {"prompt": "hi"}
        response = await server.post(path, {**given, "stream": stream, **fields})
        check(response, 400, "invalid_parameter", param)
        assert server.verifier.requests == []

    run(body)


NEUTRAL_FIELDS = {
    "tools": [],
    "response_format": {"type": "text"},
    "best_of": 1,
    "echo": False,
    "suffix": None,
    "seed": None,
    "stop": None,
    "metadata": {"a": "b"},
    "logit_bias": {},
    "allowed_token_ids": None,
    "banned_token_ids": [],
    "bad_words": [],
    "top_k": -1,
}


def test_fields_that_ask_for_nothing_are_accepted() -> None:
    async def body(server: Server) -> None:
        assert (await server.complete(**NEUTRAL_FIELDS)).status_code == 200
        sampling = server.verifier.requests[0].sampling
        assert sampling.top_k == 0
        assert sampling.allowed_token_ids is None
        assert sampling.banned_token_ids == ()
        assert sampling.banned_sequences == ()
        told = [{"role": "assistant", "content": "Hi", "refusal": None, "tool_calls": []}, *HELLO]
        assert (await server.chat(messages=told)).status_code == 200

    run(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": [5, 10**7]}, "prompt"),
        ({"prompt": ["a"] * 65}, "prompt"),
    ],
)
def test_rules_of_completions(fields: dict[str, Any], param: str) -> None:
    async def body(server: Server) -> None:
        check(await server.complete(**fields), 400, "invalid_parameter", param)

    run(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ],
)
def test_rules_of_chat(fields: dict[str, Any], param: str) -> None:
    async def body(server: Server) -> None:
        check(await server.chat(**fields), 400, "invalid_parameter", param)

    run(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"n": "2"}, "n"),
        ({"stop": [1]}, "stop"),
        ({"allowed_token_ids": ["5"]}, "allowed_token_ids"),
        ({"bad_words": "word"}, "bad_words"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"speculation": {"mode": "maybe"}}, "speculation"),
        ({"model": None}, "model"),
    ],
)
def test_wrong_shapes(fields: dict[str, Any], param: str) -> None:
    async def body(server: Server) -> None:
        check(await server.chat(**fields), 400, "invalid_request", param)

    run(body)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b'{"model": NaN}', b"[" * 10_000, b'"\xff"', b'{"a": Infinity}'],
)
def test_what_is_not_json(content: bytes) -> None:
    async def body(server: Server) -> None:
        headers = {"content-type": "application/json"}
        response = await server.client.post(CHAT, content=content, headers=headers)
        assert response.json()["error"]["code"] == "invalid_request"
        assert response.status_code == 400

    run(body)


def test_infinities_are_no_numbers() -> None:
    async def body(server: Server) -> None:
        content = json.dumps({"model": MODEL, "prompt": "x", "temperature": float("nan")})
        headers = {"content-type": "application/json"}
        response = await server.client.post(COMPLETIONS, content=content, headers=headers)
        check(response, 400, "invalid_request", "temperature")

    run(body)


def test_another_content_type() -> None:
    async def body(server: Server) -> None:
        response = await server.client.post(CHAT, content=b"{}", headers={"content-type": "a/b"})
        check(response, 400, "invalid_request", None)

    run(body)


def test_a_body_with_very_many_faults_gets_a_short_answer() -> None:
    async def body(server: Server) -> None:
        messages = [{"role": "x" * 300, "content": 5}] * 500
        error = check(await server.chat(messages=messages), 400, "invalid_request", "messages")
        assert "more" in error["message"]

    run(body)


def test_unknown_fields() -> None:
    async def body(server: Server) -> None:
        response = await server.chat(temprature=1)
        error = check(response, 400, "unknown_parameter", "temprature")
        assert "did you mean temperature" in error["message"]
        response = await server.chat(speculation={"gama": 1})
        check(response, 400, "unknown_parameter", "speculation.gama")
        many = {f"field{i}" + "x" * 300: 1 for i in range(50)}
        assert (await server.chat(**many)).status_code == 400

    run(body)


def test_unknown_fields_can_be_ignored_but_never_unsupported_ones() -> None:
    async def body(server: Server) -> None:
        response = await server.chat(temprature=1, stream=True)
        assert response.status_code == 200
        assert response.headers["x-ignored-parameters"] == "temprature"
        check(await server.chat(tools=[1]), 400, "invalid_parameter", "tools")

    run(body, config=IngressConfig(strict_parameters=False))


def test_the_context() -> None:
    async def body(server: Server) -> None:
        code = "context_length_exceeded"
        long = [5] * 150
        check(await server.complete(prompt=long, max_tokens=51), 400, code, "max_tokens")
        assert (await server.complete(prompt=long, max_tokens=50)).status_code == 200
        check(await server.complete(prompt=[5] * 200, max_tokens=1), 400, code, "prompt")
        talk = [{"role": "user", "content": "x" * 300}]
        check(await server.chat(messages=talk), 400, code, "messages")
        check(await server.chat(max_completion_tokens=500), 400, code, "max_completion_tokens")

    run(body)


def test_the_body_limit() -> None:
    async def body(server: Server) -> None:
        response = await server.complete(prompt="x" * 2000)
        check(response, 413, "request_too_large", None)

        async def pieces() -> Any:
            for _ in range(20):
                yield b"x" * 100

        headers = {"content-type": "application/json"}
        response = await server.client.post(COMPLETIONS, content=pieces(), headers=headers)
        check(response, 413, "request_too_large", None)

    run(body, config=IngressConfig(max_body_bytes=1024))


def test_unknown_models_and_paths() -> None:
    async def body(server: Server) -> None:
        check(await server.chat(model="other"), 404, "model_not_found", "model")
        response = await server.client.get("/v1/models/a/b")
        check(response, 404, "model_not_found", "model")
        assert (await server.client.get(f"/v1/models/{MODEL}")).json()["id"] == MODEL
        check(await server.client.get("/v2/other"), 404, "not_found", None)
        check(await server.client.get("/docs"), 404, "not_found", None)
        check(await server.client.get(CHAT), 405, "method_not_allowed", None)

    run(body)


def test_api_keys() -> None:
    async def body(server: Server) -> None:
        for headers in ({}, {"Authorization": "Bearer no"}, {"Authorization": "Basic one"}):
            response = await server.client.get("/v1/models", headers=headers)
            check(response, 401, "invalid_api_key", None)
            check(await server.post(CHAT, {}, headers=headers), 401, "invalid_api_key", None)
            check(await server.client.get("/status", headers=headers), 401, "invalid_api_key", None)
        assert (await server.client.get("/health")).status_code == 200
        for key in ("one", "two"):
            headers = {"Authorization": f"Bearer {key}"}
            response = await server.post(CHAT, {"messages": HELLO, "user": "u"}, headers=headers)
            assert response.status_code == 200
        tenants = {request.features.tenant for request in server.verifier.requests}
        assert len(tenants) == 2
        assert all(len(tenant) == 12 for tenant in tenants)

    run(body, config=IngressConfig(api_keys=("one", "two")))


def test_no_chat_template() -> None:
    tokenizer = byte_level()

    async def body(server: Server) -> None:
        error = check(await server.chat(), 400, "invalid_parameter", "messages")
        assert "chat template" in error["message"]
        assert (await server.complete()).status_code == 200

    template = tokenizer.chat_template
    tokenizer.chat_template = None
    try:
        run(body, tokenizer=tokenizer)
    finally:
        tokenizer.chat_template = template


def test_a_template_that_refuses() -> None:
    tokenizer = byte_level()

    async def body(server: Server) -> None:
        error = check(await server.chat(), 400, "invalid_parameter", "messages")
        assert "roles must alternate" in error["message"]

    template = tokenizer.chat_template
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    try:
        run(body, tokenizer=tokenizer)
    finally:
        tokenizer.chat_template = template


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code", "param"),
    [
        (RequestError("too long", "context_length_exceeded", "prompt"), 400,
         "context_length_exceeded", "prompt"),
        (QueueFullError("full"), 429, "queue_full", None),
        (ZeroDivisionError("/secret/path"), 500, "internal_error", None),
    ],
)  # fmt: skip
def test_what_a_verifier_refuses_has_its_own_status_even_in_a_stream(
    stream: bool, error: Exception, status: int, code: str, param: str | None
) -> None:
    """AP-1: the first result is looked at before the status is sent."""

    async def body(server: Server) -> None:
        response = await server.complete(stream=stream)
        found = check(response, status, code, param)
        assert "secret" not in found["message"]
        assert ("retry-after" in response.headers) == (status == 429)

    run(body, verifier=FakeVerifier(fates=[Fate(streamed=0, error=error)]))


def test_a_failure_in_the_middle_of_a_stream_is_told_in_it() -> None:
    async def body(server: Server) -> None:
        response = await server.complete(stream=True)
        assert response.status_code == 200
        blocks = response.text.strip().split("\n\n")
        assert blocks[-1] == "data: [DONE]"
        error = json.loads(blocks[-2].removeprefix("data: "))["error"]
        assert error["code"] == "internal_error"

    run(body, verifier=FakeVerifier(fates=[Fate(streamed=4, error=ZeroDivisionError())]))


def test_request_ids() -> None:
    async def body(server: Server) -> None:
        response = await server.complete(max_tokens=1)
        assert response.headers["x-request-id"]
        response = await server.post("/nowhere", {}, headers={"X-Request-Id": "mine-1"})
        assert response.headers["x-request-id"] == "mine-1"
        headers = {"X-Request-Id": "bad id\x7f"}
        response = await server.post(COMPLETIONS, {"prompt": "x"}, headers=headers)
        assert response.headers["x-request-id"] != headers["X-Request-Id"]
        for _ in range(2):
            headers = {"X-Request-Id": "mine-2"}
            await server.post(COMPLETIONS, {"prompt": "x"}, headers=headers)
        ids = [request.request_id for request in server.verifier.requests[-2:]]
        assert all(one.startswith("mine-2-") for one in ids)
        assert ids[0] != ids[1]

    run(body)


def test_features() -> None:
    async def body(server: Server) -> None:
        system = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
        await server.chat(messages=[system, *HELLO], user="me", temperature=0.5)
        features = server.verifier.requests[0].features
        assert features.route == "chat"
        assert len(features.system_prompt_hash) == 12
        assert "me" not in features.tenant
        assert features.tenant
        assert features.temperature == 0.5
        assert features.num_prompt_tokens == len(server.verifier.requests[0].prompt_token_ids)
        await server.complete(prompt="for (i = 0; i < n; ++i) { f(i); }")
        features = server.verifier.requests[1].features
        assert features.route == "completions"
        assert features.code_likeness > 0.4
        assert features.tenant == ""

    run(body)
