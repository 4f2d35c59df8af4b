"""What the command line answers to what cannot be: one line, exit code 2, nothing left running."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster import __version__
from tests.system import ROOT


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cluster", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def serve(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run("serve", "--state-dir", str(folder / "state"), *options)


def unused_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--model", "/no/such/model"], "error: no model at /no/such/model: expected a folder"),
        (["--model", "not a model"], "error: unknown model 'not a model'"),
        (["--redis-url", "redis://:secret@127.0.0.1:1/0"], "error: Redis at redis://127.0.0.1:1/0"),
        (["--redis-url", "nonsense"], "error: redis.url: not a Redis URL"),
        (["--address", "127.0.0.1:1"], "error: no Ray answers at 127.0.0.1:1"),
        (["--address", "ray://127.0.0.1:1"], "error: cannot join the Ray at ray://127.0.0.1:1"),
        (["--host", "203.0.113.1"], "error: cannot listen on 203.0.113.1"),
        (["--port", "99999"], "error: port: input should be less than or equal to 65535"),
        (["--replicas", "0"], "error: verifier.num_replicas: input should be greater than"),
        (["--config", "/no/such/file"], "error: cannot read the configuration /no/such/file"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(
    tmp_path: Path, options: Sequence[str], line: str
) -> None:
    port = [] if "--port" in options else ["--port", unused_port()]
    done = serve(tmp_path, *options, *port)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1
    assert "secret" not in done.stdout + done.stderr


def test_a_port_in_use_is_found_before_anything_is_started(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = serve(tmp_path, "--port", str(port))
    assert (done.returncode, done.stdout) == (2, "")
    expected = f"error: port {port} on 127.0.0.1 is in use; choose another one with --port\n"
    assert done.stderr == expected


def test_a_wrong_key_gets_the_nearest_right_one(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("verifier: {engine: {pagetokens: 3}}")
    done = serve(tmp_path, "--config", str(path))
    assert done.returncode == 2
    assert done.stderr.endswith(
        "verifier.engine.pagetokens: unknown key; did you mean page_tokens?\n"
    )


def test_the_shown_configuration_is_a_configuration(tmp_path: Path) -> None:
    shown = run("config", "show")
    path = tmp_path / "config.yaml"
    path.write_text(shown.stdout)
    assert run("config", "show", "--config", str(path)).stdout == shown.stdout


def test_no_system_no_status(tmp_path: Path) -> None:
    done = run("status", "--url", f"http://127.0.0.1:{unused_port()}")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no status from http://127.0.0.1:")


def test_an_empty_cache_says_how_to_fill_it(tmp_path: Path) -> None:
    done = run("models", "list", "--cache-dir", str(tmp_path))
    assert done.returncode == 0
    assert "banditserve models fetch" in done.stdout


def test_the_version_is_said() -> None:
    assert run("version").stdout.startswith(f"banditserve {__version__}\n")


@pytest.mark.parametrize("command", ["serve", "status", "models fetch", "config show"])
def test_every_option_is_explained(command: str) -> None:
    done = run(*command.split(), "--help")
    assert done.returncode == 0
    assert "--help" in done.stdout


def test_serve_names_each_options_default() -> None:
    text = " ".join(run("serve", "--help").stdout.split())
    for default in ("smollm2", "127.0.0.1", "8000", "BANDITSERVE_CACHE", "XDG_STATE_HOME"):
        assert default in text
