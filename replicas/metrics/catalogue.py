"""Every Prometheus series that a running system has, as one table.

Names that begin with ``vllm:`` are those of vLLM, with its labels and its definitions, so that
dashboards and load generators made for it work. ``specdec_`` says what speculation does by arm, and
``banditserve_`` how the parts are. Definitions of the ratios, which differ between systems::

    acceptance rate                accepted tokens / draft tokens
    mean acceptance length         1 + accepted tokens / drafts
    acceptance rate at a position  accepted tokens at that position / drafts

A draft token is one that was verified. Summed over their further labels ``specdec_drafts_total``,
``specdec_draft_tokens_total``, ``specdec_accepted_tokens_total`` and
``specdec_accepted_tokens_per_pos_total`` are vLLM's counters of almost the same names.

Labels are bounded: ``drafter`` by the configuration, ``gamma`` by ``policy.max_gamma``,
``position`` by the deepest draft (64), ``learner`` by the learners there are, ``context`` by being
cut to route and code-likeness, which is six values (never tenants nor system prompts), ``route``
and ``status`` by the routes there are. ``engine`` is a Verifier's replica id and ``replica`` that
of an Ingress or a drafter's host; both change when it is replaced.
"""

from __future__ import annotations

from replicas.metrics.part_series import PART_SERIES
from replicas.metrics.series import Series
from replicas.metrics.speculation_series import SPECULATION_SERIES
from replicas.metrics.vllm_series import VLLM_SERIES

CATALOGUE: dict[str, Series] = {
    series.name: series for series in (*VLLM_SERIES, *SPECULATION_SERIES, *PART_SERIES)
}
"""All series, by name."""


def sample_names() -> frozenset[str]:
    """Return the name of every line a scrape may have: what dashboards and alerts may use."""
    return frozenset(name for series in CATALOGUE.values() for name in series.sample_names())
