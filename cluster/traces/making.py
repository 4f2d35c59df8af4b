"""Record a trace from prompts: the replies of a model, then what every drafter makes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cluster.traces.format import Trace
from cluster.traces.generation import OFF, ReplyMaker, load_target
from cluster.traces.machine import machine
from cluster.traces.prompts import rendered
from cluster.traces.recording import Recorder, Reply
from cluster.workloads import Prompt
from drafters.api import NoiseKey
from drafters.client import DrafterClient
from drafters.config import DrafterConfig
from drafters.errors import DrafterConfigError
from drafters.loading import check_config, load_drafter, method_names
from models.store import ModelFolder
from models.tokenizer import Tokenizer, load_tokenizer
from replicas.api import GenerationRequest, SamplingParams
from replicas.engine.step_time import WARM_UP_ROWS, warm_up
from replicas.ingress.features import request_features

STEP_ROWS = (*WARM_UP_ROWS, 128, 256, 512)
"""Rows whose times are measured: a replayed batch may be larger than the machine's own."""


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """How replies are made.

    Attributes:
        temperature: 0 is greedy.
        max_tokens: Most tokens of a reply.
        max_size: Largest draft asked for.
        seed: Of the first reply's sampling noise; each further one has the next.
    """

    temperature: float = 0.0
    max_tokens: int = 200
    max_size: int = 16
    seed: int = 0


def self_sufficient_drafters() -> dict[str, DrafterConfig]:
    """Return a drafter of every method that needs no parameter."""
    configs = {}
    for method in method_names():
        config = DrafterConfig(method=method)
        try:
            check_config(config)
        except DrafterConfigError:
            continue  # it needs a model or a datastore, which only its user can name
        configs[method] = config
    return configs


def record_trace(
    folder: ModelFolder,
    prompts: Sequence[Prompt],
    drafters: Mapping[str, DrafterConfig],
    options: RecordingOptions,
    note: Callable[[str], None],
) -> Trace:
    """Make the replies to some prompts, then record what drafters make of them.

    Replies are made side by side, which does not change them; to the drafters they come one after
    the other.

    Args:
        folder: The target model.
        prompts: In the order to serve them.
        drafters: By name; each is made in this process, whatever its placement.
        options: How replies are made.
        note: Told what is being done.

    Raises:
        DrafterConfigError: If a drafter cannot be made.
        TraceError: If a drafter cannot be recorded.
    """
    made = {name: load_drafter(config) for name, config in drafters.items()}
    recorder = Recorder(made, options.max_size, time.perf_counter)
    tokenizer = load_tokenizer(folder.name, str(folder.path))
    requests = [
        _request(tokenizer, prompt, options, options.seed + index)
        for index, prompt in enumerate(prompts)
    ]
    note("measuring step times")
    model = load_target(folder.path)
    warm_up(model)  # what comes first on a machine is slow, and would be taken for the least time
    step_time = warm_up(model, row_counts=STEP_ROWS)
    times = step_time.times
    maker = ReplyMaker(model, step_time, DrafterClient({}))
    try:
        results = maker.generate_all(
            requests, lambda done: note(f"{done} of {len(requests)} replies made")
        )
    finally:
        maker.close()
    for index, (prompt, request) in enumerate(zip(prompts, requests, strict=True)):
        note(f"drafts of reply {index + 1} of {len(requests)}")
        recorder.record(_reply(prompt, request, results[index].token_ids))
    return recorder.trace(
        model=folder.name,
        machine=machine(),
        temperature=options.temperature,
        max_tokens=options.max_tokens,
        times=times,
    )


def _request(
    tokenizer: Tokenizer, prompt: Prompt, options: RecordingOptions, seed: int
) -> GenerationRequest:
    """Return what a Verifier would get of a prompt sent to the chat API."""
    asked = rendered(tokenizer, prompt)
    features = request_features(
        route="chat",
        tenant="",
        system_prompt=asked.system_prompt,
        text=asked.text,
        num_prompt_tokens=len(asked.token_ids),
        temperature=options.temperature,
    )
    sampling = SamplingParams(options.max_tokens, temperature=options.temperature)
    return GenerationRequest(
        f"prompt{seed}", asked.token_ids, sampling, seed, speculation=OFF, features=features
    )


def _reply(prompt: Prompt, request: GenerationRequest, tokens: Sequence[int]) -> Reply:
    noise = NoiseKey(request.seed, request.choice_index, request.sampling.temperature)
    return Reply(
        prompt.id,
        prompt.workload,
        prompt.category,
        request.features,
        request.prompt_token_ids,
        tokens,
        noise,
    )
