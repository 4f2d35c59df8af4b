"""Write what a load test found: ``report.json`` with everything, ``report.html`` to look at."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster import __version__
from cluster.loadtest.checks import Verdict
from cluster.loadtest.html import cell, page
from cluster.loadtest.records import LoadResult
from cluster.loadtest.scenario import Scenario
from cluster.loadtest.series import plots


@dataclass(frozen=True, slots=True)
class Report:
    """A load test that has ended.

    Attributes:
        scenario: What was run.
        about: Where and when.
        result: What was seen.
        summary: Figures of it.
        verdicts: Whether what must hold holds.
    """

    scenario: Scenario
    about: Mapping[str, Any]
    result: LoadResult
    summary: Mapping[str, Any]
    verdicts: Sequence[Verdict]

    @property
    def passed(self) -> bool:
        """Whether everything holds that must."""
        return all(verdict.passed for verdict in self.verdicts)


def about(url: str, model: str, seed: int) -> dict[str, Any]:
    """Return where and when a load test ran."""
    return {
        "banditserve": __version__,
        "model": model,
        "url": url,
        "seed": seed,
        "ended": time.strftime("%Y-%m-%d %H:%M:%S"),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
    }


def write(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write both files and return where they are.

    Raises:
        OSError: If the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = plots(report.scenario, report.result)
    data = {
        "scenario": report.scenario.model_dump(mode="json"),
        "about": report.about,
        "passed": report.passed,
        "checks": [asdict(verdict) for verdict in report.verdicts],
        "summary": report.summary,
        "plots": [asdict(plot) for plot in found],
        "samples": [asdict(sample) for sample in report.result.samples],
        "requests": [asdict(record) for record in report.result.records],
    }
    json_path, html_path = folder / "report.json", folder / "report.html"
    json_path.write_text(json.dumps(data, ensure_ascii=False, indent=1), encoding="utf-8")
    html = page(
        report.scenario,
        report.about,
        report.summary,
        report.verdicts,
        found,
        report.result.wall_s,
    )
    html_path.write_text(html, encoding="utf-8")
    return json_path, html_path


_LINES = (
    ("requests", ("requests",)),
    ("failed", ("failed",)),
    ("tokens/s", ("tokens_per_s",)),
    ("goodput, tokens/s", ("goodput_tokens_per_s",)),
    ("acceptance", ("acceptance_rate",)),
    ("tokens a round", ("tokens_per_round",)),
)
_QUANTILE_LINES = (
    ("time to first token, ms", "ttft_ms"),
    ("inter-token latency, ms", "itl_ms"),
    ("whole reply, ms", "e2e_ms"),
    ("sent late, ms", "sent_late_ms"),
)


def lines(report: Report) -> Iterator[str]:
    """Yield the report for a terminal: figures of the whole, and every check."""
    figures = report.summary["all"]
    for title, path in _LINES:
        yield f"{title + ':':<26}{cell(figures, path):>9}"
    yield f"{'':<26}{'p50':>9}{'p95':>9}{'p99':>9}"
    for title, key in _QUANTILE_LINES:
        values = "".join(f"{cell(figures, (key, name)):>9}" for name in ("p50", "p95", "p99"))
        yield f"{title + ':':<26}{values}"
    for why, count in figures["errors"].items():
        yield f"failed {count} times: {why}"
    for verdict in report.verdicts:
        yield f"{'holds' if verdict.passed else 'FAILS'}: {verdict.name}: {verdict.found}"
