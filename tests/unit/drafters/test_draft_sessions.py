"""Sessions of a draft server: kept in step with the caller, never guessed at, bounded."""

from __future__ import annotations

from drafters.api import (
    Draft,
    DraftBatch,
    DraftRequest,
    NeedContext,
    NoiseKey,
    SessionContext,
)
from drafters.methods.prompt_lookup import PromptLookup
from drafters.sessions import DraftServer, SessionTable

TEXT = (1, 2, 3, 4, 1, 2)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def server(clock: Clock, max_sessions: int = 8, idle_s: float = 60.0) -> DraftServer:
    return DraftServer(PromptLookup(), "one", clock, SessionTable(max_sessions, idle_s))


def opening(session_id: str, token_ids: tuple[int, ...] = TEXT) -> DraftRequest:
    return DraftRequest(session_id, 0, (), 2, SessionContext(token_ids, 1, NoiseKey(0, 0, 0.0)))


def answer(
    of: DraftServer, *requests: DraftRequest, closed: tuple[str, ...] = ()
) -> list[Draft | NeedContext]:
    return list(of.answer(DraftBatch(requests, closed)).drafts)


def tokens(draft: Draft | NeedContext) -> tuple[int, ...]:
    assert isinstance(draft, Draft)
    return draft.token_ids


def test_opens_and_extends() -> None:
    drafts = server(Clock())
    assert tokens(answer(drafts, opening("a"))[0]) == (3, 4)
    assert tokens(answer(drafts, DraftRequest("a", len(TEXT), (3,), 2))[0]) == (4, 1)


def test_unknown_session_or_position_needs_the_context() -> None:
    """AD-9: a gap is refused, and so is what the drafter already has."""
    drafts = server(Clock())
    assert answer(drafts, DraftRequest("a", 6, (3,), 2)) == [NeedContext(0)]
    answer(drafts, opening("a"))
    for position in (len(TEXT) - 1, len(TEXT) + 1):
        assert answer(drafts, DraftRequest("a", position, (3,), 2)) == [NeedContext(len(TEXT))]
    assert tokens(answer(drafts, DraftRequest("a", len(TEXT), (), 2))[0]) == (3, 4)


def test_answers_keep_the_order_of_the_requests() -> None:
    drafts = server(Clock())
    first, second, third = answer(
        drafts, opening("a"), DraftRequest("b", 3, (), 2), opening("c", (7, 8, 9, 7))
    )
    assert tokens(first) == (3, 4)
    assert second == NeedContext(0)
    assert tokens(third) == (8, 9)


def test_closed_sessions_are_gone() -> None:
    drafts = server(Clock())
    reply = drafts.answer(DraftBatch((opening("a"), opening("b"))))
    assert reply.num_sessions == 2
    assert drafts.answer(DraftBatch((), ("a", "b", "nobody"))).num_sessions == 0
    assert answer(drafts, DraftRequest("a", len(TEXT), (), 2)) == [NeedContext(0)]


def test_the_longest_unused_session_goes_first() -> None:
    clock = Clock()
    drafts = server(clock, max_sessions=2)
    answer(drafts, opening("a"), opening("b"))
    clock.now = 1.0
    answer(drafts, DraftRequest("a", len(TEXT), (), 2))
    answer(drafts, opening("c"))
    assert answer(drafts, DraftRequest("b", len(TEXT), (), 2)) == [NeedContext(0)]
    assert tokens(answer(drafts, DraftRequest("a", len(TEXT), (), 2))[0]) == (3, 4)


def test_a_batch_larger_than_the_bound_is_answered() -> None:
    drafts = server(Clock(), max_sessions=1)
    reply = drafts.answer(DraftBatch((opening("a"), opening("b"))))
    assert [tokens(draft) for draft in reply.drafts] == [(3, 4), (3, 4)]
    assert reply.num_sessions == 1


def test_idle_sessions_are_swept() -> None:
    clock = Clock()
    drafts = server(clock, idle_s=10.0)
    answer(drafts, opening("a"))
    clock.now = 10.0
    drafts.sweep()
    assert drafts.load().num_sessions == 1
    clock.now = 10.1
    drafts.sweep()
    assert drafts.load().num_sessions == 0
    assert drafts.drafter.position("a") == 0


def test_time_is_measured_and_shared_out() -> None:
    clock = Clock()

    class Slow(PromptLookup):
        def open(self, session_id: str, context: SessionContext) -> None:
            clock.now += 0.004
            super().open(session_id, context)

    drafts = DraftServer(Slow(), "one", clock)
    reply = drafts.answer(DraftBatch((opening("a"), opening("b"), DraftRequest("c", 1, (), 1))))
    assert reply.draft_ms == 8.0
    costs = [draft.cost_ms for draft in reply.drafts if isinstance(draft, Draft)]
    assert costs == [4.0, 4.0]
    load = drafts.load()
    assert (load.num_calls, load.num_drafts, load.num_draft_tokens) == (1, 2, 4)
    assert load.busy_ms == 8.0
