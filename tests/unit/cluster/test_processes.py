from __future__ import annotations

import os
import subprocess
import sys

from cluster.processes import command_line, descendants, end_all, in_session

CHILD = (
    "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); "
    "p.wait()"
)


def test_children_and_their_children_are_found_and_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout:
        grandchild = int(child.stdout.readline())
        found = descendants(os.getpid())
        assert {child.pid, grandchild} <= found.keys()
        mine = {pid: found[pid] for pid in (child.pid, grandchild)}
        assert set(end_all(mine, grace_s=0.0)) == mine.keys()
        child.wait(10)
    assert end_all(mine, grace_s=5.0) == []


def test_a_process_id_that_went_to_another_process_is_left_alone() -> None:
    assert end_all({os.getpid(): "not when we started"}, grace_s=0.0) == []


def test_a_sessions_processes_are_found_after_their_parent_has_ended() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stdout is not None
    with child.stdout:
        grandchild = int(child.stdout.readline())
        assert in_session(child.pid).keys() == {child.pid, grandchild}
        assert command_line(grandchild) == "sleep 60"
        child.kill()
        child.wait(10)
        left = in_session(child.pid)
        assert left.keys() == {grandchild}
        assert end_all(left, grace_s=0.0) == [grandchild]
