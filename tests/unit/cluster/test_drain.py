"""The wait of a pod that is to go: until its replicas have gone, but not for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.drain import LOST_AFTER_S, num_replicas, wait


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_it_waits_until_the_last_replica_has_gone() -> None:
    clock = Clock()
    assert wait(lambda: int(clock.now < 40), lambda: True, 600.0, clock, clock.sleep)
    assert clock.now == pytest.approx(40, abs=2)


def test_it_gives_up_at_the_deadline() -> None:
    clock = Clock()
    assert not wait(lambda: 1, lambda: True, 600.0, clock, clock.sleep)
    assert clock.now == pytest.approx(600, abs=2)


def test_without_a_head_nothing_will_be_moved() -> None:
    clock = Clock()
    assert not wait(lambda: 1, lambda: clock.now < 100, 600.0, clock, clock.sleep)
    assert clock.now == pytest.approx(100 + LOST_AFTER_S, abs=3)


def test_a_head_that_comes_back_in_time_is_waited_for() -> None:
    clock = Clock()
    assert wait(
        lambda: int(clock.now < 200),
        lambda: not 100 < clock.now < 100 + LOST_AFTER_S / 2,
        600.0,
        clock,
        clock.sleep,
    )


def test_replicas_are_known_by_the_names_that_ray_gives_their_processes(tmp_path: Path) -> None:
    lines = {
        "1": b"bash\0-c\0ulimit -n 65536; ray start --block",
        "20": b"ray::ServeReplica:banditserve:verifier.generate\0",
        "21": b"ray::ServeReplica:banditserve:ingress\0",
        "22": b"ray::ServeController.listen_for_change\0",
        "23": b"ray::ProxyActor\0",
    }
    for pid, line in lines.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(line)
    (tmp_path / "24").mkdir()  # has ended meanwhile
    assert num_replicas(tmp_path) == 2
