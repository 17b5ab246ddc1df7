"""Localities on real Dask workers in processes of their own."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import socket
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from distributed import LocalCluster

import futurex as fx
from futurex.runtime.transport import PeerLost

sys.path.insert(0, str(Path(__file__).parent.parent))
import cluster_programs as programs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def _ucx_missing() -> str:
    from futurex.errors import MissingExtra
    from futurex.runtime.transport import open_endpoint

    try:
        open_endpoint("ucx", 0, 1, b"0123456789abcdef").close()
    except MissingExtra as error:
        return str(error)
    return ""


@pytest.fixture(scope="module", params=["auto", "local", "tcp", pytest.param("ucx", marks=pytest.mark.ucx)])
def cluster(request):
    if request.param == "ucx" and _ucx_missing():
        pytest.skip(_ucx_missing())
    with _cluster(2, transport=request.param) as started:
        yield started


def _cluster(n, **options):
    """Workers inherit the path on which they find the test's functions."""
    folder = str(Path(__file__).parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    return fx.Cluster(n, **options)


def test_every_locality_runs_with_its_rank(cluster):
    assert cluster.size == 2
    assert cluster.spmd(programs.rank_and_size).result(90) == [(0, 2), (1, 2)]
    pids = set(cluster.client.run(programs.process_id).values())
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_an_interrupt_of_the_process_group_is_the_drivers_alone(cluster):
    """As Ctrl-C in a terminal and a notebook's interrupt send it: workers, also those that Dask starts again."""
    assert all(cluster.client.run(programs.blocks_interrupts).values())
    pids = cluster.client.run(programs.process_id)
    for pid in pids.values():
        os.kill(pid, signal.SIGINT)
    assert cluster.spmd(programs.rank_and_size).result(90) == [(0, 2), (1, 2)]
    assert cluster.client.run(programs.process_id) == pids
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_cluster_that_is_interrupted_while_it_starts_leaves_nothing(monkeypatch):
    started, others = [], threading.Event()

    def interrupted(**options):
        started.append(LocalCluster(**options))
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        return started[0]

    monkeypatch.setattr("futurex.runtime.cluster.cluster.LocalCluster", interrupted)
    thread = threading.Thread(target=others.wait)  # which takes the signal
    thread.start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a script starts behind itself
    try:
        with pytest.raises(KeyboardInterrupt):
            _cluster(1)
        assert started[0].status.name == "closed"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        others.set()
        thread.join(60)


def test_tiles_lie_on_their_localities(cluster):
    x = np.arange(7.0)
    tiled = cluster.tile(x)
    assert (tiled.shape, tiled.dtype, len(tiled)) == ((7,), np.dtype(float), 7)
    assert cluster.spmd(programs.shard_sum, tiled).result(90) == [x[:3].sum(), x[3:].sum()]
    np.testing.assert_array_equal(np.asarray(tiled), x)
    with pytest.raises(ValueError, match=r"axis 1.*its axes are 0"):
        cluster.tile(x, axis=1)
    masked = np.ma.masked_less(x, 3)  # the mask would be lost
    with pytest.raises(TypeError, match=r"what is tiled is a MaskedArray.*give \.filled"):
        cluster.tile(masked)
    with pytest.raises(fx.StagingError, match="an argument of type MaskedArray"):
        fx.futurize(np.sum).on(cluster)(masked)


def test_what_localities_receive_begins_where_its_elements_may(cluster):
    arrays = [np.arange(2**15, dtype=dtype) for dtype in (float, np.float32, complex)]
    tiles = [cluster.tile(array) for array in arrays]
    assert cluster.spmd(programs.all_aligned, *tiles, *arrays).result(90) == [True, True]
    for tiled, array in zip(tiles, arrays, strict=True):
        np.testing.assert_array_equal(np.asarray(tiled), array)


def test_tiles_lie_aligned_before_a_run_uses_them(cluster):
    tiles = [cluster.tile(np.arange(10.0)) for _ in range(3)]
    lies = cluster.client.run(_aligned_in_dask, [shard.key for each in tiles for shard in each.shards])
    assert [each for found in lies.values() for each in found] == [True] * 6


def test_results_begin_where_their_elements_may(cluster):
    for n in range(1000, 1008):
        for double, single in cluster.spmd(programs.ranges, n).result(90):
            assert (double.flags.aligned, single.flags.aligned) == (True, True)
            np.testing.assert_array_equal(double, np.arange(float(n)))


def _aligned_in_dask(names, dask_worker):
    return [dask_worker.data[name].flags.aligned for name in names if name in dask_worker.data]


def test_descent_equals_one_locality(cluster):
    x = np.random.default_rng(0).normal(size=(9, 3))
    program = fx.lower(programs.descent, np.ones((3, 2)), x)
    w = np.ones((3, 2))
    for _ in range(20):
        loss, w = program.graph(w, x)
    run = cluster.spmd(programs.descend, program.graph, 20, cluster.tile(x))
    events = []
    run.subscribe(lambda rank, event: events.append((rank, event["step"])))
    results = run.result(90)
    for got_loss, got_w, seconds in results:
        np.testing.assert_allclose(got_loss, loss, rtol=1e-12)
        np.testing.assert_allclose(got_w, w, rtol=1e-12)
        assert seconds > 0
    np.testing.assert_array_equal(results[0][1], results[1][1])
    deadline = time.monotonic() + 90
    while len(events) < 40 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [step for rank, step in events if rank == 0] == list(range(20))


def test_graphs_are_uploaded_once(cluster):
    x = np.ones((4, 3))
    program = fx.lower(programs.descent, np.ones((3, 2)), x)
    cluster.spmd(programs.descend, program.graph, 1, cluster.tile(x)).result(90)
    uploaded = set(cluster._graphs)
    cluster.spmd(programs.descend, program.graph, 1, cluster.tile(x)).result(90)
    assert program.graph.hash in uploaded
    assert cluster._graphs == uploaded


@pytest.mark.parametrize("fails", [False, True])
def test_nobody_keeps_what_runs_left_that_are_over(cluster, fails):
    before = set(cluster.client.futures)
    run = cluster.spmd(programs.fail_on, 0) if fails else cluster.spmd(programs.ranges, 1000)
    assert (run.exception(90) is not None) == fails
    deadline = time.monotonic() + 30
    while set(cluster.client.futures) - before:  # the workers had the results for as long as these
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kept = weakref.ref(run)
    del run
    while kept() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        gc.collect()


def test_functions_on_the_cluster(cluster):
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(11, 3)), rng.normal(size=(3, 2))
    loss = fx.futurize(programs.mean_square)
    value = loss.on(cluster)(w, cluster.tile(x))
    assert isinstance(value, fx.Array)
    assert value.shape == ()
    np.testing.assert_allclose(float(value), programs.mean_square(w, x), rtol=1e-12)
    gradient = fx.grad(loss).on(cluster)(w, cluster.tile(x))
    np.testing.assert_allclose(np.asarray(gradient), np.asarray(fx.grad(loss)(w, x)), rtol=1e-12)


def test_commands_reach_every_locality(cluster):
    run = cluster.spmd(programs.wait_for_stop)
    run.send({"stop": True})
    assert run.result(90) == ["stopped", "stopped"]


def test_an_exception_on_one_rank_ends_all_and_the_cluster_lives_on(cluster):
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        cluster.spmd(programs.fail_on, 1).result(90)
    assert cluster.spmd(programs.rank_and_size).result(90) == [(0, 2), (1, 2)]
    x = np.ones((4, 3))
    program = fx.lower(programs.descent, np.ones((3, 2)), x)
    assert cluster.spmd(programs.descend, program.graph, 3, cluster.tile(x)).result(90)[0][0] > 0


def test_what_is_left_of_a_failed_run_never_meets_the_next_one(cluster):
    x = np.arange(12.0).reshape(4, 3)
    tiled = cluster.tile(x)
    program = fx.lower(programs.descent, np.ones((3, 2)), x)
    _, w = program.graph(np.ones((3, 2)), x)
    for turn in range(8):
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            cluster.spmd(programs.fail_on, turn % 2).result(90)
        for _, got, _ in cluster.spmd(programs.descend, program.graph, 1, tiled).result(90):
            np.testing.assert_allclose(got, w, rtol=1e-12)


def test_a_failed_run_ends_on_every_locality(cluster):
    """At once, although nothing begins after it that would push it aside."""
    run = cluster.spmd(programs.fail_when_told, 1)
    seen = []
    run.subscribe(lambda rank, event: seen.append(rank))
    _wait_for(lambda: set(seen) == {0, 1}, "the run did not start")
    run.send({"stop": True})
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        run.result(90)
    _wait_for(lambda: not any(cluster.client.run(programs.under_way).values()), "a locality still waits for another")


def test_an_error_says_on_which_locality_it_was_raised(cluster):
    with pytest.raises(ZeroDivisionError) as caught:
        cluster.spmd(programs.fail_on, 1).result(90)
    assert f"raised on locality 1 ({cluster.addresses[1]})" in caught.value.__notes__


def test_a_cluster_that_is_closed_says_so():
    with _cluster(2) as cluster:
        run = cluster.spmd(programs.wait_for_stop)
    with pytest.raises(fx.ClusterUnreachable, match=r"was closed while run .* was under way; wait for the result"):
        run.result(90)
    for use in (lambda: cluster.tile(np.ones(4)), lambda: cluster.spmd(programs.rank_and_size)):
        with pytest.raises(fx.ClusterUnreachable, match="has been closed; make a new one"):
            use()
    assert repr(cluster) == "<Cluster of 2 localities over auto, closed>"


def test_a_cluster_whose_workers_were_killed_is_closed():
    """While Dask starts them again, which closing would wait for; in a thread, because it waited for a minute."""
    cluster = _cluster(2)
    nannies = list(cluster.client.cluster.workers.values())
    before = [nanny.pid for nanny in nannies]
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(nanny.pid in (None, pid) for nanny, pid in zip(nannies, before, strict=True)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    again = [nanny.pid for nanny in nannies]
    failed = []

    def close():
        try:
            cluster.close()
        except BaseException as error:
            failed.append(error)

    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(55)
    assert not closing.is_alive()
    assert not failed
    for pid in again:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_tile_of_another_cluster_is_named():
    total = fx.futurize(np.sum)
    with _cluster(1) as cluster:
        bound = total.on(cluster)
        assert repr(bound) == f"<{total!r} on {cluster!r}>"
        with _cluster(1) as other:
            foreign = other.tile(np.ones(4))
            with pytest.raises(ValueError, match=r"<Tiled float64\[4\] .* lies on another cluster; .*cluster\.tile"):
                bound(foreign)
        with pytest.raises(fx.ClusterUnreachable, match=r"<Tiled float64\[4\] .* its cluster has been closed"):
            np.asarray(foreign)
        assert bound(cluster.tile(np.ones(4))).result(60) == 4.0


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_is_named_and_nothing_hangs(victim):
    x = np.ones((6, 3))
    program = fx.lower(programs.descent, np.ones((3, 2)), x)
    with _cluster(2) as cluster:
        run = cluster.spmd(programs.descend, program.graph, 10**7, cluster.tile(x))
        _wait_until_running(run)
        address = cluster.addresses[victim]
        os.kill(cluster.client.run(programs.process_id)[address], signal.SIGKILL)
        with pytest.raises(fx.LocalityLost) as caught:
            run.result(90)
        assert caught.value.rank == victim
        assert address in str(caught.value)
        frames = []
        for act in (lambda: cluster.spmd(programs.rank_and_size), lambda: cluster.tile(x)) * 2:
            with pytest.raises(fx.LocalityLost) as caught:
                act()
            frames.append(len(caught.traceback))
        assert frames[:2] == frames[2:], "an error has frames of one that was raised before it"


class _Fatal(str):
    """The name of a run: while it is put together, a worker dies and the driver hears of it."""

    def __format__(self, _):
        address = self.cluster.addresses[1]
        os.kill(self.cluster.client.run(programs.process_id)[address], signal.SIGKILL)
        deadline = time.monotonic() + 90
        while self.cluster._gone is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return "fatal"


def test_a_worker_that_is_lost_while_a_run_begins_ends_it():
    with _cluster(2) as cluster:
        name = _Fatal("fatal")
        name.cluster = cluster
        with pytest.raises(fx.LocalityLost) as caught:
            cluster.spmd(programs.rank_and_size, name=name).result(90)
        assert caught.value.rank == 1


def test_who_asks_a_worker_that_has_just_died_is_told_at_once():
    with _cluster(2) as cluster:
        tiled, address = cluster.tile(np.ones(4)), cluster.addresses[1]
        os.kill(cluster.client.run(programs.process_id)[address], signal.SIGKILL)
        begun = time.monotonic()
        for act in (
            lambda: cluster.tile(np.ones(4)), lambda: fx.futurize(np.sum).on(cluster)(tiled).result(90),
            lambda: cluster.tile(np.ones(4)),
        ):  # fmt: skip
            with pytest.raises(fx.LocalityLost) as caught:
                act()
            assert (caught.value.rank, caught.value.address) == (1, address)
        assert time.monotonic() - begun < 29  # Dask dials for thirty seconds


def test_what_cannot_be_read_here_is_named_so(cluster):
    run = cluster.elastic(programs.unreadable)
    with pytest.raises(RuntimeError, match=r"has ended.*cannot read.*on purpose"):
        run.result(90)


def _wait_until_running(run):
    seen = []
    run.subscribe(lambda rank, event: seen.append(rank))
    _wait_for(lambda: seen, "the run did not start")


def _wait_for(observed, otherwise):
    deadline = time.monotonic() + 90
    while not observed():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)


def test_random_bytes_on_the_transport_port_disturb_nobody():
    x = np.ones((6, 3))
    program = fx.lower(programs.descent, np.ones((3, 2)), x)
    with _cluster(2, transport="tcp") as cluster:
        run = cluster.spmd(programs.descend, program.graph, 300, cluster.tile(x))
        for port in _listening_ports(cluster):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as stranger:
                stranger.sendall(os.urandom(4096))
        results = run.result(90)
        np.testing.assert_array_equal(results[0][1], results[1][1])


def _listening_ports(cluster):
    return [int(address.rpartition(":")[2]) for address in cluster.client.run(_endpoint_address).values()]


def _endpoint_address(dask_worker):
    [communicator] = dask_worker.futurex_host.sessions.values()
    return communicator.endpoint.address.decode()


def test_runs_that_threads_start_at_once_come_in_one_order(cluster, monkeypatch):
    """Every other submission is so slow that the next one could come before it."""
    get, slow = cluster.client.get, itertools.cycle([0.1, 0.0])

    def delayed(*args, **options):
        time.sleep(next(slow))
        return get(*args, **options)

    monkeypatch.setattr(cluster.client, "get", delayed)
    failed = []

    def several():
        for _ in range(4):
            try:
                assert cluster.spmd(programs.rank_and_size).result(60) == [(0, 2), (1, 2)]
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=several) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed


def test_a_child_of_a_fork_makes_a_cluster_of_its_own():
    with _cluster(1) as cluster:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            signal.alarm(60)
            try:
                cluster.tile(np.ones(4))
            except BaseException as error:
                os.write(writing, f"{type(error).__name__}: {error}".encode())
            cluster.close()
            os._exit(0)
        os.close(writing)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with os.fdopen(reading) as said:
            assert "ClusterUnreachable: this process has forked" in said.read()
        assert cluster.spmd(programs.rank_and_size).result(60) == [(0, 1)]


def test_peer_errors_survive_the_way_to_the_driver():
    import pickle

    error = pickle.loads(pickle.dumps(fx.LocalityLost(1, "tcp://127.0.0.1:1", "run 'x'")))
    assert (error.rank, error.address) == (1, "tcp://127.0.0.1:1")
    lost = pickle.loads(pickle.dumps(PeerLost(1, "127.0.0.1:2", "gone")))
    assert "gone" in str(lost)
