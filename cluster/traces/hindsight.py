"""What could have been: the best fixed arm of each request, and the best choice of every round.

These know what the reply will be; they are no policies but measures for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.traces.format import Trace, TracedRequest
from cluster.traces.replay import DraftTable, Pick, Running
from policy_service.api import NONE, Arm, Outcome


class Costs:
    """What arms cost in the rounds of a trace, in a batch whose sequences all do alike.

    That is the price that one sequence pays: its share of a step in which all verify as many tokens
    and wait for as many drafts as it. With a batch of 1 it is the step's very time.

    Args:
        trace: The trace.
        tables: ``DraftTable`` of each drafter that there is.
        arms: The arms, plain decoding among them.
        batch_size: Sequences of a step.
    """

    def __init__(
        self,
        trace: Trace,
        tables: Mapping[str, DraftTable],
        arms: Sequence[Arm],
        batch_size: int,
    ) -> None:
        self.trace = trace
        self.arms = tuple(arms)
        self.batch_size = batch_size
        self._tables = tables
        self._row_ms: dict[int, float] = {}

    def pick(self, request: TracedRequest, done: int, arm: Arm) -> Pick:
        """Return an arm's round where ``done`` tokens are known, its whole draft verified."""
        size = min(arm.gamma, self.trace.max_tokens - done - 1)
        if size < 1:
            return Pick()
        pick = self._tables[arm.drafter].pick(arm, request.first + done - 1, size)
        pick.kept = pick.drafted
        return pick

    def accepted_nodes(self, request: TracedRequest, done: int, pick: Pick) -> tuple[int, ...]:
        """Return which nodes of a round's draft the reply goes through."""
        if not pick.drafted:
            return ()
        table = self._tables[pick.arm.drafter]
        return table.accepted_nodes(request.first + done - 1, pick.size, pick.drafted)

    def draft_ms(self, request: TracedRequest, done: int, pick: Pick) -> float:
        """Return how long a round's draft takes."""
        if not pick.size:
            return 0.0
        return self._tables[pick.arm.drafter].ms[request.first + done - 1][pick.size - 1]

    def round_ms(self, request: TracedRequest, done: int, pick: Pick) -> float:
        """Return the price of a round."""
        times, size = self.trace.step_times, self.batch_size
        rows = size * (1 + pick.kept)
        if rows not in self._row_ms:
            self._row_ms[rows] = times.predict_ms(rows, size)
        cached = request.num_prompt + done - 1
        step_ms = self._row_ms[rows] / size + times.cached_token_ms * cached
        return step_ms + self.draft_ms(request, done, pick)


def best_arms(costs: Costs, requests: Sequence[TracedRequest]) -> dict[TracedRequest, Arm]:
    """Return for each request the fixed arm with which its reply costs least."""
    best = {}
    for request in requests:
        prices = {arm: _price(costs, request, arm) for arm in costs.arms}
        best[request] = min(prices, key=lambda arm: prices[arm])
    return best


def _price(costs: Costs, request: TracedRequest, arm: Arm) -> float:
    """Return what a reply costs with one arm throughout."""
    done, price = 1, 0.0
    while done < request.num_tokens:
        pick = costs.pick(request, done, arm)
        price += costs.round_ms(request, done, pick)
        accepted = len(costs.accepted_nodes(request, done, pick))
        done = min(request.num_tokens, done + accepted + 1)
    return price


@dataclass(frozen=True, slots=True)
class _Option:
    """One thing to do in a round: what it emits, verifies and waits for."""

    pick: Pick
    tokens: int
    wait_ms: float

    @property
    def cost(self) -> tuple[int, float]:
        """What of two ways to the same tokens is better: fewer rows, then less to wait."""
        return self.pick.kept, self.wait_ms


class Clairvoyant:
    """Knows of every round what each draft is worth, and cuts it where the reply leaves it.

    A batch of 1: the choices that end the reply soonest, by dynamic programming from its end, so no
    choice of arms and cuts is faster. Larger batches: of every step's choices those with the most
    tokens for its time (Dinkelbach's method, each row at the price that it adds), with the drafters
    to wait for as one set out of all, each alone, and none. Tokens of later steps are worth the
    same to it whatever comes, so it is a strong bound there, but not a strict one.

    Args:
        costs: Of the trace; its arms are those that may be chosen.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._options: dict[tuple[int, int], list[_Option]] = {}
        self._paths: dict[int, list[Pick]] = {}

    def open(self, sequence: Running) -> None:
        """Do nothing: all is known."""

    def learn(
        self, batch: Sequence[Running], picks: Sequence[Pick], outcomes: Sequence[Outcome]
    ) -> None:
        """Do nothing: all is known."""

    def close(self, sequence: Running) -> None:
        """Do nothing."""

    def plan(self, batch: Sequence[Running]) -> list[Pick]:
        """Choose the best."""
        if self._costs.batch_size == 1:
            return [self._path(one.request)[one.done] for one in batch]
        options = [self._options_of(one.request, one.done) for one in batch]
        drafters = list(dict.fromkeys(arm.drafter for arm in self._costs.arms if arm != NONE))
        sets = {frozenset(drafters), frozenset(), *(frozenset([name]) for name in drafters)}
        cached = sum([one.num_cached for one in batch])
        plans = [self._best(options, chosen, cached) for chosen in sorted(sets, key=sorted)]
        return max(plans, key=lambda plan: plan[0])[1]

    def _options_of(self, request: TracedRequest, done: int) -> list[_Option]:
        """Return what is worth considering in a round; plain decoding first."""
        key = (request.first, done)
        if key not in self._options:
            self._options[key] = self._all_options(request, done)
        return self._options[key]

    def _all_options(self, request: TracedRequest, done: int) -> list[_Option]:
        """Return plain decoding, and of each drafter the least draft for so many tokens."""
        least: dict[tuple[str, int], _Option] = {}
        left = request.num_tokens - done
        for arm in self._costs.arms:
            pick = self._costs.pick(request, done, arm)
            wait_ms = self._costs.draft_ms(request, done, pick)
            for count, node in enumerate(self._costs.accepted_nodes(request, done, pick), start=1):
                option = _Option(replace(pick, kept=node + 1), min(count + 1, left), wait_ms)
                key = (arm.drafter, option.tokens)
                if key not in least or option.cost < least[key].cost:
                    least[key] = option
        return [_Option(Pick(), 1, 0.0), *least.values()]

    def _path(self, request: TracedRequest) -> list[Pick]:
        """Return the best pick by tokens known, from the end of the reply backwards."""
        if request.first not in self._paths:
            end = request.num_tokens
            rest_ms, picks = [0.0] * (end + 1), [Pick()] * (end + 1)
            for done in range(end - 1, 0, -1):
                options = self._options_of(request, done)
                totals = [
                    self._costs.round_ms(request, done, option.pick) + rest_ms[done + option.tokens]
                    for option in options
                ]
                rest_ms[done] = min(totals)
                picks[done] = options[totals.index(rest_ms[done])].pick
            self._paths[request.first] = picks
        return self._paths[request.first]

    def _best(
        self, options: Sequence[Sequence[_Option]], drafters: frozenset[str], cached: int
    ) -> tuple[float, list[Pick]]:
        """Return tokens a millisecond and picks of the best plan that asks only ``drafters``."""
        allowed = [
            [one for one in some if not one.pick.kept or one.pick.arm.drafter in drafters]
            for some in options
        ]
        chosen = [some[0] for some in allowed]
        rate, best = self._rate(chosen, cached), chosen
        for _ in range(4):
            row_ms = self._row_ms(chosen, cached)
            chosen = [_dearest(some, rate, row_ms) for some in allowed]
            new_rate = self._rate(chosen, cached)
            if new_rate <= rate:
                break
            rate, best = new_rate, chosen
        return rate, [one.pick for one in best]

    def _rate(self, chosen: Sequence[_Option], cached: int) -> float:
        waits: dict[str, float] = {}
        for one in chosen:
            waits[one.pick.arm.drafter] = waits.get(one.pick.arm.drafter, 0.0) + one.wait_ms
        rows = len(chosen) + sum([one.pick.kept for one in chosen])
        step_ms = self._costs.trace.step_times.predict_ms(rows, len(chosen), cached)
        return sum([one.tokens for one in chosen]) / (step_ms + max(waits.values()))

    def _row_ms(self, chosen: Sequence[_Option], cached: int) -> float:
        """Return what a row more costs, taken over as many rows as there are sequences."""
        times, size = self._costs.trace.step_times, len(chosen)
        rows = size + sum([one.pick.kept for one in chosen])
        return (times.table_ms(rows + size) - times.table_ms(rows)) / size


def _dearest(options: Sequence[_Option], rate: float, row_ms: float) -> _Option:
    """Return the option whose tokens are worth most, less what its rows and its wait cost."""
    best, most = options[0], float(options[0].tokens)
    for one in options[1:]:
        worth = one.tokens - rate * (row_ms * one.pick.kept + one.wait_ms)
        if worth > most:
            best, most = one, worth
    return best
