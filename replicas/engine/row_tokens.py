"""The target's tokens at the rows of one step.

Rows of requests without further controls are drawn together in one call. All others are drawn one
by one as the walk along the draft reaches them, because their controls depend on what was accepted.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from drafters.api import Draft
from models.drawing import draw_tokens
from replicas.engine.sequence import EngineSequence


class RowTokens:
    """What the target says at every row with logits.

    Args:
        logits: ``[num_rows, vocab_size]``, float32; sequence by sequence, the row of the last
            committed token first, then those of the draft's nodes.
        drafts: The sequences and their drafts, in the same order.
    """

    def __init__(self, logits: Tensor, drafts: Sequence[tuple[EngineSequence, Draft]]) -> None:
        self.logits = logits
        draws = [
            sequence.sampler.plain_draw(len(sequence.token_ids) + depth)
            for sequence, draft in drafts
            for depth in (0, *draft.depths)
        ]
        assert len(draws) == len(logits)
        keys, temperatures = zip(*draws, strict=True) if draws else ((), ())
        self._plain = draw_tokens(logits, keys, temperatures) if draws else []

    def token(self, sequence: EngineSequence, row: int) -> int:
        """Return the token after a row's own, given all that the sequence has emitted."""
        if sequence.sampler.is_plain:
            return self._plain[row]
        return sequence.sampler.token(self.logits[row], len(sequence.token_ids))
