"""Sequences are followed by sample, off the hot path, and their counts come back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import pytest

from drafters.api import ClosedSession, DraftBatchReply, NoiseKey
from drafters.checking import malformed_counts
from drafters.client import DrafterClient, DraftWanted
from drafters.config import DrafterConfig
from drafters.errands import MAX_FOLLOWED, Errand, Errands
from drafters.following import SEND_EVERY, Following, ShadowPool
from drafters.members import MemberKey
from drafters.methods.prompt_lookup import PromptLookup
from drafters.shadow import FollowedTokens, ShadowCell, add_counts
from tests.unit.drafters.test_replay import slow_counts
from tests.unit.drafters.workers import PostTransport, Worker, until

NOISE = NoiseKey(0, 0, 0.0)
KEY = ("pld", "r1", "start 1")


def text(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [token for _ in range(30) for token in rng.choice([[1, 2, 3, 4, 5], [1, 2, 7, 8, 9]])]


Placement = Literal["worker", "in_process"]
MakeClient = Callable[[Placement, float], DrafterClient]


@pytest.fixture
def make() -> Iterator[MakeClient]:
    made: list[DrafterClient] = []

    def make_one(placement: Placement, share: float) -> DrafterClient:
        config = DrafterConfig(placement=placement, shadow_share=share)
        client = DrafterClient({"pld": config}, transports={"worker": PostTransport()})
        made.append(client)
        return client

    yield make_one
    for client in made:
        client.stop()


def serve(client: DrafterClient, session_id: str, tokens: list[int], prompt_length: int) -> None:
    """A sequence that emits its tokens in rounds of one to three, and never asks for a draft."""
    rng = random.Random(1)
    length = prompt_length + 1
    while length < len(tokens):
        if client.follows(session_id):
            client.follow(session_id, tokens[:length], "me")
        length = min(len(tokens), length + rng.randrange(1, 4))
    client.close(session_id, tokens)


@pytest.mark.parametrize("placement", ["worker", "in_process"])
def test_what_a_sequence_teaches_comes_back(make: MakeClient, placement: Placement) -> None:
    client = make(placement, 1.0)
    worker = Worker()
    client.set_members([worker.member()])
    tokens = text(1)
    serve(client, "s", tokens, 20)
    total: dict[ShadowCell, tuple[int, int]] = {}
    expected = slow_counts(tokens[:21], tokens[21:])

    def has_come() -> bool:
        client.draft([DraftWanted("bell", "pld", 1, [1, 1], 1, NOISE)])
        for (name, version), counts in client.take_shadow_counts().items():
            assert (name, version) == ("pld", PromptLookup().version)
            add_counts(total, counts)
        return total == expected

    until(has_come)
    client.close("bell")
    until(lambda: client.num_open == 0)
    assert worker.server.load().num_followed == 0


def test_the_sample_is_of_the_size_that_was_asked_for(make: MakeClient) -> None:
    client = make("worker", 0.3)
    sampled = [name for name in (f"s{index}" for index in range(2000)) if client.follows(name)]
    assert 500 < len(sampled) < 700
    assert sampled == [name for name in sampled if make("worker", 0.3).follows(name)]
    assert not make("worker", 0.0).follows("s1")


class Sent(list[FollowedTokens]):
    def __call__(self, key: object, followed: FollowedTokens) -> None:
        self.append(followed)


def test_tokens_go_in_large_pieces_without_a_gap() -> None:
    sent = Sent()
    following = Following({"pld": 1.0, "other": 1.0, "off": 0.0}, keys_of, sent)
    tokens = text(2)
    for length in range(21, len(tokens), 2):
        following.feed("s", tokens[:length], "me")
    following.close("s", tokens)
    ours = sent[::2]
    assert [one.position for one in ours] == [
        0,
        *(sum_before(ours, i) for i in range(1, len(ours))),
    ]
    assert [token for one in ours for token in one.token_ids] == tokens
    assert {len(one.token_ids) for one in ours[1:-1]} == {SEND_EVERY}
    assert [one.is_last for one in ours] == [False] * (len(ours) - 1) + [True]
    assert (ours[0].tenant, len(ours[0].token_ids)) == ("me", 21)
    following.close("s", tokens)
    assert len(sent) == 2 * len(ours)


def keys_of(name: str) -> list[tuple[str, str, str]]:
    return [(name, replica, "1") for replica in "abc"]


def sum_before(sent: list[FollowedTokens], index: int) -> int:
    return sum(len(one.token_ids) for one in sent[:index])


def test_a_drafter_without_workers_follows_from_when_it_has_some() -> None:
    workers: Mapping[str, list[tuple[str, str, str]]] = {"pld": []}
    sent = Sent()
    following = Following({"pld": 1.0}, lambda name: workers[name], sent)
    following.feed("s", [1, 2, 3], "")
    assert sent == []
    workers["pld"].append(KEY)
    following.feed("s", [1, 2, 3, 4], "")
    assert sent == [FollowedTokens("s", 0, (1, 2, 3, 4))]


def test_counts_are_pooled_by_drafter_and_version_until_they_are_taken() -> None:
    pool = ShadowPool()
    first, second = ShadowCell(4, 1, 0), ShadowCell(4, 2, 0)
    pool.add("pld", "1", {first: (3, 1)})
    pool.add("pld", "1", {first: (2, 2), second: (1, 0)})
    pool.add("pld", "2", {first: (1, 1)})
    pool.add("other", "1", {})
    assert pool.take() == {
        ("pld", "1"): {first: (5, 3), second: (1, 0)},
        ("pld", "2"): {first: (1, 1)},
    }
    assert pool.take() == {}


def test_all_of_a_sequence_goes_to_one_worker_and_sequences_spread() -> None:
    sent: dict[str, list[MemberKey]] = {}
    following = Following(
        {"pld": 1.0},
        keys_of,
        lambda key, followed: sent.setdefault(followed.session_id, []).append(key),
    )
    for name in [f"s{index}" for index in range(20)]:
        following.feed(name, [1] * 5, "")
        following.feed(name, [1] * 99, "")
        following.close(name, [1] * 100)
    assert {(len(keys), len(set(keys))) for keys in sent.values()} == {(3, 1)}
    assert {keys[0] for keys in sent.values()} == set(keys_of("pld"))


def test_an_end_does_not_overtake_the_tokens_before_it() -> None:
    errands = Errands()
    errands.add_closed(KEY, [ClosedSession("a")])
    errands.add_followed(KEY, FollowedTokens("a", 0, (1, 2)))
    assert errands.take_closed(KEY) == ()
    errand = errands.take(KEY)
    assert errand == Errand([ClosedSession("a")], [FollowedTokens("a", 0, (1, 2))])
    errands.add_closed(KEY, [ClosedSession("b")])
    errands.put_back(KEY, errand)
    assert errands.take(KEY).closed == [ClosedSession("a"), ClosedSession("b")]
    assert len(errands) == 0


def test_what_waits_for_a_paused_worker_is_bounded() -> None:
    errands = Errands()
    for index in range(2 * MAX_FOLLOWED):
        errands.add_followed(KEY, FollowedTokens("a", index, (1,)))
    assert len(errands.take(KEY).followed) == MAX_FOLLOWED


@pytest.mark.parametrize(
    "counts",
    [
        None,
        {(0, 1, 0): 3},
        {(0, 1): (1, 1)},
        {(16, 1, 0): (1, 1)},
        {(0, 0, 0): (1, 1)},
        {(0, 1, 4): (1, 1)},
        {(0, 1, 0): (1, 2)},
        {(0, 1, 0): (1, -1)},
        {(0, 1, 0): (True, 0)},
    ],
)
def test_counts_that_cannot_be_are_left_out(make: MakeClient, counts: object) -> None:
    assert malformed_counts(counts) is not None
    client, worker = make("worker", 1.0), Worker()
    client.set_members([worker.member()])
    worker.forge = lambda reply: DraftBatchReply(
        reply.incarnation,
        reply.drafts,
        0.0,
        shadow_counts=counts,  # type: ignore[arg-type]  # wrong on purpose
    )
    assert client.draft([DraftWanted("s", "pld", 1, [1, 1], 1, NOISE)])[0].status == "ok"
    assert client.take_shadow_counts() == {}
