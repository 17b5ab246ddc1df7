"""What plans say to each other: any dtype, any reduction, buckets, uneven gathers."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from transport_mesh import PATIENCE

from futurex.ops.comm import REDUCTIONS
from futurex.partition import Mesh, Replicate, Shard, local_part, partition, virtual
from futurex.runtime.collectives import CollectiveError, Communicator
from futurex.runtime.plan import compile_plan
from futurex.runtime.transport import open_endpoint
from futurex.tree import Aval, Graph, apply, item, param

SECRET = b"0123456789abcdef"


def on_all_ranks(size, function, kind="inproc"):
    """``function(communicator)`` on ``size`` connected ranks, one thread each; the results by rank."""
    endpoints = [open_endpoint(kind, rank, size, SECRET) for rank in range(size)]
    communicators = [Communicator(endpoint) for endpoint in endpoints]
    addresses = [endpoint.address for endpoint in endpoints]
    results, errors = [None] * size, []

    def body(rank):
        try:
            endpoints[rank].connect(addresses, PATIENCE)
            communicators[rank].begin_step()
            results[rank] = function(communicators[rank])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    hung = any(thread.is_alive() for thread in threads)
    for endpoint in endpoints:
        endpoint.close()
    if errors:
        raise errors[0]
    assert not hung
    return results


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("reduce", sorted(REDUCTIONS))
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool", "complex128"])
def test_all_reduce_of_every_kind(size, reduce, dtype):
    if dtype == "complex128" and reduce in ("max", "min"):
        pytest.skip("complex numbers have no order")
    rng = np.random.default_rng(0)
    inputs = [[(rng.normal(size=shape) * 3).astype(dtype) for shape in ((3, 4), (5,), ())] for _ in range(size)]

    def body(communicator):
        mine = [np.array(array) for array in inputs[communicator.rank]]
        outs = [np.empty_like(array) for array in mine]
        operation = communicator.start("all_reduce", {"reduce": reduce, "tag": 3}, mine, outs)
        operation.result()
        return outs

    results = on_all_ranks(size, body)
    for k in range(3):
        want = inputs[0][k]
        for other in inputs[1:]:
            want = REDUCTIONS[reduce](want, other[k])
        for outs in results:
            np.testing.assert_allclose(outs[k], want, rtol=1e-6)
            np.testing.assert_array_equal(outs[k], results[0][k])


@pytest.mark.parametrize("axis", [0, 1])
def test_all_gather_of_uneven_parts_keeps_every_bit(axis):
    sizes = (2, 0, 3)
    parts = [
        np.moveaxis(np.random.default_rng(rank).normal(size=(n, 4)), 0, axis).copy() for rank, n in enumerate(sizes)
    ]
    parts[0].flat[0] = -0.0
    parts[2].flat[1] = np.nan

    def body(communicator):
        whole = np.concatenate(parts, axis)
        out = np.empty_like(whole)
        attrs = {"axes": (axis,), "sizes": (sizes,), "tag": 1}
        communicator.start("all_gather", attrs, [parts[communicator.rank]], [out]).result()
        return out

    for out in on_all_ranks(3, body):
        np.testing.assert_array_equal(out.view(np.uint64), np.concatenate(parts, axis).view(np.uint64))


@pytest.mark.parametrize("size", [2, 3])
def test_a_partitioned_plan_equals_the_whole(size):
    x, w = param(Aval((7, 3), np.dtype(float)), "x"), param(Aval((3, 2), np.dtype(float)), "w")
    h = apply("tanh", apply("matmul", x, w))
    total = apply("sum", h * h, axis=None, keepdims=False, dtype=None)
    top = apply("max", h, axis=(0,), keepdims=False)
    graph = Graph([x, w], [total, top, h])
    rng = np.random.default_rng(1)
    values = rng.normal(size=(7, 3)), rng.normal(size=(3, 2))
    want = graph(*values)

    def body(communicator):
        local = partition(graph, [Shard(0), Replicate()], Mesh((("data", size),)), communicator.rank)
        plan = compile_plan(local)
        mine = np.array(local_part(values[0], Shard(0), size, communicator.rank))
        return plan.run([mine, values[1]], communicator)

    for outs in on_all_ranks(size, body):
        for got, expected in zip(outs, want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_time_in_flight_and_time_waited_are_measured():
    waiting, spent = threading.Event(), []

    def body(communicator):
        x = param(Aval((1000,), np.dtype(float)), "x")
        out = item(apply("all_reduce", x, reduce="sum", tag=0), 0)
        plan = compile_plan(Graph([x], [out * 2.0]))
        if communicator.rank == 0:
            assert waiting.wait(PATIENCE)
            start = time.perf_counter()
            while time.perf_counter() - start < 0.05:
                time.sleep(0.01)
            spent.append(time.perf_counter() - start)
        else:
            communicator.drive = lambda done: waiting.set()  # what a plan that has nothing else to do calls
        plan.run([np.ones(1000)], communicator)
        return communicator.times()

    times = on_all_ranks(2, body)
    assert times[0][0] > 0
    assert times[0][1] >= 0
    assert min(times[1]) > spent[0]


@pytest.mark.parametrize("size", [1, 5])
def test_what_starts_after_its_generation_has_ended_fails_at_once(size):
    """A sum of one element leaves a rank without anything to send, which is where such a call could wait for ever."""

    def body(communicator):
        later = communicator.begin_generation(7)
        array = np.ones(size)
        with pytest.raises(CollectiveError, match=r"generation 0.*generation 7 began|in generation 7"):
            communicator.start("all_reduce", {"reduce": "sum", "tag": 1}, [array], [array]).result()
        later.begin_step()
        later.start("all_reduce", {"reduce": "sum", "tag": 1}, [array], [array]).result()
        return array

    for array in on_all_ranks(2, body):
        np.testing.assert_array_equal(array, np.full(size, 2.0))


def _exchanges(rank, size):
    """One rank's part of a program with every kind of exchange, some of which depend on others."""
    x = param(Aval((2 * size, 3), np.dtype("f8")), "x")
    sizes = tuple(2 for _ in range(size))
    uneven = (3, *(0,) * (size - 1))
    mine = item(apply("reduce_scatter", x, axes=(0,), sizes=(sizes,), rank=rank, reduce="sum", tag=0), 0)
    several = apply("reduce_scatter", x, x * x, axes=(1, 0), sizes=(uneven, sizes), rank=rank, reduce="max", tag=1)
    columns, rows = item(several, 0), item(several, 1)
    both = apply("all_gather", mine * 2.0, columns, axes=(0, 1), sizes=(sizes, uneven), tag=2)
    whole = item(both, 0) + item(both, 1)
    root = apply("broadcast", x + whole, root=size - 1, tag=3)
    mixed = apply("all_to_all", x, ranks=size, tag=4)
    moved = apply("permute", mixed, pairs=tuple((k, k + 1) for k in range(size - 1)), tag=5)
    total = item(apply("all_reduce", moved - root, reduce="sum", tag=6), 0)
    return Graph([x], [mine, columns, rows, whole, root, mixed, moved, total])


@pytest.mark.parametrize("kind", ["inproc", "local"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_plan_with_every_exchange_does_what_the_virtual_mesh_does(kind, size):
    inputs = [np.random.default_rng(rank).normal(size=(2 * size, 3)) for rank in range(size)]
    graphs = [_exchanges(rank, size) for rank in range(size)]
    expected = virtual.run_ranks(graphs, [[x] for x in inputs])

    def body(communicator):
        results = compile_plan(graphs[communicator.rank]).run([inputs[communicator.rank]], communicator)
        return [np.array(result) for result in results]

    for want, got in zip(expected, on_all_ranks(size, body, kind), strict=True):
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-12)


@pytest.mark.parametrize(
    "op, attrs, message",
    [
        ("reduce_scatter", {"axes": (0,), "sizes": ((1, 1),), "rank": 0, "reduce": "sum"}, "do not fit|does not fit"),
        ("reduce_scatter", {"axes": (0,), "sizes": ((2, 2),), "rank": 0, "reduce": "mean"}, "'mean' is none of them"),
        ("all_to_all", {"ranks": 3}, "3 equal blocks"),
        ("permute", {"pairs": ((0, 1), (0, 2))}, "once at most"),
    ],
)
def test_exchanges_that_make_no_sense(op, attrs, message):
    with pytest.raises(ValueError, match=message):
        apply(op, param(Aval((4, 3), np.dtype("f8")), "x"), tag=0, **attrs)
