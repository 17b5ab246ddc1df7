"""Questions to workers, with an end: Dask itself waits for ever for a process that is stopped, or swapped out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from distributed import Client
from distributed.comm import CommClosedError, connect
from distributed.security import Security

from futurex.runtime import config
from futurex.runtime.cluster.errors import ClusterUnreachable

log = logging.getLogger("futurex.cluster")

SOON = 5.0  # seconds for what need not have happened when the caller goes on
_LOOK = 0.1  # seconds between two looks whether somebody who is waited for has been lost
_LATE = 2.0  # seconds behind the others after which a worker that is waited for counts as silent


def _nobody() -> Exception | None:
    return None


def ask_workers(
    client: Client, function: Callable[..., Any], *args: Any, workers: Iterable[str], seconds: float,
    on_error: str = "raise", lost: Callable[[], Exception | None] = _nobody,
) -> dict[str, Any]:  # fmt: skip
    """What ``function(*args)`` returns on each worker, in its event loop.

    Says in the log for whom it waits, after FUTUREX_STALL seconds, and raises ClusterUnreachable, which names them,
    after ``seconds``. What ``lost`` returns, once one of them is lost, is raised as soon as that is known: Dask would
    go on to dial a process that has ended.
    """
    names = list(workers)
    found: dict[str, Any] = wait_for(
        client, lambda: client._run(function, *args, workers=names, on_error=on_error), workers=names, seconds=seconds,
        lost=lost,
    )  # fmt: skip
    return found


def wait_for(
    client: Client, begin: Callable[[], Awaitable[Any]], *, workers: Iterable[str], seconds: float,
    lost: Callable[[], Exception | None] = _nobody,
) -> Any:  # fmt: skip
    """What comes of something that needs all of these workers, and begins in the event loop of Dask's client, where
    that client's methods return what is awaited. It ends as :func:`ask_workers` does."""
    names = list(workers)
    return within(client, lambda: _awaited(client, begin, names, seconds, lost), seconds + 3 * SOON)


def within(client: Client, begin: Callable[[], Awaitable[Any]], seconds: float) -> Any:
    """What comes of something that begins in the event loop of Dask's client. Raises TimeoutError after so many
    seconds, and CommClosedError where the loop ends meanwhile.

    `Client.sync`, where it is interrupted or the client is closed, leaves coroutines that nobody awaits, and says so.
    """
    loop = client.loop.asyncio_loop
    outcome: Future[Any] = Future()
    tasks: list[asyncio.Task[Any]] = []

    async def awaited() -> Any:
        async with asyncio.timeout(seconds):
            return await begin()

    def start() -> None:
        if outcome.set_running_or_notify_cancel():
            tasks.append(loop.create_task(awaited()))
            tasks[0].add_done_callback(settle)

    def settle(task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            outcome.set_exception(CommClosedError("the Dask client has been closed"))
        elif (error := task.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    def cancel() -> None:
        for task in tasks:
            task.cancel()

    try:
        loop.call_soon_threadsafe(start)
        return outcome.result(min(seconds + SOON, threading.TIMEOUT_MAX))
    except BaseException:
        if not outcome.cancel():
            with contextlib.suppress(RuntimeError):  # of a loop that is closed
                loop.call_soon_threadsafe(cancel)
        raise


async def _awaited(
    client: Client, begin: Callable[[], Awaitable[Any]], workers: list[str], seconds: float,
    lost: Callable[[], Exception | None],
) -> Any:  # fmt: skip
    if (error := lost()) is not None:
        raise error
    asked = asyncio.ensure_future(begin())
    asked.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio warns
    first = min(seconds, config.patience())
    done = await _wait(asked, first, lost)
    if not done and first < seconds:
        log.warning("waits for %s", await _silent(client, workers))
        done = await _wait(asked, seconds - first, lost)
    if not done:
        asked.cancel()
        raise ClusterUnreachable(
            f"no answer within {seconds:g} s from {await _silent(client, workers)}: it may be stopped, swapped out or "
            "cut off, and keeps the others waiting. End it, and make a new fx.Cluster"
        )
    if isinstance(closed := asked.exception(), CommClosedError):  # of somebody who is lost, as is soon told?
        await _wait(asyncio.ensure_future(asyncio.sleep(_LATE)), _LATE, lost)
        raise ClusterUnreachable(
            f"the scheduler, or one of the workers {', '.join(workers)}, is gone ({closed}); make a new fx.Cluster"
        ) from None
    return asked.result()


async def _wait(asked: asyncio.Future[Any], seconds: float, lost: Callable[[], Exception | None]) -> bool:
    """Is it done within so many seconds? Raises the error of whoever is lost meanwhile."""
    end = asyncio.get_running_loop().time() + seconds
    while (left := end - asyncio.get_running_loop().time()) > 0:
        done, _ = await asyncio.wait([asked], timeout=min(left, _LOOK))
        if (error := lost()) is not None:
            asked.cancel()
            raise error
        if done:
            return True
    return asked.done()


async def _silent(client: Client, workers: list[str]) -> str:
    """Whom the scheduler has heard nothing of; the scheduler, where it says nothing itself."""
    try:
        known = (await asyncio.wait_for(client.scheduler.identity(n_workers=-1), SOON))["workers"]
    except (OSError, TimeoutError):  # also where it has closed the channel
        return f"the scheduler at {client.scheduler.address}"
    heard = {address: known[address]["last_seen"] for address in workers if address in known}
    newest = max(heard.values(), default=0.0)
    late = [address for address, when in heard.items() if when < newest - _LATE]
    return f"the worker {' and '.join(late)}" if late else f"one of the workers {', '.join(workers)}"


def greet(address: str, timeout: float) -> None:
    """Raises an OSError or TimeoutError where no Dask scheduler answers. Dask's client waits for ever where a port is
    open and nobody speaks."""

    async def connected() -> None:
        dialled = connect(address, timeout, **Security().get_connection_args("client"))
        try:
            comm = await asyncio.wait_for(dialled, timeout)
        except MemoryError:  # Dask takes the first bytes for a length, and has memory for a message of it
            raise ConnectionError("what answers there speaks another protocol; is it the dashboard's port?") from None
        await comm.close()

    with ThreadPoolExecutor(1) as thread:  # a notebook has a loop in this one
        thread.submit(asyncio.run, connected()).result()
