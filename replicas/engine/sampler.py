"""The target's own token at a row, as a function of the row, the request and the position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import torch
from torch import Tensor

from replicas.api import SamplingParams, TokenLogprobs
from replicas.engine.logits import (
    apply_bias_and_bans,
    apply_penalties,
    needs_history,
    truncate,
)
from replicas.engine.noise import gumbel_noise, noise_key


class Sampler:
    """Draws one request's tokens.

    Holds what the controls need of the past: the distinct prompt tokens and the counts of emitted
    ones. ``token`` changes nothing; ``emit`` records an emitted token.

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
        self._prompt = frozenset(prompt_token_ids) if params.repetition_penalty != 1 else ()
        self._end_token_ids = frozenset(end_token_ids)
        self._vocab = vocab
        self._counts: Counter[int] = Counter()
        self._num_emitted = 0
        self._has_history = needs_history(params)

    @property
    def is_plain_greedy(self) -> bool:
        """Whether every remaining row's token is simply its largest logit."""
        params = self._params
        return (
            params.temperature == 0
            and not self._has_history
            and not params.logit_bias
            and self._num_emitted >= params.min_tokens
        )

    def token(self, logits: Tensor, position: int) -> int:
        """Return the target's token for the next position.

        Args:
            logits: The row, ``[vocab_size]``, float32.
            position: Absolute position of the token in the sequence.
        """
        params = self._params
        logits = self._controlled(logits)
        if params.temperature == 0:
            return int(torch.argmax(logits))
        scaled = truncate(logits / params.temperature, params)
        key = noise_key(self._seed, self._choice_index, position)
        return int(torch.argmax(scaled + gumbel_noise(key, self._vocab)))

    def logprobs(self, logits: Tensor, token_id: int) -> TokenLogprobs:
        """Return the target's log-probabilities at a row, before temperature and truncation.

        Penalties, bias and bans are in; so the numbers are the same with and without speculation.
        """
        logprobs = torch.log_softmax(self._controlled(logits), dim=-1)
        num_top = self._params.logprobs or 0
        values, ids = torch.topk(logprobs, num_top) if num_top else (logprobs[:0], self._vocab[:0])
        top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        return TokenLogprobs(float(logprobs[token_id]), top)

    def emit(self, token_id: int) -> None:
        """Record that a token was emitted."""
        self._num_emitted += 1
        if self._has_history:
            self._counts[token_id] += 1

    def _controlled(self, logits: Tensor) -> Tensor:
        params = self._params
        if self._has_history:
            logits = apply_penalties(logits, params, self._prompt, self._counts)
        banned = self._end_token_ids if self._num_emitted < params.min_tokens else frozenset()
        return apply_bias_and_bans(logits, params.logit_bias, banned)
