"""One step of the engine: ask, draft, trim, verify, commit, learn. Single-threaded.

Knows the policy by its planner and the drafters by their client; neither Ray nor HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from drafters.api import EMPTY_DRAFT, Draft
from drafters.client import DrafterClient, DraftResult
from drafters.features import HiddenStates
from models.batch import PackedBatch
from models.paged_model import PagedModel
from models.pages import PagePool
from models.tokenizer import Tokenizer
from policy_service.api import NONE, AskItem, Outcome, TrimItem
from policy_service.client import Planner
from policy_service.decision_log.records import RoundRecord
from replicas.api import GenerationRequest
from replicas.engine.commit import Committer, StepOutput
from replicas.engine.counters import EngineCounters
from replicas.engine.rounds import DecodingRound
from replicas.engine.sampler import Sampler
from replicas.engine.scheduler import Scheduler
from replicas.engine.sequence import EngineSequence
from replicas.engine.step_time import StepTimeModel
from replicas.engine.stopping import StopRules, end_token_ids
from replicas.engine.workload import WorkMeter
from replicas.metrics.engine_meter import EngineMeter

OnRounds = Callable[[Sequence[RoundRecord]], None]
"""Takes in the rounds of a step."""


class EngineCore:
    """The engine of one Verifier, one step at a time.

    Args:
        model: The target model.
        planner: Chooses arms and learns.
        drafters: Gets drafts.
        tokenizer: For stop strings; None if the model has none.
        step_time: Predicts how long a step takes; learns from every step.
        max_sequences: Most sequences in a step.
        max_step_tokens: Most tokens in a step.
        replica: Name of this Verifier, for results.
        clock: Monotonic seconds.
        on_rounds: Called with the rounds of each step; must not wait.

    Attributes:
        counters: What it has done.
        meter: The same and more, as metrics show it.
        work: What it has before it and its pace, as ``replicas.autoscaling`` names it.
    """

    def __init__(
        self,
        model: PagedModel,
        planner: Planner,
        drafters: DrafterClient,
        tokenizer: Tokenizer | None,
        step_time: StepTimeModel,
        max_sequences: int,
        max_step_tokens: int,
        replica: str = "",
        clock: Callable[[], float] = time.monotonic,
        on_rounds: OnRounds | None = None,
    ) -> None:
        self._model = model
        self._planner = planner
        self._drafters = drafters
        self._tokenizer = tokenizer
        self._step_time = step_time
        self._replica = replica
        self._clock = clock
        self._on_rounds = on_rounds
        self._vocab = torch.arange(model.vocab_size, device=model.device)
        self._scheduler = Scheduler(
            PagePool(model.num_pages, model.page_tokens), max_sequences, max_step_tokens
        )
        self.counters = EngineCounters()
        self._work_meter = WorkMeter(step_time, max_step_tokens)
        self.work = self._work_meter.metrics((), ())
        self.meter = EngineMeter(clock)
        self._committer = Committer(
            model.cache, self._scheduler, drafters, self.counters, self.meter, self._clock
        )

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return self._scheduler.has_work

    @property
    def num_waiting(self) -> int:
        """Requests that have not begun."""
        return len(self._scheduler.waiting)

    @property
    def num_running(self) -> int:
        """Requests under way."""
        return len(self._scheduler.running)

    @property
    def cache_usage(self) -> float:
        """Share of the pages that sequences hold, 0 to 1."""
        return self._scheduler.pool.num_used / self._scheduler.pool.num_pages

    @property
    def num_preemptions(self) -> int:
        """How often a sequence had to give its pages up."""
        return self._scheduler.num_preemptions

    def add(self, request: GenerationRequest, arrived_at: float) -> None:
        """Queue a request that ``check_request`` has passed."""
        sampling = request.sampling
        stop_rules = StopRules(sampling, self._model.eos_token_ids, self._tokenizer)
        sampler = Sampler(
            sampling,
            request.seed,
            request.choice_index,
            request.prompt_token_ids,
            end_token_ids(sampling, self._model.eos_token_ids),
            self._vocab,
        )
        for token in request.resume_token_ids:
            sampler.emit(token)
            stop_rules.emit(token)
        token_ids = [*request.prompt_token_ids, *request.resume_token_ids]
        self._scheduler.waiting.append(
            EngineSequence(request, sampler, stop_rules, arrived_at, token_ids)
        )
        self._planner.open(request.request_id, request.features, request.speculation)

    def cancel(self, request_ids: set[str]) -> None:
        """Drop requests and everything they hold; unknown ones are no error."""
        live = [*self._scheduler.waiting, *self._scheduler.running]
        dropped = [sequence for sequence in live if sequence.id in request_ids]
        self._remove(dropped)
        self.counters.cancelled += len(dropped)
        self.meter.count_cancelled(len(dropped))
        self._note_work()

    def step(self) -> StepOutput:
        """Run one step and return what it gave."""
        started = self._clock()
        self._scheduler.admit(started)
        rounds = self._ask(self._scheduler.decoding())
        self._draft(rounds)
        batch, prefills = self._build(rounds)
        forward_started = self._clock()
        logits = self._model.forward(batch)
        forward_s = self._clock() - forward_started
        self._step_time.observe(
            batch.num_rows, len(batch.segments), batch.num_context, forward_s * 1e3
        )
        self.counters.forward_s += forward_s
        num_emitted = self.counters.emitted_tokens
        output = self._committer.commit(batch, logits, rounds, prefills)
        num_emitted = self.counters.emitted_tokens - num_emitted
        num_prompt = sum(size for _, size in prefills)
        self._work_meter.observe_step(self._clock() - started, num_prompt, num_emitted)
        self._learn(rounds, sum(one.num_cached for one in batch.segments[: len(rounds)]), started)
        self.meter.end_step(rounds, num_prompt, self._clock() - started)
        return output

    def _ask(self, sequences: Sequence[EngineSequence]) -> list[DecodingRound]:
        rooms = [self._scheduler.draft_room(one, len(sequences)) for one in sequences]
        self._planner.set_step_times(self._step_time.times)
        decisions = self._planner.ask(
            [
                AskItem(one.id, room, one.num_cached)
                for one, room in zip(sequences, rooms, strict=True)
            ],
            sum(size for _, size in self._scheduler.prefill_chunks(len(sequences))),
        )
        return [
            DecodingRound(one, decision, num_wanted=min(decision.arm.gamma, room))
            for one, decision, room in zip(sequences, decisions, rooms, strict=True)
        ]

    def _draft(self, rounds: Sequence[DecodingRound]) -> None:
        """Get and trim the drafts of the rounds that chose a drafter."""
        drafting = [one for one in rounds if one.decision.arm != NONE]
        if not drafting:
            return
        states = self._hidden_states if self._model.cache.hidden is not None else None
        results = self._drafters.draft(
            [one.wanted(states) for one in drafting], self._worth_ms(rounds)
        )
        self.counters.draft_wait_s += max(result.wait_ms for result in results) / 1e3
        kept = self._planner.trim(
            [
                TrimItem(
                    one.sequence.id,
                    one.decision,
                    len(result.draft),
                    result.draft.score,
                    () if result.draft.is_chain else result.draft.parents,
                )
                for one, result in zip(drafting, results, strict=True)
            ]
        )
        for one, result, num_kept in zip(drafting, results, kept, strict=True):
            self._take_draft(one, result, num_kept)

    def _worth_ms(self, rounds: Sequence[DecodingRound]) -> float:
        """Return what the wanted drafts save at most: as many plain steps as they replace."""
        num_sequences = len(rounds)
        cached = sum(one.sequence.num_cached for one in rounds)
        plain_ms = self._step_time.predict_ms(num_sequences, num_sequences, cached)
        return plain_ms * sum(one.num_wanted for one in rounds) / num_sequences

    def _hidden_states(self, sequence: EngineSequence, start: int, stop: int) -> HiddenStates:
        slots = self._model.cache.slots(sequence.pages, stop)[start:]
        states: HiddenStates = self._model.hidden_states(slots).float().cpu().numpy()
        return states

    def _take_draft(self, one: DecodingRound, result: DraftResult, num_kept: int) -> None:
        one.num_drafted = len(result.draft)
        one.status = result.status
        one.wait_ms = result.wait_ms
        num_nodes = self._scheduler.grow_for_draft(one.sequence, min(num_kept, one.num_drafted))
        one.draft = result.draft.prefix(num_nodes)

    def _build(
        self, rounds: Sequence[DecodingRound]
    ) -> tuple[PackedBatch, list[tuple[EngineSequence, int]]]:
        batch = PackedBatch()
        for one in rounds:
            self._add_segment(batch, one.sequence, 1, one.draft)
        prefills = self._scheduler.prefill_chunks(batch.num_rows)
        for sequence, size in prefills:
            self._add_segment(batch, sequence, size, EMPTY_DRAFT)
        return batch, prefills

    def _add_segment(
        self, batch: PackedBatch, sequence: EngineSequence, size: int, draft: Draft
    ) -> None:
        start = sequence.num_cached
        stop = start + size
        batch.add(
            start,
            [*sequence.token_ids[start:stop], *draft.token_ids],
            self._model.cache.slots(sequence.pages, stop + len(draft)),
            needs_logits=stop == len(sequence.token_ids),
            tree=draft.parents,
        )

    def _learn(self, rounds: Sequence[DecodingRound], cached: int, started: float) -> None:
        step_ms = (self._clock() - started) * 1e3
        observed = []
        for one in rounds:
            outcome = one.outcome(step_ms, len(rounds), cached, self._step_time.times)
            one.sequence.count_round(outcome.num_verified, outcome.num_accepted)
            observed.append((one.sequence.id, one.decision, outcome))
            self.counters.drafted_tokens += outcome.num_drafted
            self.counters.verified_tokens += outcome.num_verified
            self.counters.accepted_tokens += outcome.num_accepted
            self._drafters.observe(one.decision.arm.drafter, one.draft, one.verdict.accepted_nodes)
            if one.sequence.request.speculation.explain:
                one.sequence.rounds.append(one.report(outcome))
        if self._on_rounds is not None:
            self._on_rounds(self._records(rounds, [outcome for _, _, outcome in observed]))
        nodes = {one.sequence.id: one.verdict.accepted_nodes for one in rounds if one.draft}
        self._planner.observe(observed, nodes)
        self.counters.steps += 1
        self.counters.step_s += step_ms / 1e3

    def _records(
        self, rounds: Sequence[DecodingRound], outcomes: Sequence[Outcome]
    ) -> list[RoundRecord]:
        """Return a step's rounds as they are kept; before the planner learns from them."""
        now = time.time()
        return [
            one.record(outcome, self._planner.allowed_arms(one.sequence.id), now)
            for one, outcome in zip(rounds, outcomes, strict=True)
        ]

    def finish(self, output: StepOutput) -> None:
        """Move the replies that ended in the last step to ``output`` and free what they held."""
        now = self._clock()
        ended = [one for one in self._scheduler.running if one.stop is not None]
        output.finished.extend(one.result(now, self._replica) for one in ended)
        self.counters.finished += len(ended)
        self.meter.count_finished(ended, now)
        self._remove(ended)
        for one in ended:
            self._work_meter.observe_reply(one.num_emitted)
        self._note_work()

    def _note_work(self) -> None:
        self.work = self._work_meter.metrics(self._scheduler.waiting, self._scheduler.running)

    def _remove(self, sequences: Sequence[EngineSequence]) -> None:
        self._scheduler.remove(sequences)
        for sequence in sequences:
            self._planner.close(sequence.id)
            self._drafters.close(sequence.id, sequence.token_ids)
