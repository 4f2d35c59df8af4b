"""Shadow scores as counters of the Policy: kept, pooled and aged as all others are. Pure.

A cell's context is ``shadow`` and its arm names drafter, score bucket, depth and rank, so that no
arm of a round is ever mistaken for one. Its pulls are the tokens offered, its reward those that
came: their quotient is a conditional acceptance.
"""

from __future__ import annotations

from collections.abc import Mapping

from drafters.shadow import ShadowCounts
from policy_service.api import SHADOW, ArmCounts, CellKey


def shadow_cells(
    pooled: Mapping[tuple[str, str], ShadowCounts],
) -> Mapping[CellKey, ArmCounts]:
    """Return what drafters counted along followed sequences, as counters.

    Args:
        pooled: Counts by drafter and its version.

    >>> from drafters.shadow import ShadowCell
    >>> pooled = {("prompt_lookup", "v1"): {ShadowCell(4, 1, 0): (10, 3)}}
    >>> [(key.arm, counts.pulls, counts.accepted) for key, counts in shadow_cells(pooled).items()]
    [('prompt_lookup/score4/depth1/rank0', 10, 3)]
    """
    return {
        CellKey(
            SHADOW,
            f"{drafter}/score{cell.score_bucket}/depth{cell.depth}/rank{cell.rank}",
            version,
        ): ArmCounts(
            pulls=offered,
            reward_tokens=accepted,
            drafted=offered,
            verified=offered,
            accepted=accepted,
            reward_micros=accepted * 1_000_000,
        )
        for (drafter, version), counts in pooled.items()
        for cell, (offered, accepted) in counts.items()
    }
