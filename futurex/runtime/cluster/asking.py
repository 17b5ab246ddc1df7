"""Questions to workers, with an end: Dask itself waits for ever for a process that is stopped, or swapped out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distributed import Client
from distributed.comm import connect
from distributed.security import Security

from futurex.runtime import config
from futurex.runtime.cluster.errors import ClusterUnreachable

log = logging.getLogger("futurex.cluster")

SOON = 5.0  # seconds for what need not have happened when the caller goes on
_LATE = 2.0  # seconds behind the others after which a worker that is waited for counts as silent


def ask_workers(
    client: Client, function: Callable[..., Any], *args: Any, workers: Iterable[str], seconds: float,
    on_error: str = "raise",
) -> dict[str, Any]:  # fmt: skip
    """What ``function(*args)`` returns on each worker, in its event loop.

    Says in the log for whom it waits, after FUTUREX_STALL seconds, and raises ClusterUnreachable, which names them,
    after ``seconds``.
    """
    found: dict[str, Any] = client.sync(_asked, client, function, args, list(workers), seconds, on_error)
    return found


async def _asked(
    client: Client, function: Callable[..., Any], args: tuple[Any, ...], workers: list[str], seconds: float,
    on_error: str,
) -> Any:  # fmt: skip
    asked = asyncio.ensure_future(client._run(function, *args, workers=workers, on_error=on_error))
    first = min(seconds, config.patience())
    done, _ = await asyncio.wait([asked], timeout=first)
    if not done and first < seconds:
        log.warning("waits for %s", await _silent(client, workers))
        done, _ = await asyncio.wait([asked], timeout=seconds - first)
    if not done:
        asked.cancel()
        raise ClusterUnreachable(
            f"no answer within {seconds:g} s from {await _silent(client, workers)}: it may be stopped, swapped out or "
            "cut off, and keeps the others waiting. End it, and make a new fx.Cluster"
        )
    return asked.result()


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
