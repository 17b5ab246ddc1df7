"""A group of localities in this process, one thread each, which exchange arrays for real."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from transport_mesh import connect_all

from futurex.runtime.collectives import Communicator
from futurex.runtime.group import Locality, SpmdRun
from futurex.runtime.transport import open_endpoint

SECRET = b"0123456789abcdef"


class _Run(SpmdRun):
    def __init__(self, name: str, size: int) -> None:
        super().__init__(name, size)
        self.localities: list[Locality] = []

    def send(self, command):
        for locality in self.localities:
            locality.deliver(command)


class ThreadGroup:
    """Ranks that are threads; one run at a time."""

    def __init__(self, communicators: list[Communicator]) -> None:
        self.communicators = communicators
        self.size = len(communicators)
        self.plans = [{} for _ in communicators]
        self.runs = 0

    def spmd(self, function, *args, name=""):
        self.runs += 1
        generation = self.runs
        run = _Run(name, self.size)
        localities = run.localities
        results, left = [None] * self.size, [self.size]
        lock = threading.Lock()
        given = [[copy.copy(arg) for arg in args] for _ in range(self.size)]  # what is taken once, once by each rank
        for rank in range(self.size):
            self.communicators[rank] = self.communicators[rank].begin_generation(generation)
            emit = lambda event, rank=rank: run.publish(rank, event)  # noqa: E731
            localities.append(Locality(rank, self.size, 1, emit, self.communicators[rank], self.plans[rank]))

        def body(rank):
            try:
                results[rank] = function(localities[rank], *given[rank])
            except BaseException as error:
                run.finish(None, error)
                return
            with lock:
                left[0] -= 1
                last = not left[0]
            if last:
                run.finish(results)

        for rank in range(self.size):
            threading.Thread(target=body, args=(rank,), daemon=True).start()
        return run


@contextmanager
def thread_group(size: int) -> Iterator[ThreadGroup]:
    """Localities in this process, connected."""
    endpoints = [open_endpoint("inproc", rank, size, SECRET) for rank in range(size)]
    try:
        communicators = [Communicator(endpoint) for endpoint in endpoints]
        assert connect_all(endpoints) == [None] * size
        yield ThreadGroup(communicators)
    finally:
        for endpoint in endpoints:
            endpoint.close()
