"""The local executor: plans submitted with arguments that may be futures, results as futures."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, InvalidStateError
from concurrent.futures import Future as AnyFuture
from typing import Any

from futurex.kernels.blas_threads import keep_blas_within
from futurex.kernels.interrupts import Stop, look
from futurex.runtime import config
from futurex.runtime.budget import Budget
from futurex.runtime.floating import carried
from futurex.runtime.futures import Future
from futurex.runtime.inline import Communicator
from futurex.runtime.placement import AnyPlan
from futurex.runtime.plan import Plan
from futurex.runtime.pool import Pool, PoolRun


class LocalExecutor:
    """Runs plans of this process.

    ``threads`` is what the plans were compiled for, and how many workers there are unless ``workers`` says otherwise. A
    long run whose kernels use several threads has the machine to itself; others share the workers. Runs of plans that
    communicate begin in the order of their submission, one at a time, on a thread of their own, so that localities that
    submit the same runs do the same. After a fork the child needs its own executor, and calls :meth:`abandon` on this.
    """

    def __init__(self, threads: int = 1, workers: int | None = None) -> None:
        self.pool = Pool(threads if workers is None else workers)
        self._budget: Budget[_Run] = Budget()
        self.lane = Pool(1, "collective")
        self.waiting: dict[_Run, None] = {}  # in the order of submission
        self._runs: weakref.WeakSet[_Run] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._last: AnyFuture[None] | None = None

    def submit(self, plan: AnyPlan, args: Sequence[Any], communicator: Communicator | None = None) -> list[Future[Any]]:
        """Run ``plan`` when all ``args`` are there; returns one future per output, at once.

        Arguments may be futures. A run that is ready and short runs here and now: a hand-over would cost more. An
        exception, also of an argument, becomes the exception of every output; a cancelled argument cancels the outputs.
        Raises RuntimeError once the executor is shut down.

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
        self._runs.add(run)
        if plan.collectives:
            with self._lock:
                before, self._last = self._last, run.over
            run.wait_for([*args, before])
        else:
            run.wait_for(args)
        return futures

    def admit(self, run: _Run) -> None:
        """Start a long run as soon as the threads it needs are free. Raises RuntimeError once the pool is shut down."""
        with self._lock:
            started = self._budget.enter(run, whole=run.whole)
        for each in started:
            each.start()

    def claim(self, plan: Plan) -> bool:
        """May the calling thread run ``plan`` itself, now? It then calls :meth:`leave` after it.

        Not while others are under way, and not where several workers would share the run.
        """
        if plan.collectives or not (plan.undivided or self.pool.size == 1 or not _shares(plan)):
            return False
        if plan.contest is not None:
            plan.contest.next()  # counts, until both ways are compared again
        with self._lock:
            return self._budget.enter_alone(whole=plan.threads > 1)

    def leave(self) -> None:
        """A run that was admitted is over."""
        with self._lock:
            started = self._budget.leave()
        for each in started:
            try:
                each.start()
            except RuntimeError:
                each.fail(CancelledError("the executor was shut down before the run could start"))

    def shutdown(self, timeout: float = 5.0) -> None:
        """Finish the runs that need nothing from outside, cancel the others, and end the threads.

        Waits at most ``timeout`` seconds for each of the two kinds of threads.
        """
        self.lane.shutdown(timeout)
        self.pool.shutdown(timeout)
        with self._lock:
            held_back = self._budget.forget()
        for run in held_back:
            run.admitted = False
        for run in [*self.waiting, *held_back]:
            run.fail(CancelledError())

    def abandon(self) -> None:
        """In a child after a fork, which has none of the threads: results that were under way fail there."""
        for run in list(self._runs):
            for future in run.futures:
                future.orphan()


def _shares(plan: Plan) -> bool:
    """May several workers share a run? Not where that was measured to be slower."""
    tasks = plan.as_tasks()
    return tasks is not None and (plan.contest is None or plan.contest.open or plan.contest.way == 1)


class _Run:
    """A submission: waits for its arguments by callbacks, runs, delivers; then ``over`` is done, if there is one."""

    def __init__(
        self, owner: LocalExecutor, plan: AnyPlan, args: Sequence[Any], communicator: Communicator | None
    ) -> None:
        self._owner, self._plan, self._communicator = owner, plan, communicator
        self._args = list(args)
        self.futures: list[Future[Any]] = [Future() for _ in plan.graph.outs]
        self.over: AnyFuture[None] | None = AnyFuture() if plan.collectives else None
        self._missing = 0
        self.admitted, self._began = False, 0.0
        self._tasks = plan.as_tasks() if isinstance(plan, Plan) and owner.pool.size > 1 else None
        self._contest = plan.contest if self._tasks is not None and isinstance(plan, Plan) else None
        if self._contest is not None and not self._contest.next():
            self._tasks = None
        self._lock = threading.Lock()
        self._start = carried(self._execute)
        self._stop = Stop()
        for future in self.futures:
            future.run = self

    def stop(self) -> None:
        """End this run, and those that it waits for, as soon as they look. Not one that other localities take part in:
        they would wait for it."""
        todo: list[Any] = [self]
        while todo:
            run = todo.pop()
            if isinstance(run, _Run) and not run._plan.collectives and not run._stop.asked:
                run._stop.ask()
                todo += [each.run for each in run._args if isinstance(each, Future)]

    @property
    def _short(self) -> bool:
        return self._plan.grain.inline(len(self._plan.instructions))

    def wait_for(self, values: Sequence[Any]) -> None:
        """Start once every future among ``values`` is done; here and now if they all are and the run is short."""
        waiting = [value for value in values if isinstance(value, AnyFuture) and not value.done()]
        if waiting:
            self._missing = len(waiting)
            self._owner.waiting[self] = None
            for future in waiting:
                future.add_done_callback(self._arrived)
        elif self._short and not self._plan.collectives:
            self._execute()
        else:
            self._begin()

    def _arrived(self, _: AnyFuture[Any]) -> None:
        with self._lock:
            self._missing -= 1
            if self._missing:
                return
        self._owner.waiting.pop(self, None)
        try:
            self._begin()
        except RuntimeError:
            self.fail(CancelledError("the executor was shut down before the arguments were there"))

    def _begin(self) -> None:
        """Hand over to a worker; always, so that a chain of completions does not grow the stack."""
        if self._plan.collectives:
            self._owner.lane.push(self._start)
        elif self._short:
            self._owner.pool.push(self._start, wake=False)
        else:
            self.admitted = True
            try:
                self._owner.admit(self)
            except RuntimeError:
                self._leave()
                raise

    def start(self) -> None:
        """Have a worker run this now."""
        self._owner.pool.push(self._start)

    @property
    def whole(self) -> bool:
        """Do its kernels use all threads, one after the other?"""
        return self._plan.threads > 1 and self._tasks is None

    def _execute(self) -> None:
        try:
            self._args = [arg.result(timeout=0) if isinstance(arg, AnyFuture) else arg for arg in self._args]
        except BaseException as error:
            self.fail(error)
            return
        wanted = [future.set_running_or_notify_cancel() for future in self.futures]
        if wanted and not any(wanted):
            self._end()
            return
        try:
            if self._tasks is not None and self.admitted:
                self._began = time.perf_counter()
                PoolRun(self._owner.pool, self._tasks, self._args, self._shared_done, self._stop).start()
                return
            began = time.perf_counter()
            with self._stop:
                look()
                results = self._plan.run(self._args, self._communicator)
            if self._contest is not None:
                self._contest.took(0, time.perf_counter() - began)
        except BaseException as error:
            self.fail(error)
            if not isinstance(error, Exception):
                raise
            return
        self._deliver(results)

    def _shared_done(self, results: list[Any], error: BaseException | None) -> None:
        if error is not None:
            self.fail(error)
        else:
            took = time.perf_counter() - self._began
            self._plan.grain.measured(-1, took)
            if self._contest is not None:
                self._contest.took(1, took)
            self._deliver(results)

    def _deliver(self, results: list[Any]) -> None:
        """Who waits for a result finds nobody else that holds the array, as argument either, if it was given away."""
        self._args.clear()
        for future in reversed(self.futures):
            if future.cancelled():
                results.pop()
            else:
                future.set_result(results.pop())
        self._end()

    def fail(self, error: BaseException) -> None:
        """Give every output the error, or cancel it if the error is a cancellation."""
        _bounce(lambda: self._fail(error))

    def _fail(self, error: BaseException) -> None:
        for future in self.futures:
            if isinstance(error, CancelledError) and future.cancel():
                future.set_running_or_notify_cancel()
            else:
                with contextlib.suppress(InvalidStateError):  # cancelled or done meanwhile
                    future.set_exception(error)
        self._end()

    def _leave(self) -> None:
        if self.admitted:
            self.admitted = False
            self._owner.leave()

    def _end(self) -> None:
        """Let go of everything: the futures this run waited for keep a reference to it."""
        for future in self.futures:
            future.run = None
        self._args, self.futures = [], []
        self._leave()
        if self.over is not None and not self.over.done():
            self.over.set_result(None)


class _Bouncing(threading.local):
    todo: deque[Callable[[], None]] | None = None


_bouncing = _Bouncing()


def _bounce(action: Callable[[], None]) -> None:
    """Do ``action`` now or, inside another such action, after it: a long chain of failures does not grow the stack."""
    if _bouncing.todo is not None:
        _bouncing.todo.append(action)
        return
    _bouncing.todo = deque([action])
    try:
        while _bouncing.todo:
            _bouncing.todo.popleft()()
    finally:
        _bouncing.todo = None


@functools.cache
def executor() -> LocalExecutor:
    """The executor of this process."""
    keep_blas_within(config.threads())
    return LocalExecutor(threads=config.threads())


def _renew() -> None:
    """In a child after a fork: the executor's threads are the parent's."""
    if executor.cache_info().currsize:
        executor().abandon()
        executor.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
