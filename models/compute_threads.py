"""In which threads torch computes on a CPU.

Its kernels share their work among a team of threads (libgomp's). A team belongs to the thread that
computed first and lives as long as it. If a process has more such threads than there are cores,
libgomp hardly lets them spin for the next kernel: they sleep and are woken at every one, which
costs a decode on two cores a quarter of its speed. So one thread of a process computes for long,
and what is computed once is computed in a thread that ends.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import torch

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


def compute_once(
    function: Callable[_Params, _Result], *args: _Params.args, **kwargs: _Params.kwargs
) -> _Result:
    """Return what a function returns, called in a thread that ends with it, team and all.

    Raises:
        Exception: What the function raises.
    """
    # MKL's number is each thread's own: without this it is OMP_NUM_THREADS', 1 on Ray.
    num_threads = (torch.get_num_threads(),)
    with ThreadPoolExecutor(1, "compute-once", torch.set_num_threads, num_threads) as pool:
        return pool.submit(function, *args, **kwargs).result()
