"""Sessions of a draft server: kept in step with the caller, never guessed at, bounded."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drafters.api import (
    Busy,
    ClosedSession,
    Draft,
    DraftBatch,
    DraftRequest,
    NeedContext,
    NoiseKey,
    SessionContext,
)
from drafters.methods.prompt_lookup import PromptLookup
from drafters.methods.suffix import Suffix
from drafters.session_table import SessionTable
from drafters.sessions import DraftServer
from drafters.shadow import FollowedTokens

TEXT = (1, 2, 3, 4, 1, 2)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Noting(Suffix):
    """Notes the tokens that come after a session was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[int] = []

    def extend(self, session_id: str, token_ids: Sequence[int]) -> None:
        self.came.extend(token_ids)
        super().extend(session_id, token_ids)


def server(clock: Clock, max_sessions: int = 8, idle_s: float = 60.0) -> DraftServer:
    return DraftServer(PromptLookup(), "one", clock, SessionTable(max_sessions, idle_s))


def opening(session_id: str, token_ids: tuple[int, ...] = TEXT) -> DraftRequest:
    return DraftRequest(session_id, 0, (), 2, SessionContext(token_ids, 1, NoiseKey(0, 0, 0.0)))


def answer(of: DraftServer, *requests: DraftRequest) -> list[Draft | NeedContext | Busy]:
    return list(of.answer(DraftBatch(requests)).drafts)


def tidy(drafts: DraftServer) -> None:
    while drafts.tidy() is not None:
        pass


def tokens(draft: Draft | NeedContext | Busy) -> tuple[int, ...]:
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
    closed = tuple(ClosedSession(name) for name in ("a", "b", "nobody"))
    assert drafts.answer(DraftBatch((), closed)).num_sessions == 0
    assert answer(drafts, DraftRequest("a", len(TEXT), (), 2)) == [NeedContext(0)]


def test_sessions_are_closed_after_the_answer() -> None:
    """Closing may take long (a method may learn from the reply); nobody waits for it."""
    drafts = server(Clock())
    answer(drafts, opening("a"), opening("b"))
    drafts.answer(DraftBatch((opening("c"),), (ClosedSession("a"), ClosedSession("b"))))
    assert [drafts.drafter.position(name) for name in "ab"] == [6, 6]
    assert (drafts.load().num_sessions, drafts.load().num_closing) == (1, 2)
    assert drafts.tidy() == 0.0
    assert [drafts.drafter.position(name) for name in "ab"] == [0, 6]
    assert drafts.tidy() is None
    assert [drafts.drafter.position(name) for name in "abc"] == [0, 0, 6]
    assert drafts.load().num_closing == 0


def test_a_session_that_is_opened_again_is_not_closed_later() -> None:
    drafts = server(Clock())
    answer(drafts, opening("a"))
    drafts.answer(DraftBatch((), (ClosedSession("a"),)))
    answer(drafts, opening("a"))
    tidy(drafts)
    assert tokens(answer(drafts, DraftRequest("a", len(TEXT), (), 2))[0]) == (3, 4)


@pytest.mark.parametrize(
    ("closed", "shared"),
    [
        (ClosedSession("a", 6, (7, 8, 9)), True),
        (ClosedSession("a", 4, (1, 2, 7, 8, 9)), True),
        (ClosedSession("a"), False),
        (ClosedSession("a", 7, (8, 9, 7)), False),
        (ClosedSession("a", 2, (3, 4)), False),
    ],
)
def test_a_method_that_learns_from_replies_gets_their_ends(
    closed: ClosedSession, shared: bool
) -> None:
    drafter = Noting()
    drafts = DraftServer(drafter, "one", Clock())
    answer(drafts, opening("a"))
    drafts.answer(DraftBatch((), (closed,)))
    tidy(drafts)
    assert drafter.came == ([7, 8, 9] if shared else [])
    (draft,) = answer(drafts, opening("b", (5, 5, 7, 8)))
    assert tokens(draft) == ((9,) if shared else ())


def test_of_a_session_that_ends_twice_the_first_end_counts() -> None:
    drafter = Noting()
    drafts = DraftServer(drafter, "one", Clock())
    answer(drafts, opening("a"))
    for closed in (ClosedSession("a", 6, (7, 8, 9)), ClosedSession("a")):
        drafts.answer(DraftBatch((), (closed,)))
    tidy(drafts)
    assert drafter.came == [7, 8, 9]


def test_a_session_that_is_followed_is_closed_when_it_has_been_replayed() -> None:
    """Else a method that shares replies would find the very reply that is replayed."""
    drafts = DraftServer(Suffix(), "one", Clock())
    answer(drafts, opening("a"))
    reply = tuple(range(20, 30))
    drafts.answer(DraftBatch((), (), (FollowedTokens("a", 0, TEXT),)))
    drafts.answer(DraftBatch((), (ClosedSession("a", 6, reply),)))
    tidy(drafts)
    assert drafts.load().num_closing == 1
    drafts.answer(DraftBatch((), (), (FollowedTokens("a", 6, reply, is_last=True),)))
    tidy(drafts)
    load = drafts.load()
    assert (load.num_closing, load.num_followed, load.num_unfollowed) == (0, 0, 0)
    counts = drafts.answer(DraftBatch(())).shadow_counts
    assert sum(accepted for _, accepted in counts.values()) == 0
    assert drafts.answer(DraftBatch(())).shadow_counts == {}


def test_replays_leave_the_thread_time() -> None:
    clock = Clock()

    class Slow(PromptLookup):
        def extend(self, session_id: str, token_ids: Sequence[int]) -> None:
            clock.now += 0.01
            super().extend(session_id, token_ids)

    drafts = DraftServer(Slow(), "one", clock)
    followed = (FollowedTokens("a", 0, TEXT), FollowedTokens("a", 6, (3, 4, 1), is_last=True))
    drafts.answer(DraftBatch((), (), followed))
    pauses = []
    while (pause := drafts.tidy()) is not None:
        pauses.append(pause)
    assert pauses == pytest.approx([0.0, 0.0, 0.04, 0.04])


def test_drafts_are_judged_by_what_comes() -> None:
    drafts = server(Clock())
    answer(drafts, opening("a"), opening("b"), opening("c", (1, 2, 9, 8)))
    answer(
        drafts,
        DraftRequest("a", len(TEXT), (3,), 2),
        DraftRequest("b", len(TEXT), (4, 3), 2),
        DraftRequest("c", 4, (7,), 2),
    )
    load = drafts.load()
    assert (load.num_judged, load.num_useful) == (3, 1)
    # a session that is opened anew or closed says nothing of the draft it had
    answer(drafts, opening("a"))
    drafts.answer(DraftBatch((), (ClosedSession("b", len(TEXT), (4, 3, 1)),)))
    tidy(drafts)
    assert drafts.load().num_judged == 3


def test_waits_add_up() -> None:
    drafts = server(Clock())
    drafts.answer(DraftBatch((opening("a"),)), queue_ms=2.0)
    drafts.answer(DraftBatch((opening("b"),)), queue_ms=3.0)
    assert drafts.load().queue_ms == 5.0


def test_the_longest_unused_session_goes_first() -> None:
    clock = Clock()
    drafts = server(clock, max_sessions=2)
    answer(drafts, opening("a"), opening("b"))
    clock.now = 1.0
    answer(drafts, DraftRequest("a", len(TEXT), (), 2))
    clock.now = 21.0
    answer(drafts, opening("c"))
    assert answer(drafts, DraftRequest("b", len(TEXT), (), 2)) == [NeedContext(0)]
    assert tokens(answer(drafts, DraftRequest("a", len(TEXT), (), 2))[0]) == (3, 4)


def test_no_more_sessions_than_the_bound_are_taken_on() -> None:
    """A session in use is not thrown out for another one's sake: both would start anew for ever."""
    clock = Clock()
    drafts = server(clock, max_sessions=1)
    reply = drafts.answer(DraftBatch((opening("a"), opening("b"))))
    assert tokens(reply.drafts[0]) == (3, 4)
    assert reply.drafts[1] == Busy("sessions")
    assert reply.num_sessions == 1
    assert drafts.load().num_busy == 1
    assert tokens(answer(drafts, DraftRequest("a", len(TEXT), (), 2))[0]) == (3, 4)
    reply = drafts.answer(DraftBatch((opening("b"),), (ClosedSession("a"),)))
    assert tokens(reply.drafts[0]) == (3, 4)


def test_one_spare_session_makes_room_for_one() -> None:
    """A call that opens several takes no more than there is: the other one is in use."""
    clock = Clock()
    drafts = server(clock, max_sessions=2)
    answer(drafts, opening("spare"))
    clock.now = 15.0
    answer(drafts, opening("used"))
    clock.now = 25.0
    first, second = answer(drafts, opening("a"), opening("b"))
    assert tokens(first) == (3, 4)
    assert second == Busy("sessions")
    assert tokens(answer(drafts, DraftRequest("used", len(TEXT), (), 2))[0]) == (3, 4)


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
    tidy(drafts)
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
