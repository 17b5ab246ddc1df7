"""Groups of localities: where a program that every locality runs (SPMD) is started, followed and steered.

:class:`SoloGroup` is this process alone; a cluster is the same interface over many workers.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast, runtime_checkable

from futurex.partition import Mesh, partition
from futurex.partition.buckets import BUCKET
from futurex.partition.compress import compress
from futurex.partition.mesh import Placement
from futurex.passes.precision import lower_precision
from futurex.runtime import config, trace
from futurex.runtime.collectives import Communicator, Correspondence
from futurex.runtime.placement import AnyPlan
from futurex.runtime.placement import compiled as placed
from futurex.runtime.plan import as_numpy, compile_plan
from futurex.runtime.remat import within
from futurex.runtime.timeline import Timeline
from futurex.runtime.traffic import Ledger
from futurex.runtime.transport.clock import recording
from futurex.tree.graph import Graph

Event = dict[str, Any]
Command = dict[str, Any]
_runs = itertools.count(1)


class Step:
    """A compiled program on one locality; calling it runs this rank's part, in step with the other ranks."""

    def __init__(self, plan: AnyPlan, communicator: Communicator | None, ledger: Ledger) -> None:
        self.plan = plan
        self._communicator = communicator
        self._ledger = ledger

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        start = time.perf_counter()
        if self._communicator is not None:
            self._communicator.begin_step()
        results = self.plan.run(args, self._communicator)
        self._ledger.step(time.perf_counter() - start)
        return results


PLANS = 128
"""Plans that a process keeps for later runs: a loss that is made in a function is another program every time."""


class Locality:
    """One member of a group, as the function that it runs sees it.

    ``rank`` of ``size``; ``threads`` is what its kernels may use; ``ledger`` counts what it exchanges. ``generation``
    is that of an elastic run, 0 elsewhere.
    """

    generation = 0

    def __init__(
        self,
        rank: int,
        size: int,
        threads: int,
        emit: Callable[[Event], None],
        communicator: Communicator | None = None,
        plans: dict[Any, AnyPlan] | None = None,
    ) -> None:
        self.rank, self.size, self.threads = rank, size, threads
        self._emit = emit
        self._communicator = communicator
        self.ledger = Ledger(communicator)
        if communicator is not None:
            communicator.on_stall = lambda stall: emit(stall.event())
        self._plans = plans if plans is not None else {}
        self.limit: int | None = None
        """Bytes that a run of a program may take."""
        self.device = "cpu"
        """Where programs run: ``"cpu"`` or ``"gpu"``."""
        self.errors: Mapping[str, Any] = {}
        """NumPy's floating-point error state (``np.errstate``) of whoever began the run, if something raises there."""
        self.lends = False
        """Are arrays that programs leave here read by others than programs?"""
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._events: list[trace.Event] = []
        self._clock_error = 0.0

    def compile(
        self,
        graph: Graph,
        placements: Sequence[Placement],
        donate: Mapping[int, int] | None = None,
        compression: str | None = None,
        outs: Sequence[Placement] | None = None,
        resident: bool = False,
        precision: str = "",
    ) -> Step:
        """This rank's part of a program with global shapes, compiled; equal programs are compiled once.

        ``placements`` says how each input lies, ``donate`` which outputs overwrite which inputs, ``compression`` in
        what smaller form the last sums are sent (see ``fx.fit``), ``outs`` how results lie if not replicated;
        ``resident`` results of a GPU stay there; ``precision`` is the format of this rank's products, while sums over
        ranks are single precision. Raises MemoryError where no plan stays within the locality's ``limit``.
        """
        donate = dict(donate or {})
        bucket = self._communicator.bucket_bytes if self._communicator is not None else BUCKET
        key = (
            graph.hash, tuple(map(repr, placements)), tuple(donate.items()), self.rank, self.size, self.threads, bucket,
            compression, repr(outs), self.limit, self.device, resident, bool(self.errors),
            precision,
        )  # fmt: skip
        plan = self._plans.get(key)
        if plan is None:
            local = graph
            if self.size > 1:
                mesh = Mesh((("data", self.size),))
                local = partition(graph, placements, mesh, self.rank, outs, bucket_bytes=bucket)
                local = compress(local, compression) if compression else local
            local = lower_precision(local, precision) if precision else local
            if self.device != "cpu":
                plan = placed(local, self.device, donate=donate, resident=resident)
            elif self.errors:
                plan = as_numpy(local, donate)
            elif self.limit is None:
                plan = compile_plan(local, threads=self.threads, donate=donate)
                plan.decide()  # a run that is made again, from its data or a checkpoint, has the same bits
            else:
                plan = within(local, self.limit, threads=self.threads, donate=donate, background=False)
            self._plans[key] = plan
            for oldest in [*self._plans][:-PLANS]:
                self._plans.pop(oldest, None)
        return Step(plan, self._communicator, self.ledger)

    def alone(self) -> Locality:
        """This locality as one without others, for programs of its own; what they do counts as this one's."""
        single = Locality(0, 1, self.threads, self._emit, plans=self._plans)
        single.ledger, single.limit, single.device, single.lends = self.ledger, self.limit, self.device, True
        single.errors = self.errors
        return single

    @property
    def keeps(self) -> bool:
        """Do programs leave on a GPU what the next step reads there again?"""
        return self.device != "cpu" and not self.lends

    def correspondence(self) -> Correspondence:
        """Letters to and from single localities. Raises RuntimeError where there are no others."""
        if self._communicator is None:
            raise RuntimeError("a locality that is alone has nobody to write to")
        return self._communicator.correspondence()

    def emit(self, event: Event) -> None:
        """Tell the driver something; returns at once."""
        self._emit(event)

    def commands(self) -> list[Command]:
        """What the driver sent since the last call."""
        found = []
        while True:
            try:
                found.append(self._commands.get_nowait())
            except queue.Empty:
                return found

    def deliver(self, command: Command) -> None:
        """Put a command where :meth:`commands` finds it (called by the group, from any thread)."""
        self._commands.put(command)

    @property
    def communication_seconds(self) -> float:
        """Seconds in which a collective was in flight."""
        return self._communicator.times()[0] if self._communicator is not None else 0.0

    @property
    def exposed_seconds(self) -> float:
        """Seconds in which the computation waited for a collective."""
        return self._communicator.times()[1] if self._communicator is not None else 0.0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record every instruction, exchange and message inside the block, for :meth:`trace`."""
        clock = self._communicator.clock if self._communicator is not None else None
        with recording(self.rank, clock) as recorder:
            yield
        self._events += recorder.chrome()
        self._clock_error = max(self._clock_error, recorder.error)

    def trace(self) -> Timeline:
        """What was recorded on this rank."""
        return Timeline(self._events, self._clock_error)


class Once:
    """An argument that a run does not keep: whoever takes it has it alone.

    On a cluster no copy stays with the workers; an elastic run that begins anew gets it again from the scheduler.

    >>> first = Once([1.0])
    >>> first.take(), first.take()
    ([1.0], None)
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def take(self) -> Any:
        """The value."""
        value, self._value = self._value, None
        return value


SpmdFunction = Callable[..., Any]


class SpmdRun(ABC):
    """A function under way on all localities of a group."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self._future: concurrent.futures.Future[list[Any]] = concurrent.futures.Future()
        self._subscribers: list[Callable[[int, Event], None]] = []
        self._history: list[tuple[int, Event]] = []
        self._lock = threading.RLock()

    def result(self, timeout: float | None = None) -> list[Any]:
        """What the function returned, by rank.

        Raises what it raised on the rank that failed first, and TimeoutError after ``timeout`` seconds.
        """
        return self._future.result(timeout)

    def done(self) -> bool:
        return self._future.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._future.exception(timeout)

    def add_done_callback(self, fn: Callable[[SpmdRun], Any]) -> None:
        """Call ``fn(self)`` when every locality has finished, or the run has failed."""
        self._future.add_done_callback(lambda _: fn(self))

    def subscribe(self, fn: Callable[[int, Event], None]) -> None:
        """Call ``fn(rank, event)`` for every event, from the first one on, in order per rank."""
        with self._lock:
            for rank, event in self._history:
                fn(rank, event)
            self._subscribers.append(fn)

    @abstractmethod
    def send(self, command: Command) -> None:
        """Give every locality a command; it sees it at its next look."""

    def publish(self, rank: int, event: Event) -> None:
        """An event arrived (called by the group)."""
        with self._lock:
            self._history.append((rank, event))
            for fn in self._subscribers:
                fn(rank, event)

    def finish(self, results: list[Any] | None, error: BaseException | None = None) -> None:
        """Complete the run, once (called by the group)."""
        with self._lock:
            if self._future.done():
                return
            if error is not None:
                self._future.set_exception(error)
            else:
                assert results is not None
                self._future.set_result(results)


class Group(Protocol):
    """Localities that run one program together."""

    @property
    def size(self) -> int: ...

    def spmd(self, function: SpmdFunction, *args: Any, name: str = "") -> SpmdRun:
        """Start ``function(locality, *args)`` on every locality, and return at once."""
        ...


def group_of(cluster: Any) -> Group:
    """``cluster`` itself. Raises TypeError for what is no group: a number, an address, a Dask client."""
    if not callable(getattr(cluster, "spmd", None)):
        raise TypeError(
            f"{cluster!r} is no cluster; fx.Cluster(n) starts one of n localities here, fx.Cluster(x) takes an "
            "address, a Dask client or a Dask cluster. Make it once and give it to every call"
        )
    return cast(Group, cluster)


@runtime_checkable
class ElasticGroup(Group, Protocol):
    """A group whose runs may go on when localities are lost or come; see :mod:`futurex.runtime.elastic`."""

    def elastic(self, function: SpmdFunction, *args: Any, settings: Any, name: str, about: Any) -> SpmdRun:
        """Start ``function(locality, *args)``, once in every generation, and return at once."""
        ...

    def attached(self, name: str) -> tuple[SpmdRun, Any]:
        """A run that was started before, and what it said ``about`` itself."""
        ...


class _SoloRun(SpmdRun):
    def __init__(self, name: str, locality: Locality) -> None:
        super().__init__(name, 1)
        self._locality = locality

    def send(self, command: Command) -> None:
        self._locality.deliver(command)


class SoloGroup:
    """This process as a group of one locality; runs go on in a thread of their own.

    >>> SoloGroup().spmd(lambda locality, x: x + locality.rank, 1).result(timeout=5)
    [1]
    """

    size = 1

    def __init__(self) -> None:
        self.threads = config.threads()
        self._plans: dict[Any, AnyPlan] = {}

    def spmd(self, function: SpmdFunction, *args: Any, name: str = "") -> SpmdRun:
        """Start ``function(locality, *args)`` in a background thread."""
        locality = Locality(0, 1, self.threads, lambda event: run.publish(0, event), plans=self._plans)
        run = _SoloRun(name or f"run-{next(_runs)}", locality)

        def body() -> None:
            try:
                result = function(locality, *args)
            except BaseException as error:
                run.finish(None, error)
            else:
                run.finish([result])

        threading.Thread(target=body, name="compute", daemon=True).start()
        return run


def run_program(
    locality: Locality, graph: Graph, placements: Sequence[Placement], args: Sequence[Any], limit: int | None = None,
    device: str = "cpu",
) -> list[Any]:  # fmt: skip
    """One run of a program, as a function for :meth:`Group.spmd`; every rank returns the whole results.

    ``limit``: bytes that it may take on each rank.
    """
    locality.limit, locality.device = limit, device
    return locality.compile(graph, placements)(args)
