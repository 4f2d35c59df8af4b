from __future__ import annotations

from drafters.api import DrafterInfo
from drafters.members import GONE_AFTER_POLLS, Member, MemberTable, Poll


def member(replica_id: str, incarnation: str = "1", handle: object = None) -> Member:
    return Member("pld", replica_id, DrafterInfo("pld", "v", 8, incarnation), handle)


def test_workers_come_and_go() -> None:
    table = MemberTable()
    assert not table.update("pld", Poll([]))
    assert table.update("pld", Poll([member("b"), member("a")]))
    assert [one.replica_id for one in table.members()] == ["a", "b"]
    assert not table.update("pld", Poll([member("a"), member("b")]))
    assert table.update("pld", Poll([member("b")]))
    assert [one.replica_id for one in table.members()] == ["b"]


def test_a_new_incarnation_is_a_change_and_an_old_one_keeps_its_handle() -> None:
    table = MemberTable()
    first, second = object(), object()
    table.update("pld", Poll([member("a", "1", first)]))
    assert not table.update("pld", Poll([member("a", "1", second)]))
    assert table.members()[0].handle is first
    assert table.update("pld", Poll([member("a", "2", second)]))
    assert table.members()[0].handle is second


def test_a_silent_host_keeps_its_worker_for_some_polls() -> None:
    table = MemberTable()
    table.update("pld", Poll([member("a"), member("b")]))
    for _ in range(GONE_AFTER_POLLS):
        assert not table.update("pld", Poll([member("a")], num_silent=1))
    assert table.update("pld", Poll([member("a")], num_silent=1))
    assert [one.replica_id for one in table.members()] == ["a"]


def test_a_host_that_answers_again_starts_over() -> None:
    table = MemberTable()
    table.update("pld", Poll([member("a")]))
    for _ in range(GONE_AFTER_POLLS):
        table.update("pld", Poll([], num_silent=1))
    table.update("pld", Poll([member("a")]))
    assert not table.update("pld", Poll([], num_silent=1))


def test_drafters_do_not_touch_each_other() -> None:
    table = MemberTable()
    table.update("pld", Poll([member("a")]))
    assert not table.update("rest", Poll([]))
    assert len(table.members()) == 1
    assert table.counts() == {"pld": 1, "rest": 0}
