"""The Verifier: a Serve replica that owns the target model and one engine.

It checks requests, hands them to the engine's thread and passes on what comes back: tokens over the
token stream, step by step, and the finished reply as the result of the call. Everything else is the
engine's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from itertools import groupby
from typing import Any

import torch
from ray import serve
from ray.serve.handle import DeploymentHandle

from drafters.client import DrafterClient, Member
from drafters.config import DrafterConfig
from drafters.membership import watch
from models.compute_threads import compute_once
from models.paged_model import PagedModel
from models.precedence import take_precedence
from models.tokenizer import load_tokenizer
from policy_service.client import PolicyClient
from policy_service.config import PolicyConfig
from policy_service.decision_log.records import LogHeader
from policy_service.errors import PolicyConfigError
from replicas.api import GenerationRequest, GenerationResult
from replicas.config import NO_PORT, EngineConfig, MetricsConfig
from replicas.decision_recorder import DecisionRecorder
from replicas.engine.admission import Limits, check_request
from replicas.engine.commit import StepOutput
from replicas.engine.core import EngineCore
from replicas.engine.loop import EngineLoop
from replicas.engine.step_time import warm_up
from replicas.errors import EngineStoppedError, RequestError
from replicas.metrics.exporter import sample_exporter
from replicas.metrics.samples import Sample
from replicas.metrics.verifier_samples import verifier_samples
from replicas.shadow_cells import shadow_cells
from replicas.token_sender import TokenSender

logger = logging.getLogger(__name__)

_FLUSH_S = 5.0
_FIRST_SNAPSHOT_S = 5.0
_STEP_TOKENS = {"cpu": 128, "cuda": 2048}


class VerifierDeployment:
    """One Verifier.

    Args:
        config: Configuration of the engine.
        model_name: Name of the target model; statistics are kept under it.
        model_path: Its folder.
        policy_config: Configuration of the policy.
        drafter_configs: The drafters, by name.
        policy: Handle of the Policy.
        drafter_hosts: Handles of the hosts of drafters on workers, by name.
        metrics: Where it shows its metrics.

    Raises:
        ModelError: If the model cannot be served.
        PolicyConfigError: If the learner or a parameter of it is not valid.
    """

    def __init__(
        self,
        config: EngineConfig,
        model_name: str,
        model_path: str,
        policy_config: PolicyConfig,
        drafter_configs: Mapping[str, DrafterConfig],
        policy: DeploymentHandle[Any],
        drafter_hosts: Mapping[str, DeploymentHandle[Any]],
        metrics: MetricsConfig = NO_PORT,
    ) -> None:
        # Ray gives a process one thread a reserved CPU; the forward wants the cores it may use.
        num_threads = config.num_threads or os.cpu_count() or 1
        torch.set_num_threads(num_threads)
        self._replica = serve.get_replica_context().replica_id.unique_id
        self._started_at = time.time()
        self._event_loop = asyncio.get_running_loop()
        self._model_name = model_name
        model = compute_once(PagedModel, model_path, config)
        tokenizer = load_tokenizer(model_name, model_path)
        self._limits = Limits(
            vocab_size=model.vocab_size,
            max_context=model.max_context,
            cache_tokens=model.num_pages * model.page_tokens,
            eos_token_ids=frozenset(model.eos_token_ids),
            has_tokenizer=tokenizer is not None,
        )
        self._drafters = DrafterClient(drafter_configs, vocab_size=model.vocab_size)
        incarnation = uuid.uuid4().hex
        self._policy = PolicyClient(
            policy_config,
            replica=self._replica,
            incarnation=incarnation,
            target_model=model_name,
            policy_handle=policy,
            drafter_versions=self._drafters.versions(),
            seed=uuid.uuid4().int & (1 << 32) - 1,
            further_counts=lambda: shadow_cells(self._drafters.take_shadow_counts()),
        )
        header = LogHeader(
            target_model=model_name,
            replica=self._replica,
            incarnation=incarnation,
            learner=policy_config.learner,
            reward=policy_config.reward,
            share=policy_config.decision_log.share,
            created_at=self._started_at,
        )
        self._recorder = DecisionRecorder(policy_config.decision_log, header)
        self._step_time = compute_once(warm_up, model)
        self._core = compute_once(
            EngineCore,
            model,
            self._policy.planner,
            self._drafters,
            tokenizer,
            self._step_time,
            config.max_sequences,
            config.max_step_tokens or _STEP_TOKENS[model.device.type],
            self._replica,
            on_rounds=self._recorder.record,
        )
        self._engine = EngineLoop(
            self._core,
            self._on_step,
            self._on_stop,
            config.max_queued,
            config.stall_s,
            on_start=partial(_compute_first, num_threads),
        )
        self._sender = TokenSender()
        self._replies: dict[str, asyncio.Future[GenerationResult]] = {}
        self._is_seeded = False
        self._tasks = [
            asyncio.ensure_future(self._policy.run()),
            asyncio.ensure_future(
                watch(drafter_hosts, self._on_members, wants_worker=self._drafters.wants_worker)
            ),
        ]
        self._core.meter.expect(drafter_configs)
        self._metrics_port = sample_exporter(metrics).open(self.metric_samples)
        self._engine.start()

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Generate one reply.

        Its tokens go to ``request.reply_to`` as they come. Cancelling the call frees everything the
        request holds within one step.

        Raises:
            RequestError: If the request cannot be served as it is.
            QueueFullError: If too many requests wait.
            EngineStoppedError: If the engine stops before the reply is complete.
        """
        self._check(request)
        reply: asyncio.Future[GenerationResult] = self._event_loop.create_future()
        self._replies[request.request_id] = reply
        try:
            self._engine.submit(request)
            return await reply
        except asyncio.CancelledError:
            self._engine.cancel(request.request_id)
            raise
        finally:
            del self._replies[request.request_id]

    async def report(self) -> dict[str, Any]:
        """Return what this Verifier is doing and what it does without."""
        core = self._core
        return {
            "replica": self._replica,
            "pid": os.getpid(),
            "model": self._model_name,
            "started_at": self._started_at,
            "problem": self._engine.problem(),
            "max_context": self._limits.max_context,
            "cache_tokens": self._limits.cache_tokens,
            "step_ms_by_rows": self._step_time.table(),
            "step_ms_per_sequence": self._step_time.times.sequence_ms,
            "step_ms_per_cached_token": self._step_time.times.cached_token_ms,
            "metrics_port": self._metrics_port.number,
            "loop": self._engine.report(),
            "work": core.work,
            "num_running": core.num_running,
            "num_waiting": core.num_waiting,
            "cache_usage": core.cache_usage,
            "num_preemptions": core.num_preemptions,
            **asdict(core.counters),
            "policy": self._policy.status(),
            "decisions": self._recorder.status(),
            "drafters": self._drafters.status(),
            "open_draft_sessions": self._drafters.num_open,
        }

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return what there is to do here and at which pace it is done; asked for by Serve."""
        return self._core.work

    async def metric_samples(self) -> list[Sample]:
        """Return what this Verifier measured, for Prometheus."""
        labels = {"model_name": self._model_name, "engine": self._replica}
        report = verifier_samples(await self.report(), labels)
        return [*self._core.meter.samples(labels), *report]

    async def explain(self, request_id: str, tenant: str) -> dict[str, Any]:
        """Return the rounds of a recent request, explained; see ``DecisionRecorder.explain``."""
        return self._recorder.explain(request_id, tenant)

    async def check_health(self) -> None:
        """Tell Serve whether this Verifier can go on; at first, once it knows the pooled counts.

        Serve asks before it sends the first request. Without a Policy it goes on without.

        Raises:
            EngineStoppedError: If the engine's thread has ended or is stuck in a step.
        """
        if not self._is_seeded:
            self._is_seeded = True
            if not await self._policy.first_answer(_FIRST_SNAPSHOT_S):
                logger.warning("the Policy does not answer; replies begin without pooled counts")
        problem = self._engine.problem()
        if problem is not None:
            raise EngineStoppedError(problem)

    async def __del__(self) -> None:
        """Stop the engine and send what was learnt; Serve awaits this after the drain."""
        await asyncio.to_thread(self._engine.stop)
        await asyncio.to_thread(self._recorder.close, _FLUSH_S)
        for task in self._tasks:
            task.cancel()
        await self._policy.flush(_FLUSH_S)
        await self._sender.close()
        self._metrics_port.close()
        self._drafters.stop()

    def _check(self, request: GenerationRequest) -> None:
        if request.request_id in self._replies:
            raise RequestError(f"a request {request.request_id} is already running here")
        check_request(request, self._limits)
        try:
            self._policy.planner.check(request.speculation)
        except PolicyConfigError as error:
            raise RequestError(str(error), param="speculation") from error

    def _on_members(self, members: tuple[Member, ...]) -> None:
        self._drafters.set_members(members)
        self._policy.planner.set_drafters(self._drafters.versions())

    def _on_step(self, output: StepOutput) -> None:
        """Move a step's output to the event loop. Runs on the engine's thread."""
        self._event_loop.call_soon_threadsafe(self._pass_on, output)

    def _pass_on(self, output: StepOutput) -> None:
        ordered = sorted(output.chunks, key=lambda pair: (pair[0].host, pair[0].port))
        for reply_to, pairs in groupby(ordered, key=lambda pair: pair[0]):
            self._sender.send(reply_to, [chunk for _, chunk in pairs])
        for result in output.finished:
            reply = self._replies.get(result.request_id)
            if reply is not None and not reply.done():
                reply.set_result(result)

    def _on_stop(self, error: BaseException | None) -> None:
        """Fail what is under way, so that it moves on. Runs on the engine's thread."""
        why = "the engine was stopped" if error is None else f"the engine failed: {error!r}"
        self._event_loop.call_soon_threadsafe(self._fail_all, why)

    def _fail_all(self, why: str) -> None:
        self._core.meter.count_errors(len(self._replies))
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(EngineStoppedError(why))


def _compute_first(num_threads: int) -> None:
    """Make the calling thread the one that computes."""
    take_precedence()
    torch.set_num_threads(num_threads)  # MKL's number is each thread's own
