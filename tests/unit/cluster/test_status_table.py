from __future__ import annotations

from typing import Any

from cluster.status_table import Row, is_all_up, rows

NOW = 1000.0


def entry(name: str, report: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    base = {"name": name, "is_away": False, "away_since": None, "num_misses": 0}
    return {**base, "report": report, **more}


def status_of(**changes: Any) -> dict[str, Any]:
    drafter = {"name": "pld", "up": True, "away_since": None, "done_without": 0, "by_reason": {}}
    verifier = {"replica": "v1", "drafters": [drafter], "policy": {"up": True, "missed": 0}}
    status: dict[str, Any] = {
        "model": "smollm2",
        "verifiers": [entry("v1", verifier)],
        "drafters": {"pld": [entry("h1", {"up": True})]},
        "policy": entry("policy", {"store_up": True, "store_failures": 0}),
    }
    return {**status, **changes}


def by_part(status: dict[str, Any]) -> dict[str, Row]:
    return {row.part: row for row in rows(status, NOW)}


def test_a_whole_system_is_up() -> None:
    found = rows(status_of(), NOW)
    assert [row.part for row in found] == ["verifier", "drafter pld", "policy", "redis"]
    assert is_all_up(found)


def test_a_lost_verifier_says_since_when() -> None:
    lost = entry("v2", {}, is_away=True, away_since=NOW - 7, num_misses=3)
    row = rows(status_of(verifiers=[lost]), NOW)[0]
    assert row == Row("verifier", "v2", False, 7.0, 3)


def test_what_verifiers_did_without_a_drafter_adds_up() -> None:
    views = [
        {"name": "pld", "away_since": NOW - 5, "done_without": 4, "by_reason": {"away": 4}},
        {"name": "pld", "away_since": NOW - 3, "done_without": 2, "by_reason": {"late": 2}},
    ]
    verifiers = [entry(f"v{n}", {"drafters": [view]}) for n, view in enumerate(views)]
    row = by_part(status_of(verifiers=verifiers))["drafter pld"]
    assert row == Row("drafter pld", "h1", False, 5.0, 6, "away 4, late 2")


def test_a_drafter_that_may_have_no_worker_is_not_missed() -> None:
    view = {"name": "pld", "away_since": NOW - 5, "asleep": True, "done_without": 2}
    status = status_of(
        verifiers=[entry("v1", {"drafters": [view]})],
        drafters={"pld": [entry("h1", None, is_away=True, away_since=NOW - 5)]},
    )
    assert by_part(status)["drafter pld"] == Row(
        "drafter pld", "", True, None, 2, "no worker is wanted"
    )


def test_what_drafts_gave_and_took_is_averaged_over_verifiers() -> None:
    def view(drafts: int, accepted: list[int], calls: int, draft_ms: float) -> dict[str, Any]:
        cost = {
            "calls": calls,
            "accepted_by_depth": accepted,
            "draft_ms": {"sum_ms": draft_ms},
            "round_trip_ms": {"sum_ms": 10 * draft_ms},
        }
        return {"name": "pld", "drafts": drafts, "by_reason": {"late": 1}, "cost": cost}

    views = [view(3, [2, 1], 2, 1.0), view(1, [2, 2], 2, 3.0), view(0, [], 0, 0.0)]
    verifiers = [entry(f"v{n}", {"drafters": [one]}) for n, one in enumerate(views)]
    row = by_part(status_of(verifiers=verifiers))["drafter pld"]
    assert row.detail == "late 3; 1.75 accepted a draft, 1 ms of 10 ms a call drafting"


def test_a_host_without_its_worker_is_away() -> None:
    status = status_of(drafters={"pld": [entry("h1", {"up": False})]})
    assert by_part(status)["drafter pld"].is_up is False


def test_a_drafter_in_the_verifiers_process_needs_no_host() -> None:
    assert by_part(status_of(drafters={}))["drafter pld"].is_up is True


def test_redis_away_is_told_by_the_policy() -> None:
    report = {
        "store_up": False,
        "store_away_since": NOW - 2,
        "store_failures": 9,
        "store_reason": "refused",
    }
    found = by_part(status_of(policy=entry("policy", report)))
    assert found["policy"].is_up is True
    assert found["redis"] == Row("redis", "", False, 2.0, 9, "refused")


def test_without_the_policy_nobody_knows_of_redis() -> None:
    verifier = {"policy": {"up": False, "missed": 5}}
    policy = entry("policy", {"store_up": True}, is_away=True, away_since=NOW - 4)
    found = by_part(status_of(policy=policy, verifiers=[entry("v", verifier)]))
    assert found["policy"] == Row("policy", "", False, 4.0, 5)
    assert found["redis"].is_up is None
    assert not is_all_up(list(found.values()))


def test_an_answer_of_another_version_is_read_as_far_as_it_goes() -> None:
    assert [row.part for row in rows({"verifiers": 3, "drafters": []}, NOW)] == ["policy", "redis"]
