"""Who is there, and who leaves: the scheduler's side of failure detection.

Dask's own topic for such events also carries objects that cannot be sent to clients, so futurex logs to one of its own.
"""

from __future__ import annotations

from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin

TOPIC = "futurex-membership"


class MembershipPlugin(SchedulerPlugin):
    """Tells the subscribers of :data:`TOPIC` the address of every worker that leaves."""

    name = "futurex-membership"

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        scheduler.log_event(TOPIC, {"left": worker})


def workers_of(client: Client) -> dict[str, dict[str, Any]]:
    """What the scheduler knows of each of its workers, by address.

    `Client.scheduler_info` may answer that there are none: it returns what the client's own regular question, which
    asks for no workers, may have overwritten since.
    """
    found: dict[str, dict[str, Any]] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return found


def topic(run: str) -> str:
    """The Dask event topic of a run."""
    return f"futurex-{run}"
