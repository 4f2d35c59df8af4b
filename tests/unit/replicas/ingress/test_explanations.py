"""``GET /v1/requests/{id}/explain``: who is told what of a recent request."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from policy_service.api import NONE, Decision
from policy_service.config import DecisionLogConfig
from replicas.config import IngressConfig
from replicas.decision_recorder import DecisionRecorder
from tests.learner_games import outcome_of
from tests.logged_games import ARMS, HEADER, record_of
from tests.unit.replicas.ingress.fakes import FakeBroadcast, FakeVerifier, Server, serving


@dataclass
class Recording(FakeVerifier):
    """Verifiers that hold rounds as real ones do."""

    recorders: list[DecisionRecorder] = field(default_factory=list)

    def broadcast(self, method_name: str, *args: Any) -> FakeBroadcast:
        if method_name != "explain":
            return super().broadcast(method_name, *args)
        return FakeBroadcast([recorder.explain(*args) for recorder in self.recorders])


def recorder(replica: str, *rounds: tuple[str, int], tenant: str = "") -> DecisionRecorder:
    """Return a Verifier's, with rounds of (sequence, choice) of the request ``mine``."""
    made = DecisionRecorder(DecisionLogConfig(recent_rounds=50), replace(HEADER, replica=replica))
    decision = Decision(NONE, "ucbspec", "first pull", 1.0, 3, {"none": float("inf")})
    for index, (sequence, choice) in enumerate(rounds):
        record = record_of("mine", index, ARMS, decision, outcome_of(NONE, 0))
        features = replace(record.features, tenant=tenant)
        made.record([replace(record, sequence=sequence, choice=choice, features=features)])
    return made


def run(body: Callable[[Server], Awaitable[None]], **options: Any) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20), serving(**options) as server:
            await body(server)

    asyncio.run(limited())


def test_all_rounds_of_a_request_are_told_in_order() -> None:
    async def body(server: Server) -> None:
        response = await server.client.get("/v1/requests/mine/explain")
        assert response.status_code == 200
        answer = response.json()
        assert (answer["id"], answer["object"]) == ("mine", "request.explanation")
        found = [
            (one["index"], one["sequence"], one["verifier"], len(one["rounds"]))
            for one in answer["choices"]
        ]
        assert found == [(0, "ab", "v1", 2), (0, "ab.2", "v2", 1), (1, "ac", "v1", 1)]
        one = answer["choices"][0]["rounds"][0]
        assert (one["arm"], one["learner"], one["snapshot_version"]) == ("none", "ucbspec", 3)
        assert one["estimates"] == {}  # JSON has no infinity

    first = recorder("v1", ("ab", 0), ("ac", 1), ("ab", 0))
    run(body, verifier=Recording(recorders=[first, recorder("v2", ("ab.2", 0))]))


def test_of_what_is_not_held_it_says_how_to_have_it() -> None:
    async def body(server: Server) -> None:
        response = await server.client.get(f"/v1/requests/{'x' * 3000}/explain")
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (404, "request_not_found")
        assert '"explain": true' in error["message"]
        assert "last 50 rounds" in error["message"]
        assert len(error["message"]) < 800

    run(body, verifier=Recording(recorders=[recorder("v1", ("ab", 0))]))


def test_without_verifiers_it_can_be_asked_again_later() -> None:
    async def body(server: Server) -> None:
        response = await server.client.get("/v1/requests/mine/explain")
        assert response.status_code == 503

    run(body, verifier=Recording())


def test_a_key_tells_of_its_own_requests_only() -> None:
    async def body(server: Server) -> None:
        statuses = [
            (await server.client.get("/v1/requests/mine/explain", headers=headers)).status_code
            for headers in (
                {},
                {"Authorization": "Bearer theirs"},
                {"Authorization": "Bearer ours"},
            )
        ]
        assert statuses == [401, 404, 200]

    tenant = hashlib.sha256(b"ours").hexdigest()[:12]
    run(
        body,
        verifier=Recording(recorders=[recorder("v1", ("ab", 0), tenant=tenant)]),
        config=IngressConfig(api_keys=("ours", "theirs")),
    )
