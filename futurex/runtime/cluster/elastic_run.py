"""An elastic run, as a driver follows it: by asking the scheduler, so that any driver can, at any time."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from typing import Any

from distributed import Client
from distributed.comm import CommClosedError

from futurex.runtime.cluster.asking import within
from futurex.runtime.cluster.errors import ClusterUnreachable, TooFewWorkers, scheduler_lost
from futurex.runtime.cluster.supervisor import OP
from futurex.runtime.elastic.coordinator import Settings
from futurex.runtime.group import Command, Event, SpmdRun
from futurex.runtime.stall import Reports

log = logging.getLogger("futurex.elastic")

_PATIENCE = 1.0  # seconds that the scheduler waits for something new before it answers
_UNREACHABLE = 10.0  # seconds without any answer after which the scheduler counts as lost
TRIES = 3  # questions without an answer, besides: this process may have been stopped or swapped out itself


class ElasticRun(SpmdRun):
    """A function under way on the workers of a cluster, whoever they are; its results are those of the last ones."""

    def __init__(self, name: str, client: Client, settings: Settings) -> None:
        super().__init__(name, settings.min_workers)
        self._client, self._settings = client, settings
        self._stalls = Reports(name, settings.min_workers)
        threading.Thread(target=self._follow, name=f"follow-{name}", daemon=True).start()

    def send(self, command: Command) -> None:
        """Only ``stop`` is known to all localities at once. Raises ValueError for anything else, and ClusterUnreachable
        where the scheduler does not hear it."""
        if command != {"command": "stop"}:
            raise ValueError(f"an elastic run can be told to stop, not {command!r}")
        try:
            ask(self._client, TRIES, do="stop", run=self.name)
        except OSError as error:
            raise scheduler_lost(self.name, str(error) or type(error).__name__) from None

    def detach(self) -> None:
        """Follow the run no longer; it goes on where its scheduler and workers do."""
        self.finish(None, ClusterUnreachable(
            f"this driver left the cluster; where that stands, fx.attach({self.name!r}, on=...) finds the run again"
        ))  # fmt: skip

    def _follow(self) -> None:
        since, answered, tries = 0, time.monotonic(), 0
        while not self.done():
            try:
                reply = ask(self._client, do="watch", run=self.name, since=since, patience=_PATIENCE)
            except LookupError as error:
                self.finish(None, error)
                return
            except Exception as error:  # Dask has many words for a connection that is no more
                tries += 1
                late = time.monotonic() > answered + _UNREACHABLE and tries >= TRIES
                if late or self._client.status == "closed":
                    self.finish(None, scheduler_lost(self.name, str(error) or type(error).__name__))
                    return
                time.sleep(0.1)
                continue
            since, answered, tries = reply["next"], time.monotonic(), 0
            for rank, event in reply["events"]:
                self._hear(event)
                self.publish(rank, event)
            if reply["over"] is not None:
                self._complete(reply["over"])

    def _hear(self, event: Event) -> None:
        """Log what whoever looks at this driver wants to know: who keeps whom waiting, who was lost, who has come."""
        self._stalls.hear(event)
        if event.get("kind") == "generation":
            self._stalls.begin(len(event["workers"]))
            if event["what"] != "started":
                log.info(
                    "run %r: %s, generation %d of %d workers behind step %d: %s", self.name, event["what"],
                    event["generation"], len(event["workers"]), event["step"], event["reason"],
                )  # fmt: skip

    def _complete(self, over: dict[str, Any]) -> None:
        try:
            pickled = ask(self._client, TRIES, do="results", run=self.name)
        except Exception as error:
            self.finish(None, scheduler_lost(self.name, str(error) or type(error).__name__))
            return
        try:
            results = [pickle.loads(result) for result in pickled]
        except Exception as error:  # it may need what only the workers have
            ended = RuntimeError(f"run {self.name!r} has ended, but this driver cannot read what it left: {error!r}")
            ended.__cause__ = error
            self.finish(None, ended)
            return
        if over["failed"]:
            results[0].add_note(f"raised on the worker {over['failed']}")
            self.finish(None, results[0])
        elif over["missing"]:
            settings = self._settings
            self.finish(None, TooFewWorkers(self.name, settings.min_workers, over["missing"], settings.wait))
        elif over["reason"]:
            self.finish(None, RuntimeError(f"run {self.name!r} ended: {over['reason']}"))
        else:
            self.finish(results)


def ask(client: Client, tries: int = 1, seconds: float | None = None, **request: Any) -> Any:
    """Ask the scheduler about an elastic run; ``tries`` times where the connection closes or nothing comes back, within
    so many seconds each."""

    async def call() -> Any:
        if client.scheduler is None:
            raise CommClosedError("this client has given its scheduler up")
        return await getattr(client.scheduler, OP)(**request)

    while True:
        try:
            return within(client, call, seconds or _UNREACHABLE + _PATIENCE)
        except (CommClosedError, TimeoutError):  # the latter also where this process was stopped for a while
            tries -= 1
            if not tries or client.status == "closed":
                raise
