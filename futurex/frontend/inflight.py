"""Runs and their arguments: a run sees its arrays as they were when it was called, whatever the caller does next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.runtime.futures import Future
from futurex.runtime.local import LocalExecutor
from futurex.runtime.plan import Plan

SHORT = 50e-6  # estimated seconds of a run that is not worth a hand-over, and so needs no copies
COPY_RATE = 5e9  # bytes a second
WORTH = 4.0  # a run must take this many times longer than copying its arguments, else the call waits for it


def submitted(executor: LocalExecutor, plan: Plan, inputs: Sequence[Any], waits: bool) -> list[Future[Any]]:
    """Start a run. The caller's arrays are copied, unless the run is over when this returns."""
    pending = any(isinstance(value, Array) and not value.done() for value in inputs)
    given = [value._pending() if isinstance(value, Array) else value for value in inputs]
    copied = sum(value.nbytes for value in given if isinstance(value, np.ndarray))
    waits = waits or (not pending and plan.cost < max(SHORT, WORTH * copied / COPY_RATE))
    if not waits:
        given = [value.copy() if isinstance(value, np.ndarray) else value for value in given]
    futures = executor.submit(plan, given)
    if waits:
        for future in futures:
            future.exception()
    return futures
