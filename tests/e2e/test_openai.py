"""What an application developer does with an OpenAI client, against a running system."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from cluster.workloads import read_prompts
from tests.e2e.client import MODEL, chat, chat_all, openai_client, stream_chat
from tests.system import System

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.model]

QUESTION = "What is the capital of France?"


def test_a_chat_is_answered(system: System) -> None:
    reply = chat(openai_client(system.base_url), QUESTION, temperature=0, max_tokens=40)
    assert "Paris" in reply.text
    assert reply.finish_reason == "stop"
    assert reply.usage["completion_tokens"] < 40


def test_a_recent_request_is_explained_as_the_response_explains_it(system: System) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 24,
        "speculation": {"explain": True},
    }
    response = httpx.post(f"{system.base_url}/v1/chat/completions", json=body, timeout=300)
    request_id = response.headers["x-request-id"]
    told = httpx.get(f"{system.base_url}/v1/requests/{request_id}/explain", timeout=60).json()
    [choice] = told["choices"]
    assert choice["rounds"] == response.json()["banditserve"]["rounds"]
    assert choice["verifier"] == response.json()["banditserve"]["verifier"]
    assert choice["first_round"] == 0
    assert httpx.get(f"{system.base_url}/v1/requests/none/explain", timeout=60).status_code == 404


def test_a_stream_gives_the_same_text_and_usage(system: System) -> None:
    client = openai_client(system.base_url)
    whole = chat(client, QUESTION, temperature=0, max_tokens=40)
    streamed = stream_chat(client, QUESTION, temperature=0, max_tokens=40)
    assert (streamed.text, streamed.finish_reason) == (whole.text, whole.finish_reason)
    assert streamed.usage == whole.usage


def test_eight_streams_at_once(system: System) -> None:
    client = openai_client(system.base_url)
    prompts = read_prompts()[:8]
    replies = chat_all(client, prompts, stream=True, temperature=0, max_tokens=24)
    assert all(reply.text and reply.finish_reason in {"stop", "length"} for reply in replies)
    assert all(reply.usage["completion_tokens"] <= 24 for reply in replies)


def test_completions_of_several_prompts(system: System) -> None:
    client = openai_client(system.base_url)
    completion = client.completions.create(
        model=MODEL, prompt=["One, two, three,", "A, B, C,"], max_tokens=6, temperature=0, n=1
    )
    assert [choice.index for choice in completion.choices] == [0, 1]
    assert completion.choices[0].text.startswith(" four")


def test_choices_differ_by_their_noise_and_a_seed_repeats_them(system: System) -> None:
    client = openai_client(system.base_url)

    def texts(seed: int) -> list[str]:
        completion = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Name an animal."}],
            n=3,
            seed=seed,
            temperature=1.5,
            max_tokens=12,
        )
        return [choice.message.content or "" for choice in completion.choices]

    first = texts(3)
    assert len(set(first)) > 1
    assert texts(3) == first
    assert texts(4) != first


def test_a_stop_string_across_tokens_ends_the_text_before_it(system: System) -> None:
    client = openai_client(system.base_url)
    whole = chat(client, QUESTION, temperature=0, max_tokens=40)
    stop = whole.text[4:12]
    assert len(stop) == 8
    for ask in (chat, stream_chat):
        reply = ask(client, QUESTION, temperature=0, max_tokens=40, stop=[stop])
        assert reply.text == whole.text[: whole.text.index(stop)]
        assert reply.finish_reason == "stop"
        assert reply.usage["completion_tokens"] < whole.usage["completion_tokens"]


def test_logprobs_do_not_depend_on_speculation(system: System) -> None:
    client = openai_client(system.base_url)

    def logprobs(speculation: dict[str, Any]) -> list[tuple[str, float]]:
        completion = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Repeat: a b c a b c a b c a b c"}],
            temperature=0,
            max_tokens=24,
            logprobs=True,
            top_logprobs=2,
            extra_body={"speculation": speculation},
        )
        content = completion.choices[0].logprobs
        assert content is not None
        assert content.content is not None
        return [(one.token, one.logprob) for one in content.content]

    plain = logprobs({"mode": "off"})
    drafted = logprobs({"drafter": "prompt_lookup", "gamma": 8})
    assert [token for token, _ in drafted] == [token for token, _ in plain]
    assert [value for _, value in drafted] == pytest.approx([value for _, value in plain], abs=1e-3)


def test_every_round_is_explained_on_request(system: System) -> None:
    client = openai_client(system.base_url)
    reply = chat(
        client,
        "Repeat this five times: the quick brown fox",
        temperature=0,
        max_tokens=48,
        extra_body={"speculation": {"explain": True}},
    )
    rounds = reply.extra["rounds"]
    assert {one["learner"] for one in rounds} == {"goodput"}
    arms = {"none", *(f"{name}:{n}" for name in ("prompt_lookup", "suffix") for n in (2, 4, 8))}
    assert rounds
    assert {one["arm"] for one in rounds} <= arms
    assert sum(one["num_emitted"] for one in rounds) == reply.usage["completion_tokens"] - 1
    assert all(0 < one["propensity"] <= 1 and one["reason"] for one in rounds)


def test_models_and_health(system: System) -> None:
    models = openai_client(system.base_url).models.list()
    assert [model.id for model in models.data] == [MODEL]
    assert httpx.get(f"{system.base_url}/health").status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"model": "gpt-9"}, 404, "model_not_found", "model"),
        ({"temprature": 1}, 400, "unknown_parameter", "temprature"),
        ({"temperature": -1}, 400, "invalid_parameter", "temperature"),
        ({"max_tokens": 9000}, 400, "context_length_exceeded", "max_tokens"),
        ({"speculation": {"drafter": "nobody"}}, 400, "invalid_parameter", "speculation"),
        ({"speculation": {"mode": "off", "gamma": 4}}, 400, "invalid_parameter", "speculation"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(
    system: System, body: dict[str, Any], status: int, code: str, param: str
) -> None:
    request = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **body}
    answer = httpx.post(f"{system.base_url}/v1/chat/completions", json=request, timeout=60)
    error = answer.json()["error"]
    assert answer.status_code == status, error
    assert error["code"] == code
    assert (error["param"] or "").startswith(param)
    assert set(error) == {"message", "type", "param", "code"}


def test_a_client_that_goes_away_frees_its_place(system: System) -> None:
    client = openai_client(system.base_url)
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Count from one to a thousand."}],
        stream=True,
        temperature=0,
        max_tokens=2000,
        extra_body={"ignore_eos": True},
    )
    next(iter(stream))
    stream.close()

    def running() -> int:
        return sum(one["report"]["num_running"] for one in system.status()["verifiers"])

    system.wait_until(lambda: running() == 0, "the request to be cancelled")


def test_an_unknown_model_is_an_openai_not_found_error(system: System) -> None:
    with pytest.raises(openai.NotFoundError, match="it has smollm2"):
        openai_client(system.base_url).chat.completions.create(
            model="gpt-9", messages=[{"role": "user", "content": "Hi"}]
        )
