"""``banditserve policy explain`` and ``policy replay``, on logs and on a server that answers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app, main
from policy_service.api import NONE, Decision
from policy_service.decision_log.lines import header_line, record_line
from policy_service.decision_log.rotation import log_name
from policy_service.loading import load_learner
from tests.learner_games import outcome_of
from tests.logged_games import ARMS, HEADER, Prompts, record_of

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log of ``uniform``: 60 requests of 20 rounds, and one of two choices."""
    path = tmp_path_factory.mktemp("decisions")
    replies = Prompts(rounds=20).logged(load_learner("uniform", {}), 60, 0)
    records = [record for reply in replies for record in reply.rounds]
    decision = Decision(ARMS[2], "ucbspec", "highest bound", 1.0, 7, {"suffix:6": 2.5, "none": 1.0})
    for choice in (1, 0):
        one = record_of("mine", 0, ARMS, decision, outcome_of(ARMS[2], 4), choice=choice)
        other = Decision(NONE, "ucbspec", "no room", 1.0, 7)
        two = record_of("mine", 1, (NONE,), other, outcome_of(NONE, 0), choice=choice, position=6)
        records += [one, two]
    lines = [header_line(HEADER), *(record_line(record, "hash") for record in records)]
    (path / log_name(HEADER.created_at, HEADER.incarnation, 0)).write_text("".join(lines))
    return path


def invoke(*arguments: object) -> str:
    result = RUNNER.invoke(app, ["policy", *map(str, arguments)])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> str:
    """Return the one line that an error is."""
    monkeypatch.setattr(sys, "argv", ["banditserve", "policy", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_explains_a_request_from_a_log(folder: Path) -> None:
    text = invoke("explain", "mine", "--log", folder)
    assert text.count("request mine, choice") == 2
    assert text.index("choice 0") < text.index("choice 1")
    row = next(line for line in text.splitlines() if "highest bound" in line)
    for part in ("suffix:6", "ucbspec: highest bound", "suffix:6 2.5, none 1", "6 > 6 > 4"):
        assert part in row
    assert any("all" in line and "3.00" in line for line in text.splitlines())
    answer = json.loads(invoke("explain", "mine", "--log", folder, "--json"))
    assert [len(choice["rounds"]) for choice in answer["choices"]] == [2, 2]
    assert answer["choices"][0]["rounds"][1]["position"] == 6


def test_what_no_log_knows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(monkeypatch, capsys, "explain", "theirs", "--log", folder)
    assert "no round of request 'theirs' is in the log" in error
    error = refused(monkeypatch, capsys, "explain", "mine", "--log", folder / "absent")
    assert "cannot read" in error


class Answers(BaseHTTPRequestHandler):
    """Answers as an Ingress does."""

    answer: tuple[int, Any] = 200, {}
    asked: tuple[str, str | None] = "", None

    def do_GET(self) -> None:
        type(self).asked = self.path, self.headers.get("Authorization")
        status, body = self.answer
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_explains_a_request_of_a_running_system(url: str, folder: Path) -> None:
    body = json.loads(invoke("explain", "mine", "--log", folder, "--json"))
    Answers.answer = 200, body
    text = invoke("explain", "a/b", "--url", url, "--api-key", "k")
    assert text.count("request a/b, choice") == 2
    assert Answers.asked == ("/v1/requests/a%2Fb/explain", "Bearer k")
    assert json.loads(invoke("explain", "mine", "--url", url, "--json")) == body


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((404, {"error": {"message": "nothing is held of it"}}), "nothing is held of it"),
        ((500, {}), "answered with 500"),
        ((200, []), "expected an object"),
    ],
)
def test_what_a_running_system_refuses(
    url: str,
    answer: tuple[int, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Answers.answer = answer
    assert message in refused(monkeypatch, capsys, "explain", "mine", "--url", url)


def test_a_system_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no answer from" in refused(
        monkeypatch, capsys, "explain", "mine", "--url", "http://127.0.0.1:9"
    )


def test_replays_a_log_for_a_learner(folder: Path) -> None:
    text = invoke(
        *("replay", folder, "--learner", "fixed", "--param", "arm=suffix:6"),
        *("--resamples", 100, "--prior-strength", 0),
    )
    for part in ("the log as it was", "replay", "SNIPS", "doubly robust", "61 requests"):
        assert part in text
    answer = json.loads(
        invoke("replay", folder, "--learner", "fixed", "--param", "arm=suffix:6", "--json")
    )
    assert answer["log_learners"] == ["ucbspec", "uniform"]
    assert answer["reward"] == "tokens"
    assert answer["params"] == {"arm": "suffix:6"}
    snips = answer["estimates"]["snips"]["tokens_per_round"]
    assert snips["low"] < snips["value"] < snips["high"]
    assert answer["support"]["requests"] == 61


def test_replays_and_warns(folder: Path, tmp_path: Path) -> None:
    [path] = folder.iterdir()
    text = path.read_text()
    short = tmp_path / "short.jsonl"
    short.write_text(text[: len(text) // 10])
    output = invoke("replay", short, "--learner", "exp3spec", "--reward", "time")
    assert "has no end and was left out" in output
    assert "warning: too little to go by" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learner", "ucbspek"], "did you mean 'ucbspec'"),
        (["--learner", "ucbspec", "--param", "deltas=1"], "did you mean 'delta'"),
        (["--learner", "ucbspec", "--param", "delta"], "expected --param NAME=VALUE"),
        (["--learner", "ucbspec", "--param", "delta={"], "cannot be read"),
        (["--learner", "ucbspec", "--param", "delta=7"], "delta"),
        (["--learner", "fixed", "--param", "arm=suffix:5"], "unknown arm 'suffix:5'"),
        (["--learner", "ucbspec", "--reward", "gold"], "tokens or time"),
    ],
)
def test_replays_that_are_refused(
    folder: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert message in refused(monkeypatch, capsys, "replay", folder, *arguments)


def test_logs_that_cannot_be_replayed(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    [path] = folder.iterdir()
    newer = tmp_path / "newer.jsonl"
    newer.write_text(path.read_text().replace('log":1', 'log":2', 1))
    arguments = ("--learner", "uniform")
    assert "version 2" in refused(monkeypatch, capsys, "replay", newer, *arguments)
    forced = replace(
        record_of("a", 0, (NONE,), Decision(NONE, "none", "off"), outcome_of(NONE, 0)),
        time=1.0,
    )
    newer.write_text(header_line(HEADER) + record_line(forced, "hash"))
    error = refused(monkeypatch, capsys, "replay", newer, *arguments)
    assert "no reply of the log had a choice" in error
