"""Elastic runs as a worker sees them: a member for each, and the way to the scheduler and back."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

from distributed import Worker

from futurex.runtime.cluster.handing import Handed, Sent
from futurex.runtime.cluster.supervisor import OP
from futurex.runtime.elastic.coordinator import How
from futurex.runtime.elastic.member import ElasticLocality, Interrupted, Member, Message, pickled
from futurex.runtime.placement import AnyPlan
from futurex.runtime.transport import Endpoint
from futurex.runtime.transport.auth import Secret

Open = Callable[[str, int, int, bytes], Endpoint]  #: transport, rank, size, secret


class Participant:
    """The elastic runs in which a worker takes part. Everything here runs in the worker's event loop."""

    def __init__(self, worker: Worker, open_: Open, plans: dict[Any, AnyPlan], threads: Callable[[], int]) -> None:
        self._worker, self._open, self._plans, self._threads = worker, open_, plans, threads
        self._members: dict[str, Member] = {}
        self._early: dict[str, list[Message]] = {}  # of runs whose program is on its way
        self._tasks: set[asyncio.Task[None]] = set()
        worker.stream_handlers[OP] = self.receive

    def receive(self, run: str, **message: Any) -> None:
        """A message of the scheduler; the first one of a run fetches its program."""
        if "secret" in message:
            message["secret"] = Secret(message["secret"])  # it came as bytes, which somebody might print
        if message["do"] == "over":
            self._early.pop(run, None)
            if run in self._members:
                self._members.pop(run).close()
        elif run in self._members:
            self._members[run].handle(message)
        elif run in self._early:
            self._early[run].append(message)
        elif message["do"] == "form":
            self._early[run] = [message]
            task = asyncio.get_running_loop().create_task(self._enter(run, message["stall"]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Leave all runs."""
        for member in self._members.values():
            member.close()
        self._members.clear()

    async def _enter(self, run: str, stall: float) -> None:
        how = How.INTERRUPTED  # while the program is on its way: this worker may be closing
        try:
            spec = await getattr(self._worker.scheduler, OP)(do="spec", run=run)
            how = How.FAILED
            transport, function, args = await asyncio.to_thread(pickle.loads, spec)  # over Dask's own channel
        except Exception as error:
            [*_, newest] = self._early.pop(run, []) or [{"generation": 0}]
            self._send(run, {
                "is": "ended", "generation": newest["generation"], "how": str(how), "step": 0,
                "reason": f"{type(error).__name__}: {error}", "result": pickled(error) if how is How.FAILED else None,
            })  # fmt: skip
            return
        if run not in self._early:
            return  # it has ended meanwhile

        fetch = partial(self._handed, asyncio.get_running_loop(), run)
        args = [Sent(partial(fetch, arg.name)) if isinstance(arg, Handed) else arg for arg in args]

        def program(locality: ElasticLocality) -> Any:
            return function(locality, *args)

        self._members[run] = Member(
            partial(self._send_from_thread, run), partial(self._open, transport), program, threads=self._threads(),
            stall=stall, plans=self._plans,
        )  # fmt: skip
        for message in self._early.pop(run):
            self._members[run].handle(message)

    def _handed(self, loop: asyncio.AbstractEventLoop, run: str, name: int) -> bytes:
        """What lies with the scheduler until a generation needs it, for the thread of a member."""
        asked = getattr(self._worker.scheduler, OP)(do="handed", run=run, name=name)
        try:
            found: bytes = asyncio.run_coroutine_threadsafe(asked, loop).result()
        except (OSError, LookupError) as error:  # no scheduler, or the run is over there
            raise Interrupted(f"the scheduler does not give what the run begins with: {error}") from error
        return found

    def _send_from_thread(self, run: str, message: Message) -> None:
        self._worker.loop.add_callback(self._send, run, message)

    def _send(self, run: str, message: Message) -> None:
        try:
            self._worker.batched_stream.send({"op": OP, "run": run, **message})
        except OSError:  # the scheduler is gone, and with it soon this worker
            return
