"""The report as one HTML page that needs nothing else: tables and plots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from cluster.loadtest.checks import Verdict
from cluster.loadtest.scenario import Scenario
from cluster.loadtest.series import Plot
from cluster.loadtest.svg import draw, legend

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 84rem; }
body { padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
td.text { text-align: left; }
.good { color: #00714f; } .bad { color: #b02a00; font-weight: 600; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(34rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-weight: 600; }
svg { width: 100%; } svg text { font-size: 10px; fill: #555; } svg polyline { stroke-width: 1.5; }
.grid { stroke: #e4e4e4; }
line.mark { stroke: #bbb; stroke-dasharray: 3 3; } text.mark { fill: #888; }
.legend { margin: 0; font-size: 13px; } .legend span { margin-right: 1rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .3em; }
small { color: #555; font-weight: normal; }
"""

_COLUMNS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("requests", ("requests",)),
    ("failed", ("failed",)),
    ("resubmitted", ("resubmitted",)),
    ("tokens/s", ("tokens_per_s",)),
    ("goodput", ("goodput_tokens_per_s",)),
    ("TTFT p50 ms", ("ttft_ms", "p50")),
    ("p95", ("ttft_ms", "p95")),
    ("p99", ("ttft_ms", "p99")),
    ("ITL p50 ms", ("itl_ms", "p50")),
    ("p95", ("itl_ms", "p95")),
    ("p99", ("itl_ms", "p99")),
    ("acceptance", ("acceptance_rate",)),
    ("tokens/round", ("tokens_per_round",)),
)


def page(
    scenario: Scenario,
    about: Mapping[str, Any],
    summary: Mapping[str, Any],
    found: Sequence[Verdict],
    plots: Sequence[Plot],
    end_s: float,
) -> str:
    """Return the whole page.

    Args:
        scenario: What was run.
        about: Where and when, as names and values.
        summary: Figures of ``summarise``.
        found: Verdicts of all checks.
        plots: What to draw.
        end_s: Where their time ends.
    """
    marks, start_s = [], 0.0
    for phase in scenario.phases:
        marks.append((start_s, phase.name))
        start_s += phase.duration_s
    figures = "".join(_figure(plot, end_s, marks) for plot in plots)
    facts = ", ".join(f"{name} {value}" for name, value in about.items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(scenario.name)}'
        f"</title><style>{_STYLE}</style><h1>Load test {escape(scenario.name)}</h1>"
        f"<p>{escape(scenario.description)}</p><p><small>{escape(facts)}</small></p>"
        f"{_verdicts(found)}{_table(summary)}{_errors(summary)}"
        f'<div class="plots">{figures}</div></html>'
    )


def _figure(plot: Plot, end_s: float, marks: Sequence[tuple[float, str]]) -> str:
    caption = f"{escape(plot.title)} <small>{escape(plot.unit)}</small>"
    note = f"<small>{escape(plot.note)}</small>" if plot.note else ""
    return (
        f"<figure><figcaption>{caption}</figcaption>{draw(plot, end_s, marks)}"
        f"{legend(plot)}{note}</figure>"
    )


def _verdicts(found: Iterable[Verdict]) -> str:
    rows = "".join(
        f'<tr><td class="{"good" if one.passed else "bad"}">{"holds" if one.passed else "FAILS"}'
        f'</td><td class="text">{escape(one.name)}</td>'
        f'<td class="text">{escape(one.found)}</td></tr>'
        for one in found
    )
    return f"<h2>Checks</h2><table>{rows}</table>"


def _table(summary: Mapping[str, Any]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title, _ in _COLUMNS)
    groups = [("all", summary["all"])]
    groups += [(f"phase {name}", figures) for name, figures in summary["phases"].items()]
    groups += [(f"workload {name}", figures) for name, figures in summary["workloads"].items()]
    rows = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td>{cell(figures, path)}</td>" for _, path in _COLUMNS)
        + "</tr>"
        for name, figures in groups
    )
    return f"<h2>Figures</h2><table><tr><th></th>{head}</tr>{rows}</table>"


def _errors(summary: Mapping[str, Any]) -> str:
    errors = summary["all"]["errors"]
    if not errors:
        return ""
    rows = "".join(
        f'<tr><td>{count}</td><td class="text">{escape(why)}</td></tr>'
        for why, count in errors.items()
    )
    return f"<h2>Failed requests</h2><table>{rows}</table>"


def cell(figures: Mapping[str, Any], path: Sequence[str]) -> str:
    """Return a figure as people read it, a dash where there is none.

    >>> cell({"ttft_ms": {"p50": 123.4}}, ["ttft_ms", "p50"]), cell({"rate": None}, ["rate"])
    ('123', '-')
    """
    value: Any = figures
    for key in path:
        value = value[key]
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
