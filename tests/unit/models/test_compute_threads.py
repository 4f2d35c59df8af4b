from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from models.compute_threads import compute_once
from models.precedence import give_way, take_precedence
from tests.unit.drafters.workers import until

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has /proc/self/task and SCHED_BATCH"
)


@pytest.fixture
def three_threads() -> Iterator[None]:
    """Let torch compute with three threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def thread_ids() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def test_what_is_computed_once_comes_back_or_raises() -> None:
    assert compute_once(divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        compute_once(divmod, 7, 0)


@linux_only
@pytest.mark.usefixtures("three_threads")
def test_a_team_ends_with_the_thread_that_computed_once() -> None:
    """Teams that stay would have the process's other threads sleep between kernels."""
    before = thread_ids()
    sizes = []

    def compute() -> None:
        large = torch.ones(1 << 20)
        large.add_(large)
        sizes.append(len(thread_ids() - before))

    compute_once(compute)
    assert sizes == [3]
    until(lambda: thread_ids() <= before)


@pytest.mark.usefixtures("three_threads")
def test_it_computes_with_as_many_threads_as_the_caller() -> None:
    assert compute_once(torch.get_num_threads) == 3


@linux_only
def test_what_gives_way_starts_threads_that_do_until_told_otherwise() -> None:
    policies = []

    def note() -> None:
        policies.append(os.sched_getscheduler(0))

    def start_one() -> None:
        thread = threading.Thread(target=note)
        thread.start()
        thread.join()

    def run() -> None:
        give_way()
        start_one()
        take_precedence()
        start_one()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()
    note()
    assert policies == [os.SCHED_BATCH, os.SCHED_OTHER, os.SCHED_OTHER]
