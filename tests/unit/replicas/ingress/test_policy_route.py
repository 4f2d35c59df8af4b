"""``GET /policy``: what was learnt, seen by one tenant."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from replicas.config import IngressConfig
from replicas.ingress.learnt import visible_to
from tests.unit.replicas.ingress.fakes import FakePolicy, serving

KEY = "a key"
TENANT = hashlib.sha256(KEY.encode()).hexdigest()[:12]
LEARNT = {
    "target_model": "m",
    "contexts": {"global": {"none": {"pulls": 3}}, "r=chat|c=0": {}, "n=other|r=chat|c=0": {}},
    "cells": {f"n={TENANT}|r=chat|c=0": {}, "shadow": {}, "n=|r=chat|c=0": {}},
}


def get(policy: FakePolicy, config: IngressConfig | None = None, key: str = "") -> Any:
    async def test() -> Any:
        async with serving(config=config, policy=policy) as server:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return await server.client.get("/policy", headers=headers)

    return asyncio.run(test())


def test_without_keys_all_is_shown() -> None:
    answer = get(FakePolicy(LEARNT))
    assert (answer.status_code, answer.json()) == (200, LEARNT)


def test_a_tenant_sees_its_own_contexts_and_those_that_all_share() -> None:
    config = IngressConfig(api_keys=(KEY, "another"))
    assert get(FakePolicy(LEARNT), config).status_code == 401
    seen = get(FakePolicy(LEARNT), config, KEY).json()
    assert seen == {
        "target_model": "m",
        "contexts": {"global": {"none": {"pulls": 3}}, "r=chat|c=0": {}},
        "cells": {f"n={TENANT}|r=chat|c=0": {}, "shadow": {}, "n=|r=chat|c=0": {}},
    }
    assert seen == visible_to(TENANT, LEARNT)


def test_a_policy_that_is_away() -> None:
    answer = get(FakePolicy(ConnectionError("gone")))
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "policy_away"
