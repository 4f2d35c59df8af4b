"""Decision logs: format, rotation, a writer that never makes anybody wait, readers that refuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_service.api import Arm, Decision, RequestFeatures
from policy_service.config import DecisionLogConfig
from policy_service.decision_log.lines import header_line, parse_header, parse_record, record_line
from policy_service.decision_log.reader import read_log
from policy_service.decision_log.recent_rounds import RecentRounds
from policy_service.decision_log.records import RoundRecord, is_sampled
from policy_service.decision_log.rotation import Rotation, is_log_name, log_name
from policy_service.decision_log.writer import DecisionLogWriter, RotatingFiles
from policy_service.errors import DecisionLogError
from tests.learner_games import outcome_of
from tests.logged_games import ARMS, HEADER, record_of

DEADLINE_S = 20.0


def some_record(request_id: str = "r", index: int = 0, propensity: float = 0.1) -> RoundRecord:
    estimates = {"none": 1.0, "suffix:2": float("inf"), "suffix:6": 1 / 3}
    decision = Decision(ARMS[2], "exp3spec", "drawn", propensity, 3, estimates)
    return record_of(request_id, index, ARMS, decision, outcome_of(ARMS[2], 2), draft_score=1.5)


def writer(folder: Path, max_bytes: int = 2**16, max_files: int = 3) -> DecisionLogWriter:
    config = DecisionLogConfig(folder=folder, max_bytes=max_bytes, max_files=max_files)
    return DecisionLogWriter(config, HEADER)


def log_file(folder: Path, *lines: str, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(lines))
    return path


@given(
    propensity=st.floats(min_value=1e-12, max_value=1.0),
    index=st.integers(0, 10**6),
    accepted=st.integers(0, 6),
    text=st.text(max_size=20),
)
def test_a_round_survives_its_line(propensity: float, index: int, accepted: int, text: str) -> None:
    arm = Arm("suffix", 6)
    features = RequestFeatures(text, "chat", "ab12", 0.25, 17, 0.7)
    decision = Decision(arm, "exp3spec", text, propensity, 3, {"none": 0.25, "suffix:6": 0.75})
    record = record_of(
        "r-1", index, ARMS, decision, outcome_of(arm, accepted), features=features, sequence="ab.2"
    )
    line = record_line(record, "hash")
    assert line.endswith("\n")
    assert line.count("\n") == 1
    read = parse_record(line)
    assert replace(read, features=replace(read.features, tenant=text)) == record


def test_tenants_are_hashed_or_left_out() -> None:
    record = replace(some_record(), features=RequestFeatures(tenant="acme"))
    hashed = parse_record(record_line(record, "hash")).features.tenant
    assert hashed not in ("", "acme")
    assert len(hashed) == 12
    assert parse_record(record_line(record, "omit")).features.tenant == ""
    assert "acme" not in record_line(record, "hash") + record_line(record, "omit")


def test_estimates_that_are_no_numbers_are_left_out() -> None:
    read = parse_record(record_line(some_record(), "hash"))
    assert read.decision.estimates == {"none": 1.0, "suffix:6": 0.333333}


def test_a_share_of_requests_is_sampled_and_always_the_same_ones() -> None:
    ids = [f"request-{number}" for number in range(2000)]
    sampled = [one for one in ids if is_sampled(one, 0.1)]
    assert 140 < len(sampled) < 260
    assert all(is_sampled(one, 0.2) for one in sampled)
    assert all(is_sampled(one, 1.0) for one in ids)
    assert not any(is_sampled(one, 0.0) for one in ids)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no header"),
        ("[]\n", "no header"),
        ('{"a":1}\n', "no decision log"),
        (header_line(HEADER).replace('log":1', 'log":2'), "version 2; this program reads"),
        (header_line(HEADER).replace("replica", "replika"), "not complete"),
        (header_line(HEADER).replace('"tokens"', '"gold"'), "unknown reward 'gold'"),
    ],
)
def test_headers_that_are_refused(line: str, message: str) -> None:
    with pytest.raises(DecisionLogError, match=message):
        parse_header(line)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"propensity":0.1', '"propensity":0', "propensity"),
        ('"propensity":0.1', '"propensity":NaN', "propensity"),
        ('"arm":"suffix:6"', '"arm":"rest:6"', "not one of those allowed"),
        ('"arm":"suffix:6"', '"arm":"suffix"', "no round"),
        ('"round":0', '"place":0', "KeyError"),
        ('"step_ms":10.0', '"step_ms":-1', "step_ms"),
        ('"num_verified":6', '"num_verified":7', "more tokens verified"),
        ("{", "{{", "no round"),
    ],
)
def test_rounds_that_are_refused(old: str, new: str, message: str) -> None:
    line = record_line(some_record(), "hash")
    assert old in line
    with pytest.raises(DecisionLogError, match=message):
        parse_record(line.replace(old, new, 1))


def test_a_corrupt_line_is_named(tmp_path: Path) -> None:
    line = record_line(some_record(), "hash")
    path = log_file(tmp_path, header_line(HEADER), line, line[:40] + "\n", line)
    with pytest.raises(DecisionLogError, match=r"log\.jsonl, line 3: no round"):
        read_log([path])
    with pytest.raises(DecisionLogError, match="cannot read"):
        read_log([tmp_path / "absent"])
    with pytest.raises(DecisionLogError, match="no decision log is in this folder"):
        read_log([tmp_path])
    path.write_bytes(header_line(HEADER).encode() + b"\xff\xfe\n")
    with pytest.raises(DecisionLogError, match="line 2"):
        read_log([path])


@pytest.mark.parametrize("cut", [1, 40, 41, 300])
def test_a_last_line_without_an_end_is_left_out(tmp_path: Path, cut: int) -> None:
    lines = [record_line(some_record(index=index), "hash") for index in range(3)]
    text = header_line(HEADER) + "".join(lines)
    path = log_file(tmp_path, text[:-cut])
    log = read_log([path])
    assert [one.index for reply in log.replies for one in reply.rounds] == [0, 1]
    assert log.notes == [f"{path}: line 4, the last, has no end and was left out"]


def test_rounds_behind_a_gap_are_left_out(tmp_path: Path) -> None:
    lines = [record_line(some_record(index=index), "hash") for index in (0, 1, 3, 4)]
    late = [record_line(some_record("late", index=index), "hash") for index in (5, 6)]
    log = read_log([log_file(tmp_path, header_line(HEADER), *late, *lines)])
    by_id = {reply.rounds[0].request_id: reply for reply in log.replies}
    assert [one.index for one in by_id["r"].rounds] == [0, 1]
    assert by_id["r"].is_from_start
    assert [one.index for one in by_id["late"].rounds] == [5, 6]
    assert not by_id["late"].is_from_start
    assert log.notes == ["2 rounds behind a gap in their reply were left out"]


def test_files_are_bounded_and_lines_stay_whole(tmp_path: Path) -> None:
    written = writer(tmp_path, max_files=3)
    (tmp_path / "notes.txt").write_text("not ours")
    for index in range(800):
        while not written.write([some_record(index=index)]):
            time.sleep(0.001)  # until the queue has room: here all must arrive
    written.close(DEADLINE_S)
    assert written.status()["written"] == 800
    names = sorted(path.name for path in tmp_path.iterdir() if is_log_name(path.name))
    assert len(names) == 3
    assert all((tmp_path / name).stat().st_size <= 2**16 for name in names)
    assert (tmp_path / "notes.txt").exists()
    log = read_log([tmp_path])
    assert log.notes == []
    [reply] = log.replies
    assert [one.index for one in reply.rounds] == list(range(reply.rounds[0].index, 800))
    assert not reply.is_from_start


def test_a_file_that_is_written_is_not_deleted(tmp_path: Path) -> None:
    slow, busy = writer(tmp_path, max_files=1), writer(tmp_path, max_files=1)
    slow.write([some_record("slow")])
    until(lambda: slow.status()["written"] == 1)
    for index in range(400):
        while not busy.write([some_record("busy", index)]):
            time.sleep(0.001)
    busy.close(DEADLINE_S)
    slow.write([some_record("slow", 1)])
    slow.close(DEADLINE_S)
    log = read_log([tmp_path])
    assert [len(one.rounds) for one in log.replies if one.rounds[0].request_id == "slow"] == [2]
    # With the slow one gone, whoever begins a file next deletes what it left.
    last = writer(tmp_path, max_files=1)
    last.write([some_record("last")])
    last.close(DEADLINE_S)
    assert [one.rounds[0].request_id for one in read_log([tmp_path]).replies] == ["last"]


@given(
    sizes=st.lists(st.integers(1, 60), max_size=60), num_files=st.integers(1, 4), limit=st.just(100)
)
def test_rotation_keeps_the_newest(sizes: list[int], num_files: int, limit: int) -> None:
    rotation = Rotation(limit, num_files)
    names: list[str] = []
    file_bytes = limit
    for size in sizes:
        if rotation.is_full(file_bytes, size):
            names.append(log_name(1e9 + len(names), "0f3a5577", len(names)))
            file_bytes = 0
            outdated = rotation.outdated([*names, "other.jsonl"])
            assert outdated == names[: len(outdated)]
            names = names[len(outdated) :]
        file_bytes += size
        assert file_bytes <= limit
        assert len(names) <= num_files


class StuckFiles(RotatingFiles):
    """A disk that answers only when it is told to."""

    answers = threading.Event()

    def write(self, line: bytes) -> bool:
        assert self.answers.wait(DEADLINE_S)
        return super().write(line)


def test_a_disk_that_does_not_answer_makes_nobody_wait(tmp_path: Path) -> None:
    config = DecisionLogConfig(folder=tmp_path)
    written = DecisionLogWriter(config, HEADER, max_queued=4, open_files=StuckFiles)
    step = [some_record("a"), some_record("b")]
    started = time.monotonic()
    taken = [written.write(step) for _ in range(200)]
    assert time.monotonic() - started < 1.0
    assert 4 <= sum(taken) <= 5  # those of the queue, and perhaps one that the thread holds
    assert written.status()["dropped"] == 2 * (200 - sum(taken))
    StuckFiles.answers.set()
    written.close(DEADLINE_S)
    assert written.status()["written"] == 2 * sum(taken)


class FullDisk(RotatingFiles):
    """A disk that is full until it is told to have room."""

    is_full = True

    def write(self, line: bytes) -> bool:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(line)


def test_a_full_disk_costs_rounds_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy_service.decision_log.writer._FIRST_PAUSE_S", 0.01)
    written = DecisionLogWriter(DecisionLogConfig(folder=tmp_path), HEADER, open_files=FullDisk)
    written.write([some_record()])
    until(lambda: written.status()["failed"] == 1)
    assert "No space left" in written.status()["problem"]
    FullDisk.is_full = False

    def is_written() -> bool:
        written.write([some_record()])
        return bool(written.status()["written"])

    until(is_written)
    written.close(DEADLINE_S)
    assert written.status()["problem"] is None
    assert len(read_log([tmp_path]).replies) == 1


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    written = writer(tmp_path / "file" / "folder")
    written.write([some_record()])
    until(lambda: written.status()["failed"] == 1)
    assert "Error" in written.status()["problem"]
    written.close(DEADLINE_S)


_ENDLESS = """
import sys
from pathlib import Path
from tests.unit.policy_service.test_decision_log import some_record, writer
written = writer(Path(sys.argv[1]))
index = 0
while True:
    index += written.write([some_record(index=index)])
"""


def test_a_killed_writer_leaves_a_readable_log(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _ENDLESS, str(tmp_path)])
    try:
        until(lambda: sum(path.stat().st_size for path in tmp_path.glob("*.jsonl")) > 2**17)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    log = read_log([tmp_path])
    rounds = [one.index for reply in log.replies for one in reply.rounds]
    assert rounds == list(range(rounds[0], rounds[0] + len(rounds)))
    assert len(rounds) > 50
    written = writer(tmp_path)  # another begins a file of its own and does not mind
    written.write([some_record("next")])
    written.close(DEADLINE_S)
    assert "next" in [reply.rounds[0].request_id for reply in read_log([tmp_path]).replies]


def test_no_text_is_in_a_line() -> None:
    values = json.loads(record_line(some_record(), "hash"))
    assert set(values) == {
        *("request", "sequence", "choice", "round", "position", "time", "features", "allowed"),
        *("decision", "outcome", "draft_score", "accepted_nodes"),
    }


def test_recent_rounds_are_bounded_and_the_oldest_go_first() -> None:
    recent = RecentRounds(5)
    recent.add([some_record("a", 0), some_record("b", 0)])
    recent.add([some_record("a", 1), some_record("b", 1), some_record("c", 0)])
    recent.add([some_record("b", 2), some_record("c", 1)])
    assert len(recent) == 5
    indices = {name: [one.index for one in recent.of(name)] for name in "abcd"}
    assert indices == {"a": [], "b": [0, 1, 2], "c": [0, 1], "d": []}
    RecentRounds(0).add([some_record()])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.005)
