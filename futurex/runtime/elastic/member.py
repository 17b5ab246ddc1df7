"""A worker's part in an elastic run: it forms generations, computes in them, and leaves them when it is told to.

A member gets messages by :meth:`Member.handle` and sends its own by ``send``; what carries them is not its business.
One thread of its own does everything that takes time; another one sends signs of life.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from futurex.errors import FuturexError
from futurex.runtime import points
from futurex.runtime.collectives import CollectiveError, Communicator
from futurex.runtime.elastic.commits import Commit, Commits, Lying, Position, broadcast
from futurex.runtime.elastic.coordinator import How, Mark
from futurex.runtime.group import Event, Locality
from futurex.runtime.placement import AnyPlan
from futurex.runtime.transport import Endpoint, TransportError

Message = dict[str, Any]
Send = Callable[[Message], object]
Open = Callable[[int, int, bytes], Endpoint]
_BEATS = 8  # signs of life in the time after which their absence counts


class Interrupted(FuturexError):
    """The generation has ended, or this locality no longer knows that it has not."""


class Paused(Exception):
    """The program has stopped after the same step on all localities, with a commit, because it was asked to."""


class ElasticLocality(Locality):
    """A locality in one generation of a run that survives it.

    ``restored`` is the commit with which the generation begins, None at the very beginning. A program calls :meth:`act`
    before every step and before it shows what a step gave, and :meth:`commit` after the same steps on every locality.
    """

    def __init__(
        self, rank: int, size: int, threads: int, emit: Callable[[Event], None], communicator: Communicator | None,
        plans: dict[Any, AnyPlan], generation: int, commits: Commits, allowed: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(rank, size, threads, emit, communicator, plans)
        self.generation = generation
        self.step = 0
        self.communicator = communicator
        self._commits, self._allowed = commits, allowed

    @property
    def restored(self) -> Commit | None:
        return self._commits.restored

    def act(self, step: int) -> None:
        """About to do something for the run ``step`` steps into it. Raises Interrupted where that is not allowed."""
        self.step = step
        self._allowed()

    def commit(
        self, step: int, leaves: Sequence[Any], position: Position, lying: Sequence[Lying] | None = None
    ) -> None:
        """Keep a copy of arrays and Python floats, from which the run can go on; ``lying`` says which are cut up."""
        self.act(step)
        points.reach("commit", self)
        self._commits.take(Mark(step, self.generation), leaves, position, lying, self.communicator)

    def agree(self, value: int) -> int:
        """What rank 0 says; all ranks of the generation call this."""
        array = np.array([value], np.int64)
        broadcast(self.communicator, 0, array)
        return int(array[0])

    def pause(self) -> NoReturn:
        """End this generation; all localities do so after the same step, with a commit of it."""
        raise Paused


class Member:
    """One worker in one run. ``program(locality)`` is called once a generation, ``open_`` makes its endpoint."""

    def __init__(
        self, send: Send, open_: Open, program: Callable[[ElasticLocality], Any], *, threads: int, stall: float,
        plans: dict[Any, AnyPlan] | None = None,
    ) -> None:  # fmt: skip
        self._send, self._open, self._program = send, open_, program
        self._threads, self._stall = threads, stall
        self._plans = plans if plans is not None else {}
        self._commits = Commits()
        self._inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards what follows
        self._asked = 0  # the newest generation that was asked for
        self._generation = 0  # the one in which this member is
        self._place = (0, 1)
        self._lease = 0.0
        self._communicator: Communicator | None = None
        self._locality: ElasticLocality | None = None
        self._told: list[Message] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="compute", daemon=True)
        self._thread.start()
        threading.Thread(target=self._beat, name="signs-of-life", daemon=True).start()

    # -- called by whoever carries messages; nothing here blocks ------------------------------------------------------

    def handle(self, message: Message) -> None:
        """Take in a message: ``form``, ``start``, ``grant``, ``tell`` or ``over``."""
        kind, generation = message["do"], message.get("generation", 0)
        if kind == "over":
            self.close()
        elif kind == "form":
            with self._lock:
                self._asked = generation
            self._inbox.put(message)
            self._interrupt()
        elif kind == "start":
            self._inbox.put(message)
        elif kind == "grant":
            with self._lock:
                if generation == self._generation:
                    self._lease = max(self._lease, message["sent"] + self._stall)
        elif kind == "tell":
            with self._lock:
                if self._locality is not None and self._locality.generation == generation:
                    self._locality.deliver(message["command"])
                else:
                    self._told.append(message)

    def close(self) -> None:
        """Leave the run; the program is interrupted where it next looks."""
        with self._lock:
            self._asked = 1 << 62
        self._over.set()
        self._inbox.put(None)
        self._interrupt()

    def join(self, timeout: float) -> bool:
        """Wait until the thread of this member has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _interrupt(self) -> None:
        """What waits for others fails at once; closing takes a moment, which the caller does not have."""
        communicator = self._taken()
        if communicator is not None:
            threading.Thread(target=_close, args=(communicator,), name="leave-generation", daemon=True).start()

    def _taken(self) -> Communicator | None:
        """The communicator, for whoever closes it: only one does."""
        with self._lock:
            communicator, self._communicator = self._communicator, None
        return communicator

    # -- signs of life -------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        while not self._over.wait(self._stall / _BEATS):
            with self._lock:
                generation, expired = self._generation, time.monotonic() >= self._lease
            if generation:
                self._send({"is": "alive", "generation": generation, "sent": time.monotonic()})
            if generation and expired:  # those it waits for may be stopped, as it was, for longer
                self._interrupt()

    def _allowed(self) -> None:
        with self._lock:
            asked, generation, left = self._asked, self._generation, self._lease - time.monotonic()
        if asked > generation:
            raise Interrupted(f"generation {generation} has ended")
        if left <= 0:
            raise Interrupted(f"nothing was heard of the scheduler for {self._stall:g} s")

    # -- generations, all on this member's thread ----------------------------------------------------------------------

    def _live(self) -> None:
        while (message := self._inbox.get()) is not None:
            generation = message["generation"]
            with self._lock:
                late = generation < self._asked
            if late:
                continue
            try:
                if message["do"] == "form":
                    self._form(generation, message["rank"], message["size"], message["secret"])
                else:
                    self._take_part(generation, message["addresses"], message["mark"], message["sources"])
            except Paused:
                self._end(How.PAUSED)
            except (CollectiveError, TransportError, Interrupted) as error:
                self._end(How.INTERRUPTED, error)
            except BaseException as error:
                self._end(How.FAILED, error)
        self._leave()

    def _form(self, generation: int, rank: int, size: int, secret: bytes) -> None:
        """Leave what was before, and open an endpoint that only this generation knows the secret of."""
        self._leave()
        with self._lock:
            self._generation, self._place = generation, (rank, size)
            self._lease = time.monotonic() + self._stall
        communicator = None
        if size > 1:
            endpoint = self._open(rank, size, secret)
            endpoint.set_generation(generation)
            communicator = Communicator(endpoint)
            with self._lock:
                self._communicator = communicator
        held = [[[*each.mark], [*each.pieces], each.of] for each in self._commits.held()]
        self._send({
            "is": "formed", "generation": generation, "held": held,
            "address": communicator.endpoint.address if communicator is not None else b"",
        })  # fmt: skip

    def _take_part(
        self, generation: int, addresses: Sequence[bytes], mark: Sequence[int] | None, sources: Sequence[int]
    ) -> None:
        with self._lock:
            communicator, (rank, size) = self._communicator, self._place
        if size > 1:
            if communicator is None:
                raise Interrupted(f"generation {generation} has ended")
            communicator.endpoint.connect(list(addresses), self._stall / 2)
            communicator.calibrate()
        self._commits.begin(communicator, Mark(*mark) if mark is not None else None, sources)

        def emit(event: Event) -> None:
            self._send({"is": "event", "generation": generation, "rank": rank, "event": event})

        locality = ElasticLocality(
            rank, size, self._threads, emit, communicator, self._plans, generation, self._commits, self._allowed
        )
        with self._lock:
            self._locality = locality
            for message in self._told:
                if message["generation"] == generation:
                    locality.deliver(message["command"])
            self._told.clear()
        result = self._program(locality)
        locality.act(locality.step)
        self._end(How.FINISHED, result=pickle.dumps(result))

    def _end(self, how: How, error: BaseException | None = None, result: bytes | None = None) -> None:
        with self._lock:
            locality, self._locality = self._locality, None
            generation, over = self._generation, self._asked > self._generation
        if not over:
            self._send({
                "is": "ended", "generation": generation, "how": str(how), "step": locality.step if locality else 0,
                "reason": f"{type(error).__name__}: {error}" if error is not None else "",
                "result": result if error is None or how is not How.FAILED else pickled(error),
            })  # fmt: skip
        if how in (How.FAILED, How.INTERRUPTED):
            self._leave()  # the others notice; after a good end they may still need what this rank has sent

    def _leave(self) -> None:
        communicator = self._taken()
        if communicator is not None:
            _close(communicator)
        with self._lock:
            self._generation = 0


def _close(communicator: Communicator) -> None:
    with contextlib.suppress(TransportError):
        communicator.endpoint.close()


def pickled(error: BaseException) -> bytes:
    """An error as bytes; where that cannot be, one that says the same."""
    try:
        return pickle.dumps(error)
    except Exception:  # an exception may hold anything
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
