"""Figures, checks and plots of load tests, from records made by hand."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.loadtest.arrivals import draw_arrivals
from cluster.loadtest.checks import StoredRounds, Verdict, verdicts
from cluster.loadtest.client import request_body, take_chunk
from cluster.loadtest.prompts import prompt_pools
from cluster.loadtest.records import ArmTally, LoadResult, RequestRecord, Sample
from cluster.loadtest.report import Report, about, lines, write
from cluster.loadtest.scenario import Checks, Phase, Scenario, Slo
from cluster.loadtest.series import Bins, Plot, Values, plots
from cluster.loadtest.stored import gained
from cluster.loadtest.summary import figures, summarise
from cluster.loadtest.svg import draw
from cluster.loadtest.watch import sample_of

PHASES = (
    Phase(name="talk", duration_s=10, rate=1, mix={"chat": 1}),
    Phase(name="work", duration_s=10, rate=1, mix={"code": 1}),
)
SCENARIO = Scenario(name="made", phases=PHASES, slo=Slo(ttft_ms=500, itl_ms=100))


def record(
    index: int, workload: str = "chat", arm: str = "none", accepted: int = 0
) -> RequestRecord:
    at_s = 1.0 * index
    verified = 400 if arm != "none" else 0
    return RequestRecord(
        index,
        "talk" if workload == "chat" else "work",
        workload,
        "p",
        planned_s=at_s,
        sent_s=at_s + 0.01,
        tokens=[(at_s + 0.25, 1), (at_s + 0.35, 3), (at_s + 0.45, 4)],
        ended_s=at_s + 0.5,
        finish_reason="length",
        arms={arm: ArmTally(200, verified, accepted, 300)},
    )


def samples(*counts: int) -> list[Sample]:
    return [Sample(float(at), count, {"pld": 1}, 0, 1) for at, count in enumerate(counts)]


def judge(checks: Checks, result: LoadResult, **stored: StoredRounds) -> list[Verdict]:
    return verdicts(checks, result, summarise(SCENARIO, result), stored or None)


def test_latencies_count_from_the_planned_time_and_share_a_pieces_time() -> None:
    one = record(0)
    assert one.ttft_ms == pytest.approx(250)
    assert [round(ms) for _, ms, _ in one.gaps_ms()] == [50, 100]
    assert one.mean_itl_ms == pytest.approx(200 / 3)
    found = figures([one], 2.0, SCENARIO.slo)
    assert found["itl_ms"]["p50"] == pytest.approx(50)  # two of three tokens
    assert found["itl_ms"]["p95"] == pytest.approx(100)
    assert found["tokens_per_s"] == found["goodput_tokens_per_s"] == 2.0


def test_slow_and_failed_replies_are_no_goodput() -> None:
    late = replace(record(0), tokens=[(0.6, 1), (0.7, 4)])
    slow = replace(record(1), tokens=[(1.2, 1), (2.0, 4)])
    failed = replace(record(2), error="HTTP 503")
    found = figures([late, slow, failed, record(3)], 1.0, SCENARIO.slo)
    assert (found["tokens_per_s"], found["goodput_tokens_per_s"]) == (12.0, 4.0)
    assert (found["requests"], found["failed"], found["errors"]) == (4, 1, {"HTTP 503": 1})


def test_a_failed_request_fails_the_load_test() -> None:
    result = LoadResult([record(0), replace(record(1), error="HTTP 500")], samples(1), 20.0)
    assert not judge(Checks(), result)[0].passed
    assert judge(Checks(max_failed=1), result)[0].passed
    assert not judge(Checks(), LoadResult([], samples(1), 20.0))[0].passed


@pytest.mark.parametrize(
    ("counts", "up", "down"),
    [
        ((1, 1, 2, 2, 1, 1, 1), True, True),
        ((1, 2, 2, 2), True, False),
        ((2, 2, 1, 1, 1), False, True),
        ((1, 2, 1, 2, 2), True, False),  # one late answer is no scale-down
        ((), False, False),
    ],
)
def test_scaling_is_seen_in_the_samples(counts: tuple[int, ...], up: bool, down: bool) -> None:
    result = LoadResult([record(0)], samples(*counts), 20.0)
    found = judge(Checks(scale_up=True, scale_down=True), result)
    assert [verdict.passed for verdict in found[1:]] == [up, down]


def test_workloads_that_accept_more_must_be_given_longer_drafts() -> None:
    checks = Checks(arms_follow_mix=True)
    follows = [record(0, accepted=0), record(1, "code", "pld:8", 300)]
    follows[0].arms["pld:2"] = ArmTally(100, 100, 10, 110)
    assert all(v.passed for v in judge(checks, LoadResult(follows, samples(1), 20.0)))
    against = [record(0, arm="pld:8", accepted=40), record(1, "code")]
    against[1].arms["pld:2"] = ArmTally(100, 100, 80, 180)
    found = judge(checks, LoadResult(against, samples(1), 20.0))
    assert [verdict.passed for verdict in found[1:]] == [False, False]
    alike = [record(0), record(1, "code")]
    assert not judge(checks, LoadResult(alike, samples(1), 20.0))[1].passed


def test_counts_must_be_those_of_the_replies_for_every_arm() -> None:
    checks = Checks(counts_add_up=True)
    result = LoadResult([record(0), record(1, "code", "pld:8", 300)], samples(1), 20.0)
    right = {"none": StoredRounds(200), "pld:8": StoredRounds(200, 400, 300)}
    assert verdicts(checks, result, summarise(SCENARIO, result), right)[1].passed
    for wrong in (
        {**right, "none": StoredRounds(201)},
        {**right, "pld:8": StoredRounds(200, 400, 299)},
        {"none": StoredRounds(200)},
        {**right, "pld:4": StoredRounds(1)},
    ):
        assert not verdicts(checks, result, summarise(SCENARIO, result), wrong)[1].passed
    assert not judge(checks, result)[1].passed


def test_what_a_store_gained_leaves_out_what_did_not_change() -> None:
    before = {"a": StoredRounds(5, 2, 1), "b": StoredRounds(3)}
    after = {"a": StoredRounds(8, 2, 1), "b": StoredRounds(3), "c": StoredRounds(1)}
    assert gained(before, after) == {"a": StoredRounds(3), "c": StoredRounds(1)}


def test_bins_hold_every_time() -> None:
    bins = Bins(650.0)
    assert (bins.width_s, bins.count) == (11, 60)
    found = [bins.number(at_s) for at_s in (-1.0, 0.0, 10.9, 11.0, 649.0, 900.0)]
    assert found == [0, 0, 0, 1, 59, 59]
    assert Bins(20.0).width_s == 5


def test_the_report_is_whole_and_its_plots_are_well_formed(tmp_path: Path) -> None:
    records = [record(0), record(2), record(12, "code", "pld:8", 300)]
    result = LoadResult(records, samples(1, 2, 2, 1), 20.0)
    summary = summarise(SCENARIO, result)
    found = verdicts(Checks(), result, summary, None)
    report = Report(SCENARIO, about("http://x", "m", 1), result, summary, found)
    json_path, html_path = write(report, tmp_path / "out")
    data = json.loads(json_path.read_text())
    assert data["passed"]
    assert [len(data[key]) for key in ("requests", "samples")] == [3, 4]
    assert {plot["title"] for plot in data["plots"]} >= {
        "Arrivals",
        "Replicas that answer",
        "Queue",
        "Time to first token",
        "Inter-token latency",
        "Goodput",
        "Arms: chat",
        "Arms: code",
        "Acceptance",
    }
    html = html_path.read_text()
    assert html.count("<svg") == len(data["plots"])
    assert "http" not in html.replace("http://x", "")  # nothing is loaded from elsewhere
    for plot in plots(SCENARIO, result):
        ET.fromstring(draw(plot, 20.0, [(0.0, "talk & <work>")]))
    assert any("requests:" in line and line.endswith(" 3") for line in lines(report))


def test_lines_break_where_there_is_no_value_and_bars_stack() -> None:
    lines: dict[str, Values] = {"a": [1.0, None, 2.0, 2.0], "b": [1.0, 1.0, 1.0, 2.0]}
    plot = Plot("t", "u", [0.0, 1.0, 2.0, 3.0], lines)
    marks = [element.tag for element in ET.fromstring(draw(plot, 3.0, []))]
    assert (marks.count("circle"), marks.count("polyline")) == (1, 2)
    stacked = ET.fromstring(draw(replace(plot, stacked=True), 3.0, []))
    bars = [element.attrib for element in stacked if element.tag == "rect"]
    assert len(bars) == 6  # none where a value is missing
    lowest, highest = bars[2], bars[-1]
    assert float(highest["y"]) + float(highest["height"]) == pytest.approx(float(lowest["y"]))
    assert {bar["width"] for bar in bars} == {lowest["width"]}


def test_a_stream_is_taken_apart() -> None:
    scenario = Scenario(name="s", phases=PHASES)
    arrival = draw_arrivals(scenario, prompt_pools(scenario, Path("none")), 1)[0]
    assert request_body(arrival, "m")["speculation"] == {"explain": True}
    told = {"arm": "pld:4", "num_verified": 4, "num_accepted": 2, "num_emitted": 3}
    one = RequestRecord(0, "talk", "chat", "p", 0.0)
    usage = {"prompt_tokens": 5, "completion_tokens": 0}
    take_chunk(
        one, {"choices": [{"delta": {"role": "assistant", "content": ""}}], "usage": usage}, 0.1
    )
    usage = {"prompt_tokens": 5, "completion_tokens": 3}
    take_chunk(one, {"choices": [{"delta": {"content": "Hi"}}], "usage": usage}, 0.2)
    end = {"choices": [{"delta": {}, "finish_reason": "length"}], "usage": usage}
    take_chunk(one, end, 0.3)
    take_chunk(one, {"choices": [], "banditserve": {"verifier": "v", "rounds": [told, told]}}, 0.3)
    assert (one.tokens, one.text, one.finish_reason) == ([(0.2, 3)], "Hi", "length")
    assert one.arms == {"pld:4": ArmTally(2, 8, 4, 6)}
    with pytest.raises(ValueError, match="no Verifier"):
        take_chunk(one, {"error": {"message": "no Verifier"}}, 0.4)


def test_a_status_is_counted() -> None:
    report = {"num_waiting": 2, "num_running": 3}
    status = {
        "verifiers": [
            {"is_away": False, "report": report},
            {"is_away": True, "report": report},
        ],
        "drafters": {
            "pld": [
                {"is_away": False, "report": {"up": True}},
                {"is_away": False, "report": {"up": False}},
            ]
        },
    }
    assert sample_of(status, 1.0) == Sample(1.0, 1, {"pld": 1}, 2, 3)
