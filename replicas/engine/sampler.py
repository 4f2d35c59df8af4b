"""The target's own token at a row, as a function of the row, the request and the position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from models.drawing import LOWEST_TEMPERATURE, draw_tokens
from models.noise import gumbel_noise, key_array, noise_key
from replicas.api import SamplingParams, TokenLogprobs
from replicas.engine.logits import (
    apply_penalties,
    banned_next,
    bias_and_bans,
    has_bias_or_bans,
    needs_history,
)
from replicas.engine.truncation import kept_tokens, truncates


class Sampler:
    """Draws one request's tokens.

    Holds what the controls need of the past: the distinct prompt tokens, the emitted ones and their
    counts. ``token`` changes nothing; ``emit`` records an emitted token.

    Args:
        params: The request's parameters.
        seed: Key of the noise.
        choice_index: Part of the key.
        prompt_token_ids: The prompt.
        end_token_ids: Tokens that would end the reply; banned before ``min_tokens``.
        vocab: Ids 0, 1, ... of the vocabulary, shared by all samplers, ``[vocab_size]``.
    """

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        choice_index: int,
        prompt_token_ids: Collection[int],
        end_token_ids: Collection[int],
        vocab: Tensor,
    ) -> None:
        self._params = params
        self._seed = seed
        self._choice_index = choice_index
        self._end_token_ids = frozenset(end_token_ids)
        self._vocab = vocab
        self._prompt: Tensor | None = None
        if params.repetition_penalty != 1:
            self._prompt = torch.tensor(sorted(set(prompt_token_ids)), device=vocab.device)
        self._counts: Counter[int] = Counter()
        self._reply: list[int] = []
        self._num_emitted = 0
        self._has_history = needs_history(params)
        self._is_adjusted = has_bias_or_bans(params)
        self._added: Tensor | None = None  # as large as a row, so not before the first one
        self._truncates = truncates(params)

    @property
    def temperature(self) -> float:
        """Temperature of the draws; 0 is greedy."""
        temperature = self._params.temperature
        return 0.0 if temperature < LOWEST_TEMPERATURE else temperature

    @property
    def is_plain(self) -> bool:
        """Whether every remaining row's token is ``draw_tokens`` of the row as it is.

        Such rows, of many requests, may be drawn in one call: see ``plain_draw``.
        """
        return (
            not self._has_history
            and not self._is_adjusted
            and self._num_emitted >= self._params.min_tokens
            and not (self._truncates and self.temperature)
        )

    def plain_draw(self, position: int) -> tuple[int, float]:
        """Return key and temperature with which ``draw_tokens`` draws a plain row at a position.

        For a row that is not plain, something harmless: what is drawn of it means nothing.
        """
        if not self.is_plain or not self.temperature:
            return 0, 0.0
        return self._key(position), self.temperature

    def token(self, logits: Tensor, position: int) -> int:
        """Return the target's token for the next position.

        Args:
            logits: The row, ``[vocab_size]``, float32.
            position: Absolute position of the token in the sequence.
        """
        row = self._controlled(logits)
        key = self._key(position)
        if not self._truncates or not self.temperature:
            return draw_tokens(row[None], [key], [self.temperature])[0]
        token_ids, scaled = kept_tokens(row, self._params)
        # Ids ascend, and argmax takes the first of equals.
        return int(token_ids[np.argmax(scaled + gumbel_noise(key_array([key]), token_ids))])

    def logprobs(self, logits: Tensor, token_id: int) -> TokenLogprobs:
        """Return the target's log-probabilities at a row, before temperature and truncation.

        Penalties, bias and bans are in; so the numbers are the same with and without speculation.
        """
        logprobs = torch.log_softmax(self._controlled(logits), dim=-1)
        num_top = min(self._params.logprobs or 0, len(logprobs))
        values, ids = torch.topk(logprobs, num_top) if num_top else (logprobs[:0], self._vocab[:0])
        top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        return TokenLogprobs(float(logprobs[token_id]), top)

    def emit(self, token_id: int) -> None:
        """Record that a token was emitted."""
        self._num_emitted += 1
        if self._has_history:
            self._counts[token_id] += 1
            self._reply.append(token_id)

    def _key(self, position: int) -> int:
        return noise_key(self._seed, self._choice_index, position)

    def _controlled(self, logits: Tensor) -> Tensor:
        """Return a row with penalties, bias and bans; the row itself if there are none."""
        params = self._params
        row = logits
        if self._has_history:
            row = row.clone()
            apply_penalties(row, params, self._prompt, self._counts)
        if self._is_adjusted:
            if self._added is None:
                self._added = bias_and_bans(params, self._vocab)
            row = row + self._added
        banned = set(banned_next(params.banned_sequences, self._reply))
        if self._num_emitted < params.min_tokens:
            banned |= self._end_token_ids
        if banned:
            row = row.clone() if row is logits else row
            row[torch.tensor(sorted(banned), device=row.device)] = float("-inf")
        return row
