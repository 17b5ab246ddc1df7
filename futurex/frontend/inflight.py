"""Runs and their arguments: a run sees its arrays as they were when it was called, whatever the caller does next."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.runtime.futures import Done, Future
from futurex.runtime.local import LocalExecutor
from futurex.runtime.plan import Plan

SHORT = 100e-6  # seconds of a run that is not worth a hand-over, and so needs no copies
COPY_RATE = 5e9  # bytes a second
WORTH = 4.0  # a run must take this many times longer than copying its arguments, else the call waits for it

Result = Future[Any] | Done[Any]


def launched(executor: LocalExecutor, plan: Plan, inputs: Sequence[Any], waits: bool) -> Sequence[Result]:
    """Start a run. The caller's arrays are copied, unless the run is over when this returns.

    Results that nobody else has seen yet are not: they are noted as lent.
    """
    pending, lent = False, {}
    for value in inputs:
        if type(value) is Array:
            lent = {k: each._future for k, each in enumerate(inputs) if type(each) is Array}
            inputs = [each._pending() if type(each) is Array else each for each in inputs]
            pending = any(isinstance(each, Future) for each in inputs)
            break
    if not pending:
        seconds = plan.grain.seconds
        if seconds < SHORT and not plan.collectives:
            return _run_here(plan, inputs)
        waits = waits or seconds < WORTH * _nbytes(inputs) / COPY_RATE
    if not waits:
        lent = {k: future for k, future in lent.items() if not future.exposed}
        inputs = [
            value.copy() if isinstance(value, np.ndarray) and k not in lent else value for k, value in enumerate(inputs)
        ]
    futures = executor.submit(plan, inputs)
    for future in lent.values() if futures and not waits else ():
        future.lend(futures[-1])
    if waits:
        for future in futures:
            future.exception()
    return futures


def run_here(plan: Plan, inputs: Sequence[Any]) -> Sequence[Result]:
    """Run in the calling thread, whose state (``np.errstate``, open transactions) the user's own code may look at."""
    return _run_here(plan, [value.result() if type(value) is Array else value for value in inputs])


def _nbytes(values: Sequence[Any]) -> int:
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


def _run_here(plan: Plan, inputs: Sequence[Any]) -> Sequence[Result]:
    """A hand-over would take longer than the run."""
    start = time.perf_counter()
    try:
        results = plan.run(inputs)
    except Exception as error:
        futures: list[Future[Any]] = [Future() for _ in plan.graph.outs]
        for future in futures:
            future.set_exception(error)
        return futures
    plan.grain.measured(-1, time.perf_counter() - start)
    return [Done(value) for value in results]
