"""Dashboard and alerts ask only for series that there are; a live scrape has all of those."""

from __future__ import annotations

from replicas.metrics.catalogue import sample_names
from tests.k8s.series import series_used


def test_dashboard_and_alerts_use_only_series_of_the_catalogue() -> None:
    used = series_used()
    assert len(used) > 20
    assert used - sample_names() == set()
