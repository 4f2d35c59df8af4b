"""Limits how much one tenant weighs in what all of them share.

Pure; knows neither contexts nor where counts come from.
"""

from __future__ import annotations

from collections.abc import Sequence

LEAST_PULLS = 50.0
"""Pulls that a tenant may always contribute: where few have played, nobody's share can be small."""


def capped_weights(
    pulls: Sequence[float], max_share: float, least: float = LEAST_PULLS
) -> list[float]:
    """Return a factor for each tenant's counts, so that none weighs more than its share.

    No tenant's weighted pulls are more than ``max_share`` of all weighted pulls, except that
    ``least`` pulls are always allowed; a tenant below its share keeps its weight relative to the
    others below theirs. All together weigh what they did. So whatever one tenant's mean is, it
    moves the common mean by at most ``max_share`` of the distance between it and that of the rest,
    once the others have played ``least / max_share`` pulls.

    Args:
        pulls: Pulls of each tenant.
        max_share: Largest share, in (0, 1].
        least: Pulls always allowed.

    >>> [round(factor, 3) for factor in capped_weights([900, 50, 50, 50], 0.25, least=10)]
    [0.292, 5.25, 5.25, 5.25]
    """
    total = sum(pulls)
    cap = max(least, _cap(sorted(pulls, reverse=True), max_share))
    weighted = sum(min(count, cap) for count in pulls)
    if weighted >= total:
        return [1.0] * len(pulls)
    scale = total / weighted
    return [scale * min(1.0, cap / count) if count > 0 else 1.0 for count in pulls]


def _cap(descending: Sequence[float], max_share: float) -> float:
    """Return the cap ``c`` with ``c = max_share * sum(min(pulls, c))``; 0 if there is none.

    With the ``k`` largest capped it is ``max_share * rest / (1 - k * max_share)``, and right for
    the first ``k`` whose next largest does not exceed it.
    """
    rest = sum(descending)
    for num_capped, largest in enumerate(descending):
        free = 1.0 - num_capped * max_share
        if free <= 1e-12:
            return 0.0
        cap = max_share * rest / free
        if largest <= cap:
            return cap
        rest -= largest
    return 0.0
