"""The pool executor: worker threads with deques of their own, which steal from each other when they run dry.

A worker takes the newest task of its own deque and the oldest of another's. A task wakes one sleeping worker; nothing
polls. Threads are daemons and are joined at exit. A process that has forked must make a pool of its own.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from futurex.kernels.interrupts import Stop, end_all, look
from futurex.runtime import trace
from futurex.runtime.floating import carried
from futurex.runtime.inline import Readers, note
from futurex.runtime.plan import Plan
from futurex.runtime.scheduler import Scheduler

Task = Callable[[], None]
_EXIT_SECONDS = 5.0
_END_SECONDS = 2.0  # beyond these, for runs that are told to end; loops look some twenty times a second
_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


class _Worker:
    """A thread's deque and the signal it sleeps on."""

    __slots__ = ("signal", "tasks", "thread")

    def __init__(self) -> None:
        self.tasks: deque[Task] = deque()
        self.signal = threading.Semaphore(0)
        self.thread: threading.Thread | None = None


class Pool:
    """``workers`` threads, started with the first task.

    >>> pool, done = Pool(2), threading.Event()
    >>> pool.push(done.set)
    >>> done.wait(5)
    True
    >>> pool.shutdown()
    """

    def __init__(self, workers: int, name: str = "compute") -> None:
        if workers < 1:
            raise ValueError(f"a pool needs at least one worker, got {workers}")
        self.size = workers
        self._name = name
        self._workers = [_Worker() for _ in range(workers)]
        self._idle: deque[_Worker] = deque()
        self._injected: deque[Task] = deque()
        self._here = threading.local()
        self._starting = threading.Lock()
        self._started = False
        self._closed = False
        _pools.add(self)

    def push(self, task: Task, *, wake: bool = True) -> None:
        """Have a worker run ``task``, soon. Raises RuntimeError once the pool is shut down.

        ``wake=False``, on a worker's own thread: the task is short, and the worker takes it itself unless another
        happens to look for work. What a worker pushes while the pool shuts down still runs.
        """
        mine: _Worker | None = getattr(self._here, "worker", None)
        if self._closed and mine is None:
            raise RuntimeError("the pool is shut down and takes no tasks; make another executor")
        if not self._started:
            self._start()
        if mine is None:
            self._injected.append(task)
        else:
            mine.tasks.append(task)
        if wake or mine is None:
            self._wake()

    def shutdown(self, timeout: float = _EXIT_SECONDS) -> None:
        """Take no more tasks, finish those that were given, and join the threads for at most ``timeout`` seconds."""
        with self._starting:
            self._closed = True
        while self._wake():
            pass
        end = time.monotonic() + timeout
        for worker in self._workers:
            if worker.thread is not None and worker.thread is not threading.current_thread():
                worker.thread.join(max(0.0, end - time.monotonic()))

    def works(self) -> bool:
        """Is there a thread yet?"""
        return any(worker.thread is not None and worker.thread.is_alive() for worker in self._workers)

    def _start(self) -> None:
        with self._starting:
            if self._started or self._closed:
                return
            for number, worker in enumerate(self._workers):
                name = f"{self._name} {number}" if self.size > 1 else self._name
                worker.thread = threading.Thread(target=self._work, args=(worker,), name=name, daemon=True)
                worker.thread.start()
            self._started = True

    def _wake(self) -> bool:
        try:
            worker = self._idle.pop()
        except IndexError:
            return False
        worker.signal.release()
        return True

    def _work(self, me: _Worker) -> None:
        self._here.worker = me
        while True:
            task = self._take(me)
            if task is None:
                self._idle.append(me)
                task = self._take(me)  # again: a task pushed in between found nobody to wake
                if task is None:
                    if self._closed:
                        return
                    me.signal.acquire()
                    continue
                try:
                    self._idle.remove(me)
                except ValueError:
                    me.signal.acquire()  # woken meanwhile
            try:
                task()
            except BaseException:
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), me.thread)))
            del task

    def _take(self, me: _Worker) -> Task | None:
        others = ((other.tasks, False) for other in self._workers if other is not me)
        for tasks, newest in itertools.chain(((me.tasks, True), (self._injected, False)), others):
            try:
                return tasks.pop() if newest else tasks.popleft()
            except IndexError:
                continue
        return None


@atexit.register
def _join_all() -> None:
    end, pools = time.monotonic() + _EXIT_SECONDS, list(_pools)
    for pool in pools:
        pool.shutdown(max(0.0, end - time.monotonic()))
    end += _END_SECONDS
    while any(pool.works() for pool in pools) and time.monotonic() < end:
        end_all()  # those that wait for a thread, too, when they have one
        for pool in pools:
            pool.shutdown(0.05)


class PoolRun:
    """One run of a plan whose independent long instructions run on several workers.

    ``done(results, error)`` is called once, on the thread that finishes the last instruction. If several instructions
    fail, the error is that of the first in the order of the plan: the one that the inline executor raises.
    """

    def __init__(
        self, pool: Pool, plan: Plan, args: Sequence[Any], done: Callable[[Any, Any], None], stop: Stop
    ) -> None:
        self._pool, self._plan, self._args, self._done, self._stop = pool, plan, args, done, stop
        self._instance, self._values = plan.begin(args, None)
        self._scheduler = Scheduler([each.after for each in plan.instructions], plan.rank, plan.dependents)
        self._readers = Readers(plan, self._values)
        self._lock = threading.Lock()
        self._instance.counters.runs += 1
        self._instance.counters.timed += 1

    def start(self) -> None:
        """Run on this thread, and on others what is worth it."""
        ready = self._scheduler.start()
        if not ready:
            self._finish()
        self._work(ready)

    def _work(self, ready: list[int]) -> None:
        """Run instructions that are ready and the cheap ones they make ready; push all but one of the others."""
        cheap: list[tuple[float, int]] = []  # a heap: the most urgent first
        held: list[int] = []
        with self._stop:
            while True:
                held = self._share(ready, cheap, held)
                if not (cheap or held):
                    return
                ready, last = self._execute(heapq.heappop(cheap)[1] if cheap else held.pop())
                if last:
                    self._finish()

    def _share(self, ready: list[int], cheap: list[tuple[float, int]], held: list[int]) -> list[int]:
        """Keep the cheap instructions and the most urgent of the others, which is returned; the pool gets the rest."""
        instructions = self._plan.instructions
        for index in ready:
            if self._plan.grain.inline(index):
                heapq.heappush(cheap, (-instructions[index].priority, index))
            else:
                held.append(index)
        held.sort(key=lambda index: instructions[index].priority)
        for index in held[:-1]:
            self._instance.counters.spawned[index] += 1
            self._pool.push(carried(lambda index=index: self._work([index])))  # type: ignore[misc]
        return held[-1:]

    def _execute(self, index: int) -> tuple[list[int], bool]:
        start = time.perf_counter()
        try:
            look()
            self._instance.calls[index](self._values)
        except BaseException as error:
            note(error, self._plan.instructions[index], self._values)
            with self._lock:
                return self._scheduler.failed(index, error), self._scheduler.done
        end = time.perf_counter()
        self._instance.counters.ns[index] += round((end - start) * 1e9)
        self._plan.grain.measured(index, end - start)
        recorder = trace.active()
        if recorder is not None:
            node = self._plan.instructions[index].node
            recorder.add(node.op, trace.lane(), start, end, trace.about(node))
        with self._lock:
            self._readers.read(index)
            return self._scheduler.finished(index), self._scheduler.done

    def _finish(self) -> None:
        error = self._scheduler.first_error()
        if error is not None:
            self._plan.abandon(self._instance)
            self._done(None, error)
            return
        try:
            results = self._plan.end(self._instance, self._values, self._args)
        except BaseException as failure:
            self._done(None, failure)
        else:
            self._values.clear()  # of which results are: whoever gets them may give them away
            self._done(results, None)
