"""Unit tests run alone: whoever starts Ray in one of them has put it in the wrong folder."""

from __future__ import annotations

from typing import Any

import pytest
import ray


@pytest.fixture(autouse=True)
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a unit test started Ray")

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr(ray._private.worker, "init", refuse)
