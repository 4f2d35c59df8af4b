from __future__ import annotations

import io

import pytest

from cluster import progress
from cluster.progress import Reporter, Task


def test_without_a_terminal_a_task_is_a_plain_line() -> None:
    out = io.StringIO()
    with Reporter(out).task("Doing it"):
        pass
    assert out.getvalue() == "Doing it ...\n"


def test_a_long_task_says_how_far_it_is_and_how_long_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_QUICK_S", 0.0)
    out = io.StringIO()
    with Reporter(out).task("Downloading", 2_000_000) as task:
        task(500_000)
        assert task.text() == "Downloading: 0.5 of 2.0 MB (0 s)"
    assert out.getvalue() == "Downloading ...\n  done: Downloading: 0.5 of 2.0 MB (0 s)\n"


def test_a_note_says_what_is_waited_for() -> None:
    task = Task("Deploying", None)
    task.note("waiting for A")
    assert task.text() == "Deploying: waiting for A (0 s)"


def test_long_lines_and_brackets_come_out_as_they_are() -> None:
    out = io.StringIO()
    line = "curl " + "x" * 300 + " [bold]"
    Reporter(out).say(line)
    assert out.getvalue() == line + "\n"
