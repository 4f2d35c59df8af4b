"""Keeps a Verifier's rounds: the latest in memory, and a share of requests in a decision log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policy_service.config import DecisionLogConfig
from policy_service.decision_log.recent_rounds import RecentRounds
from policy_service.decision_log.records import LogHeader, RoundRecord, is_sampled
from policy_service.decision_log.writer import DecisionLogWriter
from replicas.round_reports import explained_replies


class DecisionRecorder:
    """Takes in every round.

    ``record`` belongs to the engine's thread and never waits; the other methods may be called from
    any thread.

    Args:
        config: What is kept.
        header: Of the log's files.
    """

    def __init__(self, config: DecisionLogConfig, header: LogHeader) -> None:
        self._config, self._header = config, header
        self._recent = RecentRounds(config.recent_rounds)
        is_logged = config.folder is not None and config.share > 0
        self._writer = DecisionLogWriter(config, header) if is_logged else None

    def record(self, records: Sequence[RoundRecord]) -> None:
        """Keep the rounds of a step."""
        self._recent.add(records)
        if self._writer is not None:
            share = self._config.share
            sampled = [one for one in records if is_sampled(one.request_id, share)]
            if sampled:
                self._writer.write(sampled)

    def explain(self, request_id: str, tenant: str) -> dict[str, Any]:
        """Return what is held in memory of a request's rounds, as JSON values.

        Args:
            request_id: The HTTP request's.
            tenant: Whose request it must be; empty for anybody's.
        """
        records = self._recent.of(request_id)
        mine = [one for one in records if tenant in ("", one.features.tenant)]
        return {
            "replica": self._header.replica,
            "recent_rounds": self._config.recent_rounds,
            "replies": explained_replies(mine, self._header.replica),
        }

    def status(self) -> dict[str, Any]:
        """Return how much is held, and what became of the log."""
        log = None if self._writer is None else self._writer.status()
        return {"recent_rounds": len(self._recent), "log": log}

    def close(self, timeout_s: float) -> None:
        """Write what waits to be written, for at most so long."""
        if self._writer is not None:
            self._writer.close(timeout_s)
