"""Worker processes of this machine, as an embedded cluster starts and ends them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker

from distributed import LocalCluster
from distributed.core import Status

from futurex.uninterrupted import uninterrupted


def innermost(error: BaseException) -> str:
    """What an exception was raised for, in the end."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return f"{type(error).__name__}: {str(error).rstrip('.')}"


async def let_go(cluster: LocalCluster) -> None:
    """Have no lost worker started again; those that are starting are killed, because Dask would wait for them. One that
    is being spawned has no number yet, by which it could be."""
    for nanny in cluster.workers.values():
        nanny.close_gracefully()
    end = time.monotonic() + _SPAWNING
    while True:
        processes = [nanny.process for nanny in cluster.workers.values() if nanny.process is not None]
        starting = [process for process in processes if process.status == Status.starting]
        numbers = [process.pid for process in starting]
        for number in filter(None, numbers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        if None not in numbers or time.monotonic() > end:
            return
        await asyncio.sleep(0.02)


_SPAWNING = 20.0
"""Seconds within which a process has a number, on a busy machine, too."""


@contextlib.contextmanager
def spared_interrupts() -> Iterator[None]:
    """Threads and processes begun in the block never see SIGINT; what this process is sent comes when it ends.

    Ctrl-C and a notebook's interrupt go to the whole process group, and are meant for the driver alone. A cluster that
    is interrupted while it starts would leave workers.
    """
    resource_tracker.ensure_running()  # whoever starts it, multiprocessing at last, unblocks the signal
    with uninterrupted():  # older threads, as NumPy's BLAS has, take what this one blocks, and Python acts in this one
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
