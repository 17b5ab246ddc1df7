"""The worker's side: what a Dask worker keeps to be a locality, and the functions that the driver calls there."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker
from distributed.comm import get_address_host

from futurex.runtime import config
from futurex.runtime.alignment import aligned
from futurex.runtime.cluster.handing import Handed, Sent
from futurex.runtime.cluster.membership import DRIVER_LEFT, topic
from futurex.runtime.cluster.participant import Participant
from futurex.runtime.cluster.stacks import Ear, listen
from futurex.runtime.cluster.turns import let_take_turns
from futurex.runtime.collectives import Communicator
from futurex.runtime.group import Locality
from futurex.runtime.placement import AnyPlan
from futurex.runtime.timeline import Timeline
from futurex.runtime.trace import Recorder
from futurex.runtime.transport import Endpoint, StaleGeneration, Tls, open_endpoint
from futurex.runtime.transport.clock import recording
from futurex.tree.graph import Graph


@dataclass(frozen=True)
class GraphRef:
    """A graph that the workers already have, by hash."""

    hash: str


@dataclass
class Host:
    """The state of one worker as a locality."""

    worker: Worker
    threads: int = field(default_factory=config.threads)
    graphs: dict[str, Graph] = field(default_factory=dict)
    plans: dict[Any, AnyPlan] = field(default_factory=dict)
    sessions: dict[str, Communicator] = field(default_factory=dict)
    running: dict[str, tuple[str, Locality]] = field(default_factory=dict)  # with its session, by run
    waiting: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    handed: dict[tuple[str, str], bytes] = field(default_factory=dict)  # by session and name
    participant: Participant | None = None
    ear: Ear | None = field(default_factory=listen)
    tracing: tuple[str, Recorder, ExitStack] | None = None
    lock: Any = field(default_factory=threading.Lock)

    def begin_generation(self, session: str, generation: int) -> Communicator | None:
        """Enter a generation of a session; None if the session is over or a later generation has begun."""
        with self.lock:
            communicator = self.sessions.get(session)
            if communicator is None or communicator.endpoint.generation > generation:
                return None
            self.sessions[session] = communicator.begin_generation(generation)
            return self.sessions[session]

    def end_session(self, session: str) -> None:
        """Give up what a session has here; what it has under way fails where it next exchanges something."""
        for name in [each for each in list(self.handed) if each[0] == session]:  # of runs that have not begun here
            del self.handed[name]
        with self.lock:
            communicator = self.sessions.pop(session, None)
        if communicator is not None:
            communicator.endpoint.close()

    def driver_left(self, client: str) -> None:
        """Nobody hears any more of what a driver has under way here, which keeps others waiting."""
        with self.lock:
            known = {*self.sessions, *(session for session, _ in list(self.handed))}
            for session, locality in self.running.values():
                if session.startswith(client):
                    locality.deliver({"command": "stop"})
        for session in (each for each in known if each.startswith(client)):
            threading.Thread(target=self.end_session, args=(session,), name="end-session", daemon=True).start()

    def close(self) -> None:
        for communicator in self.sessions.values():
            communicator.endpoint.close()
        self.sessions.clear()
        if self.participant is not None:
            self.participant.close()


class LocalityPlugin(WorkerPlugin):
    """Makes a Dask worker a locality. Registering it again changes nothing: runs may be under way."""

    name = "futurex-locality"
    idempotent = True

    async def setup(self, worker: Worker) -> None:
        if not isinstance(getattr(worker, "futurex_host", None), Host):
            host = worker.futurex_host = Host(worker)
            worker.stream_handlers[DRIVER_LEFT] = host.driver_left
            host.participant = Participant(worker, partial(_endpoint, worker), host.plans, lambda: host.threads)
            host.threads = config.threads(await _neighbours(worker))

    def teardown(self, worker: Worker) -> None:
        host = getattr(worker, "futurex_host", None)
        if isinstance(host, Host):
            host.close()


async def _neighbours(worker: Worker) -> int:
    """How many workers of its cluster there are on a worker's machine, itself among them."""
    try:
        known = (await worker.scheduler.identity())["workers"]
    except OSError:  # a scheduler that has gone is noticed elsewhere
        return 1
    here = get_address_host(worker.address)
    return max(1, sum(get_address_host(address) == here for address in known))


def host_of(worker: Worker) -> Host:
    found: Host = worker.futurex_host
    return found


# -- called by the driver, in the worker's event loop ------------------------------------------------------------------


def ear_of(dask_worker: Worker) -> Ear | None:
    """By what the worker can be asked where it is when it does not answer Dask."""
    return host_of(dask_worker).ear


async def open_session(
    session: str, kind: str, ranks: dict[str, int], secret: bytes, dask_worker: Worker
) -> tuple[int, bytes]:
    """Open this worker's endpoint; returns its rank and the address that others dial."""
    host = host_of(dask_worker)
    rank = ranks[dask_worker.address]

    def open_() -> Communicator:
        return Communicator(_endpoint(dask_worker, kind, rank, len(ranks), secret))

    host.sessions[session] = await asyncio.to_thread(open_)
    await let_take_turns(dask_worker, session)
    return rank, host.sessions[session].endpoint.address


async def connect_session(session: str, addresses: Sequence[bytes], timeout: float, dask_worker: Worker) -> None:
    """Connect to every other rank; needs all of them to do so at once."""
    communicator = host_of(dask_worker).sessions[session]

    def connect() -> None:
        communicator.endpoint.connect(list(addresses), timeout)
        communicator.calibrate()
        communicator.clock.measure(timeout)  # traces are aligned by this reading where a later one does not come

    await asyncio.to_thread(connect)


def _endpoint(worker: Worker, kind: str, rank: int, size: int, secret: bytes) -> Endpoint:
    where = get_address_host(worker.address) if kind in ("tcp", "auto") else "127.0.0.1"
    return open_endpoint(kind, rank, size, secret, host=where, tls=_tls(worker, kind))


def _tls(worker: Worker, kind: str) -> Tls | None:
    """What Dask encrypts this worker's channel with, for the localities' own channels; None where it does not.

    What stays inside a host needs no encryption. Raises ValueError for a transport that leaves it and has none.
    """
    if kind == "local" or not worker.address.startswith("tls://"):
        return None
    if kind not in ("tcp", "auto"):
        raise ValueError(f"the Dask cluster encrypts, and transport={kind!r} cannot: use 'auto' or 'tcp'")
    security = worker.security
    return Tls(security.get_connection_args("worker")["ssl_context"], security.get_listen_args("worker")["ssl_context"])


async def start_trace(session: str, ranks: dict[str, int], name: str, dask_worker: Worker) -> None:
    """Record what this worker does from now on, under a name; RuntimeError if something records already."""
    host = host_of(dask_worker)
    communicator = host.sessions.get(session)
    recorded = ExitStack()
    entered = recording(ranks[dask_worker.address], communicator.clock if communicator is not None else None)
    host.tracing = name, await asyncio.to_thread(recorded.enter_context, entered), recorded


async def stop_trace(name: str, dask_worker: Worker) -> Timeline | None:
    """End what `start_trace` began under this name; None where it has not: what records there is somebody else's."""
    host = host_of(dask_worker)
    if host.tracing is None or host.tracing[0] != name:
        return None
    (_, recorder, recorded), host.tracing = host.tracing, None
    await asyncio.to_thread(recorded.close)
    return Timeline(recorder.chrome(), recorder.error)


async def close_session(session: str, dask_worker: Worker) -> None:
    await asyncio.to_thread(host_of(dask_worker).end_session, session)


async def end_generation(session: str, generation: int, dask_worker: Worker) -> None:
    """A run failed: what it has in flight on this worker fails too. Nothing happens where a later run is under way."""
    await asyncio.to_thread(host_of(dask_worker).begin_generation, session, generation + 1)


def put_graph(name: str, pickled: bytes, dask_worker: Worker) -> None:
    """Keep a graph for later runs, under the hash that the driver gave it."""
    graph = pickle.loads(pickled)  # from the driver, over Dask's own authenticated channel
    host_of(dask_worker).graphs[name] = graph


def hand(name: tuple[str, str], pickled: bytes, dask_worker: Worker) -> None:
    """Keep an argument until its run takes it."""
    host_of(dask_worker).handed[name] = pickled


def align(names: Sequence[str], dask_worker: Worker) -> None:
    """Have the arrays that Dask keeps under these names lie aligned, before many runs use them."""
    for name in names:
        if (found := dask_worker.data.get(name)) is not None:
            dask_worker.data[name] = aligned(found)


async def deliver_command(run: str, command: dict[str, Any], dask_worker: Worker) -> None:
    """Give the locality of a run a command; one that comes before the run starts waits for it."""
    host = host_of(dask_worker)
    with host.lock:
        if run not in host.running:
            host.waiting.setdefault(run, []).append(command)
            return
        _, locality = host.running[run]
    locality.deliver(command)


# -- the SPMD task -----------------------------------------------------------------------------------------------------


def run_spmd(
    run: str,
    session: str,
    generation: int,
    rank: int,
    size: int,
    function: bytes,
    args: tuple[Any, ...],
    mine: tuple[Any, ...],
) -> Any:
    """One rank of a run, as a Dask task on its worker. ``mine`` are this rank's shards, for the marks :class:`Mine`.

    The function comes pickled: only workers need what it is made of, and can say what they lack. Every run is a
    generation of its own, so that no message of one can be taken for another's.
    """
    host = host_of(get_worker())
    communicator = host.begin_generation(session, generation) if size > 1 else None
    if size > 1 and communicator is None:
        raise StaleGeneration(f"run {run!r} (generation {generation}) ended before rank {rank} started")

    def emit(event: dict[str, Any]) -> None:
        host.worker.log_event(topic(session), {"run": run, "rank": rank, "event": event})

    locality = Locality(rank, size, host.threads, emit, communicator, host.plans)
    with host.lock:
        host.running[run] = session, locality
        for command in host.waiting.pop(run, []):
            locality.deliver(command)
    try:
        return _on_compute_thread(_unpickled(function), locality, [_resolved(arg, host, mine) for arg in args])
    finally:
        with host.lock:
            del host.running[run]


def _unpickled(function: bytes) -> Any:
    try:
        return pickle.loads(function)  # from the driver, over Dask's own channel
    except ModuleNotFoundError as error:
        error.add_note(
            f"this worker has no module {error.name!r}: start workers where it can be imported, or send it to those "
            "there are with cluster.client.upload_file(path)"
        )
        raise


def _on_compute_thread(function: Any, locality: Locality, args: list[Any]) -> Any:
    """A thread of its own, named as traces name it, and joined before the task ends."""
    outcome: dict[str, Any] = {}

    def body() -> None:
        try:
            outcome["result"] = function(locality, *args)
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=body, name="compute", daemon=True)
    thread.start()
    thread.join()
    error = outcome.get("error")
    if error is not None and not isinstance(error, Exception):  # Dask ends a worker whose task raises such
        raise RuntimeError(f"the function asked its process to end: {error!r}") from error
    if error is not None:
        raise error
    return outcome["result"]


@dataclass(frozen=True)
class Mine:
    """Stands for this rank's shard number ``index`` among the arguments of a run."""

    index: int


def _resolved(arg: Any, host: Host, mine: tuple[Any, ...]) -> Any:
    if isinstance(arg, GraphRef):
        return host.graphs[arg.hash]
    if isinstance(arg, Handed):
        return Sent([host.handed.pop(arg.name)].pop)
    if isinstance(arg, Mine):
        return aligned(mine[arg.index])  # Dask may have spilled it meanwhile
    if isinstance(arg, tuple | list):
        return type(arg)(_resolved(entry, host, mine) for entry in arg)
    if isinstance(arg, dict):
        return {key: _resolved(entry, host, mine) for key, entry in arg.items()}
    return aligned(arg)
