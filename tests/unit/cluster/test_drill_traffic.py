"""What a drill says of its users' requests, from records made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.drills.traffic import Traffic, questions
from cluster.loadtest.records import RequestRecord
from cluster.nodes.application import worker_nodes
from cluster.nodes.fake_provider import NodeType, autoscaling_config


def record(index: int, text: str, error: str = "", attempts: int = 1) -> RequestRecord:
    return RequestRecord(
        index,
        "drill",
        "drill",
        "p",
        planned_s=0.0,
        tokens=[(1.0, 1), (1.5, 2), (4.0, 3)],
        ended_s=4.1,
        text=text,
        error=error,
        attempts=attempts,
    )


def made(*records: RequestRecord) -> Traffic:
    traffic = Traffic("http://x", questions(2, 8), expected={0: "zero", 1: "one"})
    traffic.records = list(records)
    return traffic


def test_a_whole_and_right_reply_is_no_problem() -> None:
    traffic = made(record(0, "zero"), record(1, "one", attempts=2))
    assert traffic.problems() == []
    assert traffic.figures() == {
        "requests sent": 2,
        "failed": 0,
        "different text": 0,
        "given to another Verifier": 1,
        "longest silence of a stream, s": 2.5,
    }


def test_a_failed_request_and_another_text_are_problems() -> None:
    traffic = made(record(0, "zer", error="HTTP 503"), record(1, "two"))
    failed, different = traffic.problems()
    assert "HTTP 503" in failed
    assert "'two', expected 'one'" in different
    assert (traffic.figures()["failed"], traffic.figures()["different text"]) == (1, 1)


def test_a_reply_under_way_is_not_judged_yet() -> None:
    traffic = made(record(0, "zero"), replace(record(1, "o"), ended_s=0.0))
    assert traffic.problems() == []
    assert traffic.figures()["different text"] == 0


def test_no_requests_are_a_problem() -> None:
    assert made().problems() == ["no requests were sent"]


def test_questions_differ_in_seed_and_half_are_sampled() -> None:
    asked = questions(6, 16)
    assert len({one.seed for one in asked}) == 6
    assert [one.settings.temperature for one in asked] == pytest.approx([0, 0.8, 0, 0.8, 0, 0.8])


def test_nodes_of_a_role_have_names_and_ports_of_their_own() -> None:
    nodes = worker_nodes(2, 1)
    assert [(one.name, one.role, one.labels["name"]) for one in nodes] == [
        ("v1", "verifier", "v1"),
        ("v2", "verifier", "v2"),
        ("d1", "drafter", "d1"),
    ]
    assert len({one.proxy_port for one in nodes}) == 3


def test_node_types_become_the_autoscalers_configuration() -> None:
    config = autoscaling_config([NodeType("big", 4, {"role": "v"}, 1, 3)], 30.0, "127.0.0.1:1")
    assert config["available_node_types"]["big"]["min_workers"] == 1
    assert config["available_node_types"]["big"]["labels"] == {"role": "v"}
    assert (config["max_workers"], config["idle_timeout_minutes"]) == (3, 0.5)
    assert config["head_node_type"] in config["available_node_types"]
