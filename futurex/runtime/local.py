"""The local executor: plans submitted with arguments that may be futures, results as futures."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from concurrent.futures import Future as AnyFuture
from typing import Any

from futurex.runtime import config
from futurex.runtime.futures import Future
from futurex.runtime.inline import Communicator
from futurex.runtime.plan import Plan
from futurex.runtime.pool import Pool, PoolRun

_WORTH_SHARING, _MIN_WIDTH = 200e-6, 1.2  # seconds of a plan, and total time over critical path


class LocalExecutor:
    """Runs plans of this process.

    ``threads`` is what the plans were compiled for; there are ``config.workers(threads)`` workers unless ``workers`` says
    otherwise. Runs of plans that communicate begin in the order of their submission, one at a time, on a thread of their
    own, so that localities that submit the same runs do the same.
    """

    def __init__(self, threads: int = 1, workers: int | None = None) -> None:
        self._pool = Pool(config.workers(threads) if workers is None else workers)
        self._lane = Pool(1, "collective")
        self._lock = threading.Lock()
        self._last: _Run | None = None

    def submit(self, plan: Plan, args: Sequence[Any], communicator: Communicator | None = None) -> list[Future[Any]]:
        """Run ``plan`` when all ``args`` are there; returns one future per output, at once.

        Arguments may be futures. A run that is ready and short runs here and now: a hand-over would cost more. An
        exception, also of an argument, becomes the exception of every output; a cancelled argument cancels the outputs.

        >>> import numpy as np
        >>> from futurex.runtime.plan import compile_plan
        >>> from futurex.tree import Aval, Graph, param
        >>> x = param(Aval((), np.dtype("float64")), "x")
        >>> plan = compile_plan(Graph([x], [x * 2]))
        >>> executor = LocalExecutor()
        >>> [first] = executor.submit(plan, [np.float64(3)])
        >>> [second] = executor.submit(plan, [first])
        >>> float(second.result(timeout=5))
        12.0
        """
        run = _Run(self, plan, args, communicator)
        futures = run.futures
        if plan.collectives:
            with self._lock:
                before, self._last = self._last, run
            run.wait_for([*args, *(before.futures[:1] if before is not None else ())])
        else:
            run.wait_for(args)
        return futures

    def shutdown(self, timeout: float = 5.0) -> None:
        """Finish what was submitted and ready, and end the threads, within ``timeout`` seconds each."""
        self._pool.shutdown(timeout)
        self._lane.shutdown(timeout)


class _Run:
    """A submission: waits for its arguments by callbacks, runs, delivers."""

    def __init__(
        self, owner: LocalExecutor, plan: Plan, args: Sequence[Any], communicator: Communicator | None
    ) -> None:
        self._owner, self._plan, self._communicator = owner, plan, communicator
        self._args = list(args)
        self.futures: list[Future[Any]] = [Future() for _ in plan.graph.outs]
        self._missing = 0
        self._lock = threading.Lock()
        self._inline = False

    def wait_for(self, values: Sequence[Any]) -> None:
        """Start once every future among ``values`` is done; here and now if they all are and the run is short."""
        waiting = [value for value in values if isinstance(value, AnyFuture) and not value.done()]
        if not waiting:
            self._inline = not self._plan.collectives and self._plan.grain.inline(len(self._plan.instructions))
            self._begin()
            return
        self._missing = len(waiting)
        for future in waiting:
            future.add_done_callback(self._arrived)

    def _arrived(self, _: AnyFuture[Any]) -> None:
        with self._lock:
            self._missing -= 1
            if self._missing:
                return
        self._begin()

    def _begin(self) -> None:
        if self._inline:
            self._execute()
            return
        pool = self._owner._lane if self._plan.collectives else self._owner._pool
        try:
            pool.push(self._execute)
        except RuntimeError as error:
            self._fail(error)

    def _execute(self) -> None:
        if not all([future.set_running_or_notify_cancel() for future in self.futures]) and self._all_cancelled():
            return
        try:
            self._args = [arg.result(timeout=0) if isinstance(arg, AnyFuture) else arg for arg in self._args]
        except BaseException as error:
            self._fail(error)
            return
        start = time.perf_counter()
        if self._worth_sharing():
            try:
                PoolRun(self._owner._pool, self._plan, self._args, self._shared_done).start()
            except BaseException as error:
                self._fail(error)
            return
        try:
            results = self._plan.run(self._args, self._communicator)
        except BaseException as error:
            self._fail(error)
            return
        self._plan.grain.measured(len(self._plan.instructions), time.perf_counter() - start)
        self._deliver(results)

    def _worth_sharing(self) -> bool:
        """Several workers help a long plan whose critical path is short."""
        plan = self._plan
        return (
            self._owner._pool.size > 1 and not plan.collectives and plan.cost > _WORTH_SHARING
            and plan.cost > _MIN_WIDTH * plan.critical
        )  # fmt: skip

    def _all_cancelled(self) -> bool:
        return all(future.cancelled() for future in self.futures)

    def _shared_done(self, results: list[Any] | None, error: BaseException | None) -> None:
        if error is not None or results is None:
            self._fail(error or RuntimeError("a run ended without results"))
        else:
            self._deliver(results)

    def _deliver(self, results: list[Any]) -> None:
        for future, value in zip(self.futures, results, strict=True):
            if not future.cancelled():
                future.set_result(value)

    def _fail(self, error: BaseException) -> None:
        for future in self.futures:
            if isinstance(error, CancelledError) and future.cancel():
                future.set_running_or_notify_cancel()
            elif not future.cancelled() and not future.done():
                future.set_exception(error)
