"""Who is there, and who leaves: the scheduler's side of failure detection.

Dask's own topic for such events also carries objects that cannot be sent to clients, so futurex logs to one of its own.
"""

from __future__ import annotations

import contextlib
import weakref
from functools import partial
from typing import Any, Protocol

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


def topic(session: str) -> str:
    """The Dask event topic of all runs of a session: the scheduler keeps every topic that there ever was."""
    return f"futurex-{session}"


class Hearer(Protocol):
    """Whoever hears of events."""

    def hear(self, topic: str, message: Any) -> None:
        """Something was logged under a topic."""
        ...


_hearers: weakref.WeakKeyDictionary[Client, dict[str, weakref.WeakSet[Any]]] = weakref.WeakKeyDictionary()
"""By client and topic. Dask has one handler for each of them, which it keeps for ever; a client that somebody gave may
be that of several clusters, of which each is to hear of workers that leave."""


def listen(client: Client, name: str, hearer: Hearer) -> None:
    """Have ``hearer.hear`` called for every event of a topic, as long as the hearer is there."""
    heard = _hearers.setdefault(client, {}).setdefault(name, weakref.WeakSet())
    heard.add(hearer)
    if len(heard) == 1:
        client.subscribe_topic(name, partial(_tell, heard, name))


def no_longer_listen(client: Client, name: str, hearer: Hearer) -> None:
    """End that; for the last one of a topic nothing of it is sent to the client any more."""
    by_topic = _hearers.get(client, {})
    heard = by_topic.get(name, weakref.WeakSet())
    heard.discard(hearer)
    if not heard and by_topic.pop(name, None) is not None:
        client.unsubscribe_topic(name)


def _tell(heard: weakref.WeakSet[Any], name: str, event: Any) -> None:
    _, message = event
    for hearer in list(heard):
        hearer.hear(name, message)
