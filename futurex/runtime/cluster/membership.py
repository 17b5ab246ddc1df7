"""Who is there, and who leaves: the scheduler's side of failure detection.

Dask's own topic for such events also carries objects that cannot be sent to clients, so futurex logs to one of its own.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin
from distributed.comm import CommClosedError

from futurex.runtime import config
from futurex.runtime.cluster.asking import within
from futurex.runtime.cluster.errors import ClusterUnreachable

TOPIC = "futurex-membership"
DRIVER_LEFT = "futurex_driver_left"  # what workers are told


class MembershipPlugin(SchedulerPlugin):
    """Tells the subscribers of :data:`TOPIC` the address of every worker that leaves, and workers which driver has."""

    name = "futurex-membership"
    idempotent = True  # a second driver finds it there

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        scheduler.log_event(TOPIC, {"left": worker})

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        for stream in scheduler.stream_comms.values():
            with contextlib.suppress(CommClosedError):
                stream.send({"op": DRIVER_LEFT, "client": client})


def workers_of(client: Client, seconds: float | None = None) -> dict[str, dict[str, Any]]:
    """What the scheduler knows of each of its workers, by address. Raises ClusterUnreachable where it says nothing for
    so many seconds, or FUTUREX_DEADLINE.

    `Client.scheduler_info` may answer that there are none: it returns what the client's own regular question, which
    asks for no workers, may have overwritten since.
    """
    seconds = seconds or config.deadline()
    try:
        known = within(client, partial(client.scheduler.identity, n_workers=-1), seconds)
    except TimeoutError:
        raise ClusterUnreachable(
            f"no answer within {seconds:g} s from the scheduler at {client.scheduler.address}: it may be stopped, "
            "swapped out or cut off"
        ) from None
    found: dict[str, dict[str, Any]] = known["workers"]
    return found


class Connection:
    """A client's connection to the scheduler that it has now. Dask makes another one when it is lost, but what the old
    one stood for is gone: tasks and their results, and with the scheduler mostly the workers."""

    def __init__(self, client: Client) -> None:
        self._client, self._channel = client, client.scheduler_comm
        self.address: str = client.scheduler.address

    @property
    def stands(self) -> bool:
        """Has the scheduler been there all the time?"""
        return self._client.scheduler_comm is self._channel and not self._channel.comm.closed()


def topic(run: str) -> str:
    """The Dask event topic of a run."""
    return f"futurex-{run}"
