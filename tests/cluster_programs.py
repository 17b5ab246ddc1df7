"""Functions that the cluster tests run on workers: they must be importable there."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time

import numpy as np

import futurex as fx
from futurex.partition import Replicate, Shard


def mean_square(w, x):
    return ((x @ w) ** 2).mean()


def descent(w, x):
    """One step, for a graph that localities run."""
    value, gradient = fx.value_and_grad(mean_square)(w, x)
    return value, w - 0.1 * gradient


def rank_and_size(locality):
    return locality.rank, locality.size


def threads_of(locality):
    return locality.threads


def threads_of_training(dask_worker):
    return dask_worker.futurex_host.participant._threads()


def refuse(text):
    raise ValueError(text)


class Unreadable:
    """Whoever unpickles one fails."""

    def __reduce__(self):
        return refuse, ("on purpose",)


def unreadable(locality):
    return Unreadable()


def shard_sum(locality, shard):
    return float(np.sum(shard))


def all_aligned(locality, *arrays):
    return all(array.flags.aligned for array in arrays)


def ranges(locality, n):
    return [np.arange(float(n)), np.ones(n, np.float32)]


def descend(locality, graph, steps, x):
    """Gradient descent; donated parameters, one event a step: of the first ones, since many keep the driver busy."""
    step = locality.compile(graph, [Replicate(), Shard(0)], {1: 0})
    w = np.ones((3, 2))
    loss = None
    for k in range(steps):
        loss, w = step([w, x])
        if k < 100:
            locality.emit({"step": k, "loss": float(loss)})
        if any(command.get("stop") for command in locality.commands()):
            break
    return float(loss), w, locality.communication_seconds


def keeps_the_lock(pipe):
    """Nothing else of this process runs any Python until something comes through the pipe: for 90 s at most."""
    descriptor = os.open(pipe, os.O_RDWR)
    asked = (ctypes.c_int32 * 2)(descriptor, select.POLLIN)  # a struct pollfd
    ctypes.PyDLL(None).poll(asked, 1, 90_000)
    os.close(descriptor)


def descend_late(locality, graph, x, pipe):
    """Rank 0 comes late, and can say nothing before."""
    if locality.rank == 0:
        keeps_the_lock(pipe)
    return descend(locality, graph, 3, x)[0]


def fail_on(locality, rank):
    """One rank raises; the others wait for it in a collective."""
    import futurex.ops  # noqa: F401
    from futurex.tree import Aval, Graph, apply, param

    if locality.rank == rank:
        raise ZeroDivisionError("on purpose")
    x = param(Aval((4,), np.dtype(float)), "x")
    total = apply("sum", x, axis=None, keepdims=False, dtype=None)
    step = locality.compile(Graph([x], [total]), [Shard(0)])
    return step([np.ones(2)])


def fail_when_told(locality, rank):
    """One rank raises when it is told to; the others are in a collective by then, and wait for it."""
    locality.emit({"begun": True})
    if locality.rank == rank:
        wait_for_stop(locality)
    return fail_on(locality, rank)


def under_way(dask_worker):
    """The runs that a worker is in the middle of."""
    from futurex.runtime.cluster.host import host_of

    return list(host_of(dask_worker).running)


def wait_for_stop(locality):
    end = time.monotonic() + 90
    while time.monotonic() < end:
        if any(command.get("stop") for command in locality.commands()):
            return "stopped"
        time.sleep(0.01)
    return "never told"


def blocks_interrupts():
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def process_id():
    return os.getpid()
