"""From a checked HTTP request to choices that run: what the routes share."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from models.info import ModelInfo
from models.tokenizer import Tokenizer
from policy_service.client import check_options
from policy_service.config import PolicyConfig
from policy_service.errors import PolicyConfigError
from replicas.api import GenerationRequest
from replicas.config import IngressConfig
from replicas.ingress.choices import Choice
from replicas.ingress.errors import ApiError, invalid
from replicas.ingress.features import request_features, short_hash
from replicas.ingress.generation import Generator
from replicas.ingress.limits import Limits
from replicas.ingress.prompts import Prompt, chat_prompt, completion_prompts
from replicas.ingress.reply import Reply
from replicas.ingress.responses import Head
from replicas.ingress.schema import ChatBody, CompletionsBody, GenerationBody
from replicas.ingress.shapes import ChatShape, CompletionsShape, Shape
from replicas.ingress.token_rules import bad_word_sequences
from replicas.ingress.validation import (
    check_request,
    num_logprobs,
    reply_length,
    sampling_params,
    speculation_options,
)
from replicas.request_ids import reply_id

MAX_INLINE_BYTES = 50_000
"""Bodies larger than this are tokenized on a thread, so that other requests go on."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        request_id: Of the HTTP request.
        tenant: From the API key; empty if none is needed.
        arrived_at: When, in seconds since 1970.
    """

    request_id: str
    tenant: str
    arrived_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """What one HTTP request asks for.

    Attributes:
        head: What its response's objects share.
        choices: What to generate.
    """

    head: Head
    choices: list[Choice]


@dataclass(frozen=True, slots=True)
class Serving:
    """Everything that turns requests into replies.

    Attributes:
        config: The Ingress' configuration.
        model: The target model.
        tokenizer: Its tokenizer.
        policy_config: Largest speculation lengths are taken from it.
        drafters: Names of the configured drafters.
        generator: Runs choices.
    """

    config: IngressConfig
    model: ModelInfo
    tokenizer: Tokenizer
    policy_config: PolicyConfig
    drafters: tuple[str, ...]
    generator: Generator

    @property
    def limits(self) -> Limits:
        """What requests may ask for."""
        config = self.config
        return Limits(
            context_length=self.model.context_length,
            vocab_size=self.model.vocab_size,
            max_choices=config.max_choices,
            max_prompts=config.max_prompts,
            max_logprobs=config.max_logprobs,
            default_max_tokens=config.default_max_tokens,
        )

    async def prepare(self, body: GenerationBody, num_bytes: int, caller: Caller) -> Work:
        """Check a request and make of it what is to be generated.

        Raises:
            ApiError: If it breaks a rule.
        """
        if num_bytes > MAX_INLINE_BYTES:
            return await asyncio.to_thread(self.prepare_now, body, caller)
        return self.prepare_now(body, caller)

    def prepare_now(self, body: GenerationBody, caller: Caller) -> Work:
        """Do what ``prepare`` does, here and now."""
        self.check_model(body.model)
        limits = self.limits
        check_request(body, limits)
        self._check_speculation(body)
        prompts = self._prompts(body, limits)
        seed = secrets.randbits(63) if body.seed is None else body.seed
        banned = bad_word_sequences(self.tokenizer, body)
        choices = [
            self._choice(body, prompt, caller, seed, (number, index), banned)
            for number, prompt in enumerate(prompts)
            for index in range(body.n or 1)
        ]
        shape = self._shape(body, limits)
        head = Head(
            response_id=f"{shape.id_prefix}{secrets.token_hex(12)}",
            created=int(time.time()),
            model=self.model.name,
            shape=shape,
            num_choices=len(choices),
            num_prompt_tokens=sum(len(prompt.token_ids) for prompt in prompts),
            seed=seed,
            max_gamma=max(self.policy_config.gammas, default=0),
            explain=speculation_options(body.speculation).explain,
        )
        return Work(head, choices)

    def check_model(self, name: str) -> None:
        """Refuse any model but ours.

        Raises:
            ApiError: 404.
        """
        if name != self.model.name:
            message = f"this server has no such model; it has {self.model.name}"
            raise ApiError(404, "model_not_found", message, "model")

    def describe_model(self) -> Mapping[str, object]:
        """Return the model as ``/v1/models`` lists it."""
        return {
            "id": self.model.name,
            "object": "model",
            "created": 0,
            "owned_by": "banditserve",
            "max_model_len": self.model.context_length,
        }

    def _check_speculation(self, body: GenerationBody) -> None:
        options = speculation_options(body.speculation)
        try:
            check_options(options, self.drafters, self.policy_config.max_gamma)
        except PolicyConfigError as error:
            raise invalid(str(error), "speculation") from error

    def _prompts(self, body: GenerationBody, limits: Limits) -> list[Prompt]:
        if isinstance(body, ChatBody):
            return [chat_prompt(self.tokenizer, body.messages)]
        assert isinstance(body, CompletionsBody)
        return completion_prompts(self.tokenizer, body, limits)

    def _shape(self, body: GenerationBody, limits: Limits) -> Shape:
        kind = ChatShape if isinstance(body, ChatBody) else CompletionsShape
        return kind(self.tokenizer, num_logprobs(body, limits) is not None)

    def _choice(
        self,
        body: GenerationBody,
        prompt: Prompt,
        caller: Caller,
        seed: int,
        place: tuple[int, int],
        banned_sequences: tuple[tuple[int, ...], ...],
    ) -> Choice:
        number, choice_index = place
        index = number * (body.n or 1) + choice_index
        limits = self.limits
        max_tokens = reply_length(body, len(prompt.token_ids), limits)
        sampling = sampling_params(body, max_tokens, limits, banned_sequences)
        features = request_features(
            route="chat" if isinstance(body, ChatBody) else "completions",
            tenant=caller.tenant or short_hash(body.user or ""),
            system_prompt=prompt.system_prompt,
            text=prompt.text,
            num_prompt_tokens=len(prompt.token_ids),
            temperature=sampling.temperature,
        )
        request = GenerationRequest(
            request_id=reply_id(caller.request_id, index),
            prompt_token_ids=prompt.token_ids,
            sampling=sampling,
            seed=seed,
            # With a seed of the client's a prompt's replies are those it has alone; without one,
            # the same prompt given twice has replies that are unrelated.
            choice_index=index if body.seed is None else choice_index,
            speculation=speculation_options(body.speculation),
            features=features,
            arrived_at=caller.arrived_at,
        )
        return Choice(index, request, Reply(self.tokenizer, sampling))
