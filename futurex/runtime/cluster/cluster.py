"""``fx.Cluster``: localities on Dask workers, embedded or on a cluster that is already running."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pickle
import secrets
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import dask
from dask.utils import parse_timedelta
from distributed import Client, LocalCluster
from distributed.comm import get_address_host_port
from distributed.protocol.pickle import dumps

from futurex.errors import whole_number
from futurex.runtime import config
from futurex.runtime.cluster import dashboard, host
from futurex.runtime.cluster.asking import SOON, ask_workers, greet, wait_for
from futurex.runtime.cluster.elastic_run import TRIES, ElasticRun, ask
from futurex.runtime.cluster.embedding import innermost, let_go, spared_interrupts
from futurex.runtime.cluster.errors import ClusterUnreachable, LocalityLost
from futurex.runtime.cluster.handing import Handed
from futurex.runtime.cluster.host import GraphRef, LocalityPlugin, Mine
from futurex.runtime.cluster.membership import (
    TOPIC,
    Connection,
    MembershipPlugin,
    listen,
    no_longer_listen,
    topic,
    workers_of,
)
from futurex.runtime.cluster.pulse import Pulse
from futurex.runtime.cluster.run import ClusterRun
from futurex.runtime.cluster.stacks import Ear
from futurex.runtime.cluster.supervisor import ElasticPlugin
from futurex.runtime.cluster.tiles import Tiled, cut
from futurex.runtime.cluster.turns import submit_together
from futurex.runtime.cluster.watching import TrainingPlugin
from futurex.runtime.elastic.coordinator import Settings
from futurex.runtime.group import Once, SpmdRun
from futurex.runtime.placement import DEVICES
from futurex.runtime.timeline import Timeline, merged
from futurex.runtime.transport.auth import Secret
from futurex.tree.given import plain_array
from futurex.tree.graph import Graph
from futurex.tree.pytree import flatten
from futurex.uninterrupted import uninterrupted

TRANSPORTS = ("auto", "local", "tcp", "ucx")
_names = itertools.count(1)
_SILENT = logging.CRITICAL + 1  # the scheduler calls it critical that a client has left while runs were under way
_SHIP_TOGETHER = 1 << 16  # arguments larger than this travel once, as data, not inside every task


class Cluster:
    """Localities that run programs together.

    ``Cluster(n)`` starts an embedded cluster of ``n`` worker processes on this machine; ``Cluster(address)``,
    ``Cluster(client)`` and ``Cluster(cluster)`` use the workers of a running Dask cluster. ``transport`` is how
    localities exchange arrays: ``"auto"``, through memory that they share inside a host, and over TCP between hosts,
    encrypted where Dask's own channels are; ``"local"`` or ``"tcp"``, one of these two for all; or ``"ucx"`` (extra).
    ``timeout`` seconds bound every step of starting up.

    Use it as a context manager, or call :meth:`close`. Raises ClusterUnreachable if nobody answers.

    >>> import futurex as fx
    >>> with fx.Cluster(2) as cluster:          # doctest: +SKIP
    ...     cluster.size
    2
    """

    def __init__(
        self,
        target: Any = None,
        *,
        transport: str = "auto",
        threads: int | None = None,
        timeout: float = 30.0,
        **unknown: Any,
    ) -> None:
        _check_options(transport, timeout, unknown)
        self.transport = transport
        self._timeout = timeout
        self._lock = threading.RLock()
        self._runs: dict[str, ClusterRun] = {}
        self._elastic: list[ElasticRun] = []
        self._ears: dict[str, Ear] = {}
        self._graphs: set[str] = set()
        self._gone: str | None = None  # the address of a locality that is lost
        self._is_closed = False
        self._closing = contextlib.ExitStack()
        self._generation = 0
        self._process = os.getpid()
        self._wanted: int | None = None  # how many workers there are to be, where they are this object's own
        try:
            self.client = self._attach(target, threads)
            self._connection = Connection(self.client)
            self._pulse = Pulse(self.client, self._connection, lambda: list(self._runs.values()))
            self._closing.callback(self._pulse.end)
            self._session = f"{self.client.id}-{uuid.uuid4().hex}"  # workers end it when this client has left
            self.addresses = self._found_workers()
            if self._wanted is None:
                self._check_versions()
            self._register(LocalityPlugin(), MembershipPlugin(), ElasticPlugin(), TrainingPlugin())
            if self._wanted is not None:  # they run on this machine
                self._ears = {address: ear for address, ear in self._ask(host.ear_of).items() if ear is not None}
            for name in (TOPIC, topic(self._session)):
                listen(self.client, name, self)
            self._note_lost()
            if self.size > 1:
                self._open_session()
        except BaseException:
            with uninterrupted():
                self._closing.close()
            raise

    # -- starting ----------------------------------------------------------------------------------------------------

    def _attach(self, target: Any, threads: int | None) -> Client:
        if target is None or hasattr(target, "__index__"):
            return self._embedded(config.threads() if target is None else target, threads)
        if isinstance(target, Client):
            if target.asynchronous:
                raise TypeError(
                    "fx.Cluster waits for its client, and an asynchronous one cannot be waited for: give the "
                    f"scheduler's address, fx.Cluster({target.scheduler.address!r})"
                )
            return target
        if isinstance(target, str) or hasattr(target, "scheduler_address"):
            return self._connected(target)
        raise TypeError(
            "fx.Cluster takes a number of localities, a scheduler address, a distributed.Client or a Dask cluster, "
            f"not {target!r}"
        )

    def _embedded(self, n: int, threads: int | None) -> Client:
        n = whole_number("the number of localities", n, 1)
        each = max(1, config.threads() // n) if threads is None else whole_number("threads", threads, 1)
        environment = {"FUTUREX_THREADS": str(each), "OMP_NUM_THREADS": str(each), "OPENBLAS_NUM_THREADS": str(each)}
        settings = {"distributed.worker.daemon": True, "distributed.scheduler.worker-saturation": "inf"}
        with dask.config.set(settings), spared_interrupts():
            dashboard.register()
            try:
                cluster = LocalCluster(
                    n_workers=n, threads_per_worker=1, processes=True, host="127.0.0.1",
                    dashboard_address="127.0.0.1:0", memory_limit=0, env=environment,
                    silence_logs=_SILENT,
                )  # fmt: skip
            except Exception as error:
                raise ClusterUnreachable(
                    f"the embedded cluster did not start: {innermost(error)}. In a script, what starts worker "
                    'processes stands below `if __name__ == "__main__":`; else `futurex doctor` says what this machine '
                    "lacks (shared memory, the loopback device, ports)"
                ) from None
            self._wanted = n
            self._closing.callback(cluster.close, timeout=60)
            self._closing.callback(cluster.sync, let_go, cluster)
        with uninterrupted():  # one that is left in its middle is known to nobody, and has a thread
            client = Client(cluster, set_as_default=False, timeout=self._timeout)
            self._closing.callback(client.close, timeout=5)
        return client

    def _connected(self, target: Any) -> Client:
        try:
            if isinstance(target, str):
                get_address_host_port(target)
        except ValueError as error:  # Dask would find that too, and leave a client that waits when the program ends
            raise ClusterUnreachable(
                f"{target!r} is not the address of a Dask scheduler ({error}); write it as tcp://HOST:8786"
            ) from None
        try:
            if isinstance(target, str):
                greet(target, self._timeout)
            with uninterrupted():
                client = Client(target, set_as_default=False, timeout=self._timeout)
                self._closing.callback(client.close, timeout=5)
        except (OSError, TimeoutError, ValueError) as error:
            why = str(error) or type(error).__name__
            raise ClusterUnreachable(
                f"no Dask scheduler answers at {target} within {self._timeout:g} s ({why}); start one with "
                "`dask scheduler` and `dask worker ADDRESS`, or use fx.Cluster(n) for an embedded one"
            ) from None
        return client

    def _register(self, *plugins: Any) -> None:
        try:
            for plugin in plugins:
                self._wait(partial(self.client.register_plugin, plugin), self._timeout)
        except Exception as error:
            if "No module named" not in str(error):
                raise
            raise ClusterUnreachable(
                f"the scheduler or a worker of the Dask cluster lacks a package ({error}): install futurex there, "
                "in the versions of this process; "
                f"`futurex doctor --scheduler {self.client.scheduler.address}` lists the differences"
            ) from None

    def _found_workers(self) -> list[str]:
        try:
            self.client.wait_for_workers(1, timeout=self._timeout)
        except TimeoutError:
            raise ClusterUnreachable(
                f"the Dask cluster has no workers after {self._timeout:g} s; start some with `dask worker ADDRESS`"
            ) from None
        workers = workers_of(self.client, self._timeout)
        return sorted(workers, key=lambda address: str(workers[address].get("name", address)))

    def _check_versions(self) -> None:
        """Before anything of ours is unpickled there. Dask asks; who has no version lacks the package."""
        found = self._wait(partial(self.client.get_versions, packages=["futurex"]), self._timeout)
        here = found["client"]["packages"]["futurex"]
        others: dict[str, list[str]] = {}
        for where, about in (("the scheduler", found["scheduler"]), *found["workers"].items()):
            version = about["packages"].get("futurex") if about else None
            if version is not None and here is not None and version != here:
                others.setdefault(version, []).append(where)
        if others:
            differ = " and ".join(f"futurex {version} on {', '.join(where)}" for version, where in others.items())
            raise ClusterUnreachable(
                f"the Dask cluster at {self.client.scheduler.address} has {differ}, and this process has futurex "
                f"{here}: run `python -m pip install futurex=={here}` there and start it again, or install the "
                "cluster's version here"
            )

    def _open_session(self) -> None:
        """Endpoints on all workers, connected to each other. The secret travels over Dask's channel only."""
        ranks = {address: rank for rank, address in enumerate(self.addresses)}
        secret = Secret(secrets.token_bytes(32))
        opened = self._ask(host.open_session, self._session, self.transport, ranks, secret, seconds=self._timeout)
        endpoints = [blob for _, blob in sorted(opened.values())]
        seconds = self._timeout + SOON  # they know better than this side who does not connect to whom
        self._ask(host.connect_session, self._session, endpoints, self._timeout, seconds=seconds)

    def _ask(self, function: Callable[..., Any], *args: Any, seconds: float | None = None) -> dict[str, Any]:
        """What a function returns on all localities; they are waited for as long as they wait for each other.

        Raises LocalityLost once one of them is lost.
        """
        return ask_workers(
            self.client, function, *args, workers=self.addresses, seconds=seconds or config.deadline(),
            lost=self._lost,
        )  # fmt: skip

    def _wait(self, begin: Callable[[], Any], seconds: float | None = None) -> Any:
        """The same for what Dask does with all localities, or with the scheduler: it would wait without an end."""
        seconds = seconds or config.deadline()
        return wait_for(self.client, begin, workers=self.addresses, seconds=seconds, lost=self._lost)

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many localities there are."""
        return len(self.addresses)

    @property
    def dashboard(self) -> str | None:
        """Where a browser finds training runs on Dask's dashboard: loss, rates, communication. None without Bokeh.

        >>> fx.Cluster(2).dashboard                       # doctest: +SKIP
        'http://127.0.0.1:41235/individual-futurex-training'
        """
        self._check_open()
        if not self.client.run_on_scheduler(dashboard.served):
            return None
        return self.client.dashboard_link.rpartition("/")[0] + dashboard.PAGE

    def __repr__(self) -> str:
        where = "closed" if self._is_closed else self._connection.address
        return f"<Cluster of {self.size} localities over {self.transport}, {where}>"

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session on the workers, and the workers too if this object started them.

        Ctrl-C comes when that is done: Dask's client and cluster cannot be closed a second time, and what is left of
        them keeps the process from ending.
        """
        self._is_closed = True
        if os.getpid() != self._process:
            return  # they are the parent's
        with uninterrupted():
            self._close()

    def _close(self) -> None:
        for name in (TOPIC, topic(self._session)):
            with contextlib.suppress(Exception):
                no_longer_listen(self.client, name, self)
        under_way: list[ClusterRun | ElasticRun] = [*self._elastic, *self._runs.values()]
        for run in under_way:
            run.detach()
        if self.client.status == "running" and self._gone is None:
            with contextlib.suppress(Exception):
                ask_workers(
                    self.client, host.close_session, self._session, workers=self.addresses, seconds=SOON,
                    on_error="ignore",
                )  # fmt: skip
        self._closing.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClusterUnreachable("this fx.Cluster has been closed; make a new one, or stay inside its `with` block")
        if os.getpid() != self._process:
            raise ClusterUnreachable(
                "this process has forked from the one that made this fx.Cluster, and has none of its threads: make a "
                f"new one here, fx.Cluster({self._connection.address!r})"
            )
        if not self._connection.stands:
            raise ClusterUnreachable(
                f"the scheduler at {self._connection.address} does not answer any more, or the Dask client has been "
                "closed; make a new fx.Cluster"
            )

    def hear(self, name: str, message: Any) -> None:
        """Of a worker that has left, or what a locality tells of a run (called by Dask's client)."""
        if name == TOPIC:
            self._left(message["left"])
        elif (run := self._runs.get(message["run"])) is not None:
            run.hear(message["rank"], message["event"])

    def _left(self, address: str) -> None:
        if self._wanted is not None:
            # Dask starts lost workers again, but not one that is lost a second time while it looks for the first time.
            patience = parse_timedelta(dask.config.get("distributed.deploy.lost-worker-timeout")) + 1.0
            timer = threading.Timer(patience, self._refill)
            timer.daemon = True
            timer.start()
        if address not in self.addresses:
            return
        if self._gone is None:
            self._gone = address
        for run in list(self._runs.values()):
            run.lost(address)

    def _note_lost(self) -> None:
        """Those that left before this object heard of it."""
        there = workers_of(self.client, self._timeout)
        for address in self.addresses:
            if address not in there and self._gone is None:
                self._gone = address

    def _lost(self) -> LocalityLost | None:
        """Of the first locality that is lost, if one is; each time another error, with the frames of its own raise."""
        gone, during = self._gone, "an earlier run" if self._generation else "the time before a run"
        return None if gone is None else LocalityLost(self.addresses.index(gone), gone, during)

    def _refill(self) -> None:
        if self.client.status == "running" and self._wanted is not None:
            self.client.cluster.scale(self._wanted)

    # -- data --------------------------------------------------------------------------------------------------------

    def tile(self, x: Any, axis: int = 0, device: str = "cpu") -> Tiled:
        """Cut an array along an axis, one shard on every locality.

        ``device="gpu"``: what is computed with it runs on the localities' GPUs, and they exchange by NCCL where each
        has one of its own; ``CUDA_VISIBLE_DEVICES`` gives a worker its GPU. Raises ValueError for another device.

        >>> import numpy as np, futurex as fx
        >>> with fx.Cluster(2) as cluster:          # doctest: +SKIP
        ...     cluster.tile(np.arange(10), axis=0)
        <Tiled int64[10] along axis 0 over 2 localities>
        """
        if device not in DEVICES:
            raise ValueError(f"device={device!r} is not one of {', '.join(map(repr, DEVICES))}")
        self._check_open()
        array = plain_array(x, "what is tiled")
        parts = cut(array, axis, self.size)
        shards = [
            self._wait(partial(self.client.scatter, part, workers=[address], hash=False))
            for part, address in zip(parts, self.addresses, strict=True)
        ]
        self._ask(host.align, [shard.key for shard in shards])
        return Tiled(shards, self.addresses, array.shape, array.dtype, axis % array.ndim, device)

    # -- running -----------------------------------------------------------------------------------------------------

    def spmd(self, function: Callable[..., Any], *args: Any, name: str = "") -> SpmdRun:
        """Start ``function(locality, *args)`` on every locality and return at once.

        ``function`` must be importable on the workers, or picklable by value. Graphs among the arguments are uploaded
        once; a :class:`Tiled` argument is this rank's shard there, and a :class:`Once` is not kept. Raises LocalityLost
        if a locality is gone already, ClusterUnreachable if the cluster is closed.
        """
        self._check_open()
        if (lost := self._lost()) is not None:
            raise lost
        name = f"{name or 'run'}-{next(_names)}-{uuid.uuid4().hex[:8]}"
        shards: list[Tiled] = []
        prepared = tuple(self._prepared(arg, shards) for arg in args)
        shipped, pickled = self._shipped(prepared), dumps(function)
        with self._lock:  # they are asked in the order of their generations
            self._generation += 2  # an even one a run, and the odd one after it for what is left of a run that failed
            generation = self._generation
            run = ClusterRun(name, self.client, self.addresses, partial(self._abort, generation), self._ears)
            self._runs[name] = run
            run.add_done_callback(lambda _: self._runs.pop(name, None))
            calls = {}
            for rank, address in enumerate(self.addresses):
                mine = tuple(tiled.shards[rank] for tiled in shards)
                args = name, self._session, generation, rank, self.size, pickled, shipped, mine
                calls[f"futurex-{name}-{rank}"] = address, args
            tasks = submit_together(self.client, self._session, host.run_spmd, calls)
        run.watch(tasks)
        if self._wanted is None:  # else the scheduler is in this process
            self._pulse.begin()
        if self._gone is not None:  # a worker left before this run was there to hear of it: its task would wait
            run.lost(self._gone)
        return run

    @contextlib.contextmanager
    def trace(self, path: str | os.PathLike[str] | None = None) -> Iterator[Timeline]:
        """Record what all localities do inside the block, on one clock.

        After it the timeline is filled, and written to ``path``. Raises RuntimeError where a locality records already.

        >>> with cluster.trace("step.json") as timeline:          # doctest: +SKIP
        ...     step.on(cluster)(params, batch).result()
        >>> timeline.overlap()                                    # doctest: +SKIP
        {0: 0.93, 1: 0.91}
        """
        self._check_open()
        ranks = {address: rank for rank, address in enumerate(self.addresses)}
        timeline, name = Timeline(), uuid.uuid4().hex
        found: dict[str, Any] = {}
        try:
            self._ask(host.start_trace, self._session, ranks, name)
            yield timeline
        finally:
            if not self._is_closed and self._connection.stands:  # else there is nobody to ask, as is said below
                there = workers_of(self.client)
                found = ask_workers(
                    self.client, host.stop_trace, name, workers=[each for each in ranks if each in there],
                    seconds=config.deadline(), on_error="return",
                )  # fmt: skip
        self._check_open()
        recorded = merged(each for each in found.values() if isinstance(each, Timeline))
        timeline.events, timeline.clock_error = recorded.events, recorded.clock_error
        if path is not None:
            timeline.save(path)

    # -- running on, whoever is there ----------------------------------------------------------------------------------

    def elastic(
        self, function: Callable[..., Any], *args: Any, settings: Settings | None = None, name: str = "",
        about: Any = None,
    ) -> ElasticRun:  # fmt: skip
        """Start ``function(locality, *args)`` on the workers there are, and go on when workers are lost or come.

        The function is called once in every generation, with an ``ElasticLocality``: it begins with the commit in
        ``locality.restored`` and takes commits. All of it travels through the scheduler, which keeps it for workers
        that come later, and ``about`` for drivers that do. Raises ValueError while a run of this name is under way.
        """
        self._check_open()
        name = name or f"run-{next(_names)}-{uuid.uuid4().hex[:8]}"
        settings = settings or Settings()
        handed = [dumps(arg.take()) for arg in args if isinstance(arg, Once)]
        names = itertools.count()
        named = tuple(Handed(next(names)) if isinstance(arg, Once) else arg for arg in args)
        self._asked(
            seconds=config.deadline() / TRIES,  # all data of the run are on their way
            do="begin", run=name, token=uuid.uuid4().hex, settings=asdict(settings),
            spec=dumps((self.transport, function, named)), about=dumps((settings, about)), handed=handed,
        )  # fmt: skip
        return self._followed(name, settings)

    def attached(self, name: str) -> tuple[ElasticRun, Any]:
        """An elastic run that was started before, by whichever driver, and what it said ``about`` the run.

        Raises LookupError, naming those there are, where there is none of this name.
        """
        self._check_open()
        settings, about = pickle.loads(self._asked(do="about", run=name))
        return self._followed(name, settings), about

    def scale(self, n: int) -> None:
        """Have ``n`` workers from now on; elastic runs go on with whoever is there.

        Returns before they have come or gone. Only for clusters that were started here, or given as a Dask cluster
        object: raises TypeError for one that was reached by its address. Other runs than elastic ones need a new
        ``fx.Cluster`` afterwards.
        """
        n = whole_number("the number of localities", n, 1)
        self._check_open()
        if self.client.cluster is None:
            raise TypeError("this cluster was reached by its address: start or stop workers where it was started")
        if self._wanted is not None:
            self._wanted = n
        self.client.cluster.scale(n)

    def _asked(self, **request: Any) -> Any:
        try:
            return ask(self.client, TRIES, **request)
        except OSError as error:
            raise ClusterUnreachable(
                f"the scheduler at {self._connection.address} does not answer ({str(error) or type(error).__name__}); "
                "end it, and make a new fx.Cluster, or have a higher FUTUREX_DEADLINE where it takes in much data"
            ) from None

    def _followed(self, name: str, settings: Settings) -> ElasticRun:
        run = ElasticRun(name, self.client, settings)
        self._elastic.append(run)
        run.add_done_callback(lambda _: self._elastic.remove(run))
        return run

    def _prepared(self, arg: Any, shards: list[Tiled]) -> Any:
        if isinstance(arg, Graph):
            return self._uploaded(arg)
        if isinstance(arg, Once):
            name = self._session, uuid.uuid4().hex
            self._ask(host.hand, name, dumps(arg.take()))
            return Handed(name)
        if isinstance(arg, Tiled):
            if arg.addresses != self.addresses:
                raise ValueError(f"{arg!r} lies on another cluster; cut the array for this one, cluster.tile(x)")
            shards.append(arg)
            return Mine(len(shards) - 1)
        if type(arg) in (tuple, list):
            return type(arg)(self._prepared(entry, shards) for entry in arg)
        if type(arg) is dict:
            return {key: self._prepared(entry, shards) for key, entry in arg.items()}
        return arg

    def _uploaded(self, graph: Graph) -> GraphRef:
        """Send a graph to the workers, the first time only."""
        if graph.hash not in self._graphs:
            self._ask(host.put_graph, graph.hash, pickle.dumps(graph))
            self._graphs.add(graph.hash)
        return GraphRef(graph.hash)

    def _shipped(self, args: tuple[Any, ...]) -> Any:
        nbytes = sum(getattr(leaf, "nbytes", 0) for leaf in flatten(args)[0])
        if nbytes < _SHIP_TOGETHER:
            return args
        [data] = self._wait(partial(self.client.scatter, [args], broadcast=True, hash=False))
        return data

    def _abort(self, generation: int) -> None:
        """A run failed: end what it has in flight on the workers that are left."""
        if self.size == 1:
            return
        workers = workers_of(self.client)
        alive = [address for address in self.addresses if address in workers]
        ask_workers(self.client, host.end_generation, self._session, generation, workers=alive, seconds=SOON)


def _check_options(transport: str, timeout: float, unknown: dict[str, Any]) -> None:
    if unknown:
        name = sorted(unknown)[0]
        raise TypeError(f"fx.Cluster has no option {name!r}; it has: transport, threads, timeout")
    if transport not in TRANSPORTS:
        raise ValueError(f"transport={transport!r} is not one of {', '.join(map(repr, TRANSPORTS))}")
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise ValueError(f"timeout is a number of seconds, more than 0, not {timeout!r}")
    if transport == "ucx" and os.name != "posix":
        raise ValueError("UCX runs on Linux only; use transport='tcp'")
