"""A run on a cluster, as the driver follows it: one Dask task a rank, events on a topic, the first failure ends all."""

from __future__ import annotations

import logging
import os
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import dask
import distributed
from distributed import Client, Future

from futurex.runtime import config
from futurex.runtime.alignment import aligned
from futurex.runtime.cluster.asking import SOON, ask_workers, wait_for
from futurex.runtime.cluster.errors import ClusterUnreachable, LocalityLost, scheduler_lost
from futurex.runtime.cluster.host import deliver_command
from futurex.runtime.cluster.membership import Connection
from futurex.runtime.cluster.stacks import Ear, whereabouts
from futurex.runtime.collectives import CollectiveError
from futurex.runtime.group import Command, Event, SpmdRun
from futurex.runtime.stall import Reports
from futurex.runtime.transport import TransportError

log = logging.getLogger("futurex.cluster")

SETTLE_SECONDS = 10.0  # how long the cause of a failure may take to arrive after its first symptom
_DASK = tuple(os.path.join(os.path.dirname(package.__file__), "") for package in (dask, distributed))
_SYMPTOMS = (CollectiveError, TransportError)


class ClusterRun(SpmdRun):
    """One function under way on all localities.

    ``abort`` is called once when the run has failed, so that ranks which still wait for others stop. ``ears``: by what
    workers of this machine are asked where they are, by address.
    """

    def __init__(
        self, name: str, client: Client, addresses: Sequence[str], abort: Callable[[], None], ears: Mapping[str, Ear]
    ) -> None:
        super().__init__(name, len(addresses))
        self._client, self._connection = client, Connection(client)
        self._addresses = list(addresses)
        self._abort, self._ears = abort, ears
        self._tasks: list[Future] = []
        self._errors: dict[int, BaseException] = {}
        self._stalls = Reports(name, self.size)
        self._done = 0
        self._state = threading.Lock()
        self._settling: threading.Timer | None = None
        self._failed_at = 0.0
        self._ended = False

    def watch(self, tasks: Sequence[Future]) -> None:
        """Follow the tasks, one a rank."""
        self._tasks = list(tasks)
        for rank, task in enumerate(self._tasks):
            task.add_done_callback(lambda task, rank=rank: self._finished(rank, task))

    def send(self, command: Command) -> None:
        """A locality that does not answer now has the command when it goes on."""
        try:
            ask_workers(self._client, deliver_command, self.name, command, workers=self._addresses, seconds=SOON)
        except OSError as error:  # the run says what became of it
            log.warning("run %r was told to %s: %s", self.name, command.get("command"), error)

    def detach(self) -> None:
        """The cluster is being closed, and the run with it."""
        with self._state:
            if self._ended:
                return
            self._ended = True
        self._tasks = []  # nobody is told what becomes of them
        self.finish(None, ClusterUnreachable(
            f"the cluster was closed while run {self.name!r} was under way; wait for the result before it is closed, "
            "inside the block `with fx.Cluster(...)`"
        ))  # fmt: skip

    def lost(self, address: str) -> None:
        """A worker left the cluster."""
        if address in self._addresses and not self.done():
            rank = self._addresses.index(address)
            self._failed(rank, LocalityLost(rank, address, f"run {self.name!r}"))

    def unheard(self, why: str) -> None:
        """The scheduler says nothing any more."""
        self._failed(0, scheduler_lost(self.name, why))

    def hear(self, rank: int, event: Event) -> None:
        """A locality has told something."""
        quiet = [rank for rank in self._stalls.hear(event) if self._addresses[rank] in self._ears]
        if quiet:
            threading.Thread(target=self._ask_where, args=(quiet,), name="ask-where", daemon=True).start()
        self.publish(rank, event)

    def _ask_where(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            log.warning("run %r: rank %d is here: %s", self.name, rank, whereabouts(self._ears[self._addresses[rank]]))

    def _finished(self, rank: int, task: Future) -> None:
        if task.status == "finished":
            with self._state:
                self._done += 1
                complete = self._done == self.size
            if complete:
                self._gather()
        elif task.status == "error":
            error = task.exception() or RuntimeError(f"rank {rank} failed")
            self._failed(rank, error.with_traceback(_behind_dask(error.__traceback__)))
        elif self._client.status in ("closing", "closed"):
            self.detach()
        elif task.status in ("cancelled", "lost") and not self._connection.stands:
            self._failed(rank, scheduler_lost(self.name, f"at {self._connection.address}"))
        elif task.status in ("cancelled", "lost"):
            self._failed(rank, LocalityLost(rank, self._addresses[rank], f"run {self.name!r}"))

    def _gather(self) -> None:
        try:
            results = wait_for(
                self._client, partial(self._client.gather, self._tasks), workers=self._addresses,
                seconds=config.deadline(),
            )  # fmt: skip
        except Exception as error:
            error.add_note(f"what the localities returned to run {self.name!r} could not be fetched")
            self._failed(0, error)
            return
        self._tasks = []  # else the workers would keep the results for as long as somebody keeps the run
        self.finish([aligned(result) for result in results])

    def _failed(self, rank: int, error: BaseException) -> None:
        """Note a failure; a moment later, when the cause has arrived behind its symptoms, the run ends with it."""
        with self._state:
            if self._ended:
                return  # what ending the run itself brings about
            if not self._errors:
                self._failed_at = time.monotonic()
            self._errors.setdefault(rank, error)
            if isinstance(error, LocalityLost):
                self._errors[rank] = error
            certain = not isinstance(error, _SYMPTOMS) or len(self._errors) == self.size  # nobody is left to say why
            if self._settling is not None and not certain:
                return
            if self._settling is not None:
                self._settling.cancel()
            self._settling = threading.Timer(0.05 if certain else SETTLE_SECONDS, self._end)
            self._settling.daemon = True
            self._settling.start()

    def _end(self) -> None:
        with self._state:
            self._ended = True
            by_rank = sorted(self._errors.items())
        for rank, error in by_rank:
            if not isinstance(error, (ClusterUnreachable, LocalityLost, *_SYMPTOMS)):  # those name who is missing
                error.add_note(f"raised on locality {rank} ({self._addresses[rank]})")
        causes = [error for _, error in by_rank]
        lost = [error for error in causes if isinstance(error, LocalityLost)]
        others = [error for error in causes if not isinstance(error, _SYMPTOMS)]
        cause = [*lost, *others, *causes][0]
        lasting = self._stalls.lasting(self._failed_at)
        if lasting and isinstance(cause, TimeoutError | LocalityLost | CollectiveError | TransportError):
            cause.add_note("\n".join(lasting))
        self.finish(None, cause)  # first: a worker that hangs keeps what follows waiting
        if not self._connection.stands:
            return
        # What is left of the cluster may be closing. That one of these fails must not keep the other from being done.
        for act in (self._abort, partial(self._client.cancel, self._tasks, force=True)):
            try:
                act()
            except Exception as error:
                log.info("run %r has failed, and its end did not reach every worker: %s", self.name, error)
        self._tasks = []


def _behind_dask(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback of a task without the frames in which Dask called it: they would stand below the user's lines."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_DASK):
        traceback = traceback.tb_next
    return traceback
