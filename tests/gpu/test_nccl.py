"""Collectives of arrays on GPUs: by NCCL's interface where every rank has its own, by the host elsewhere."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import fake_nccl
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from local_group import thread_group

import futurex as fx
from futurex.kernels.cupy_ import nccl
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.emulated import NAMESPACE
from futurex.runtime.collectives import CollectiveError
from futurex.runtime.collectives.on_device import DeviceCollectives
from futurex.tree import Aval, apply, param
from futurex.tree.pytree import flatten

DEVICE = Device(NAMESPACE, "emulated")


@pytest.fixture(autouse=True)
def _emulated(monkeypatch):
    """What stands for NCCL reads and writes memory of the host, also on a machine with a GPU."""
    monkeypatch.setenv("FUTUREX_GPU", "emulated")


def equip(group, library=fake_nccl, names=None):
    """Give every rank a GPU of its own and NCCL; returns their collectives."""
    made = []
    for rank, communicator in enumerate(group.communicators):
        name = bytes([rank if names is None else names[rank]]) * 32
        made.append(DeviceCollectives(DEVICE, library, name))
        communicator._devices["emulated"] = made[-1]
    return made


def everywhere(communicators, body):
    """``body(rank)`` on a thread a rank; raises what the first one raised."""
    results, errors = [None] * len(communicators), [None] * len(communicators)

    def run(rank):
        try:
            results[rank] = body(rank)
        except BaseException as error:
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(communicators))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, errors


def exchange(communicators, nodes, values):
    """Every rank's results of a communication node, through its collectives on the device."""

    def body(rank):
        communicator = communicators[rank]
        communicator.begin_step()
        there = communicator.on_device(DEVICE)
        outs, event = there.start(communicator, nodes[rank], [DEVICE.to_device(value) for value in values[rank]])
        there.settle(communicator)
        return [DEVICE.to_host(out) for out in outs], event is not None

    results, errors = everywhere(communicators, body)
    assert errors == [None] * len(errors), errors
    return [outs for outs, _ in results], [used for _, used in results]


def test_every_endpoint_is_watched_wherever_it_lies():
    """One that is gone must not speak for another one."""
    asked = []

    class Endpoint:
        def on_peer_lost(self, _):
            asked.append("peers")

        def on_generation(self, _):
            asked.append("generations")

    collectives = DeviceCollectives(DEVICE, fake_nccl, b"a GPU")
    for _ in range(20):
        endpoint = Endpoint()
        for _ in range(2):
            collectives._watch(SimpleNamespace(endpoint=endpoint))
        del endpoint
    assert asked == ["peers", "generations"] * 20


def node_of(op, values, **attrs):
    node = apply(op, *(param(Aval(value.shape, value.dtype)) for value in values), tag=3, **attrs)
    return node.inputs[0] if node.op == "item" else node


def some(rng, shape, dtype):
    return (rng.normal(size=shape) * 5).astype(dtype)


DTYPES = ("f4", "f8", "f2", "i4", "i8", "u1", "u8", "i1", "u4")


@pytest.mark.parametrize("reduce", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_reduce_is_numpys(dtype, reduce):
    rng, ranks = np.random.default_rng(0), 3
    values = [[some(rng, (4, 5), dtype), some(rng, 7, dtype)] for _ in range(ranks)]
    with thread_group(ranks) as group:
        equip(group)
        nodes = [node_of("all_reduce", each, reduce=reduce) for each in values]
        results, used = exchange(group.communicators, nodes, values)
    assert used == [True] * ranks
    function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[reduce]
    for k in range(2):
        expected = values[0][k]
        for rank in range(1, ranks):
            expected = function(expected, values[rank][k])
        for outs in results:
            np.testing.assert_array_equal(outs[k], expected, strict=True)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 1)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_gathering_and_scattering_are_numpys(sizes, axis):
    rng = np.random.default_rng(1)
    shape = (4, 3) if axis == 0 else (3, 4)
    wholes = [some(rng, shape, "f4") for _ in range(2)]
    cuts = np.cumsum(sizes)[:-1]
    parts = [[np.ascontiguousarray(np.split(wholes[0], cuts, axis)[rank])] for rank in range(2)]
    with thread_group(2) as group:
        equip(group)
        common = {"axes": (axis,), "sizes": (sizes,)}
        results, used = exchange(group.communicators, [node_of("all_gather", each, **common) for each in parts], parts)
        assert used == [True, True]
        for outs in results:
            np.testing.assert_array_equal(outs[0], wholes[0])
        scattered = [node_of("reduce_scatter", [w], rank=r, reduce="sum", **common) for r, w in enumerate(wholes)]
        results, used = exchange(group.communicators, scattered, [[whole] for whole in wholes])
        assert used == [True, True]
        for outs, expected in zip(results, np.split(wholes[0] + wholes[1], cuts, axis), strict=True):
            np.testing.assert_array_equal(outs[0], expected)


def test_the_other_exchanges_are_numpys():
    rng, ranks = np.random.default_rng(2), 3
    values = [[some(rng, (6, 4), "f8")] for _ in range(ranks)]
    with thread_group(ranks) as group:
        equip(group)

        def run(op, **attrs):
            results, used = exchange(group.communicators, [node_of(op, v, **attrs) for v in values], values)
            assert all(used)
            return [outs[0] for outs in results]

        for out in run("broadcast", root=1):
            np.testing.assert_array_equal(out, values[1][0])
        for rank, out in enumerate(run("all_to_all", ranks=ranks)):
            expected = np.concatenate([value[0].reshape(ranks, 2, 4)[rank] for value in values])
            np.testing.assert_array_equal(out, expected)
        outs = run("permute", pairs=((0, 2), (2, 1)))
        for out, expected in zip(outs, [np.zeros((6, 4)), values[2][0], values[0][0]], strict=True):
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("names", "missing", "reason"),
    [((0, 0), False, "two ranks have the same GPU"), (None, True, "NCCL is missing on rank 1")],
    ids=["same GPU", "no NCCL"],
)
def test_where_nccl_cannot_be_used_the_host_exchanges(names, missing, reason):
    values = [[np.full((3, 2), float(rank + 1))] for rank in range(2)]
    with thread_group(2) as group:
        made = equip(group, names=names)
        if missing:
            made[1]._library = None
        results, used = exchange(group.communicators, [node_of("all_reduce", v, reduce="sum") for v in values], values)
        assert used == [False, False]
        assert [each.reason for each in made] == [reason] * 2
        for outs in results:
            np.testing.assert_array_equal(outs[0], np.full((3, 2), 3.0))


def test_what_nccl_has_no_type_for_goes_through_the_host():
    values = [[np.full(4, 1j * (rank + 1))] for rank in range(2)]
    with thread_group(2) as group:
        equip(group)
        results, used = exchange(group.communicators, [node_of("all_reduce", v, reduce="sum") for v in values], values)
    assert used == [False, False]
    np.testing.assert_array_equal(results[0][0], np.full(4, 3j))


def test_a_ring_serves_many_generations():
    values = [[np.ones(3)] for _ in range(2)]
    with thread_group(2) as group:
        made, rings = equip(group), []
        for generation in (5, 6, 7):
            communicators = [None, None]
            everywhere(communicators, lambda rank, g=generation, c=communicators: c.__setitem__(
                rank, group.communicators[rank].begin_generation(g)
            ))  # fmt: skip
            nodes = [node_of("all_reduce", v, reduce="sum") for v in values]
            assert exchange(communicators, nodes, values)[1] == [True, True]
            rings.append([each._ring for each in made])
    assert rings[0] == rings[1] == rings[2]


def test_a_lost_peer_aborts_the_ring_and_is_named():
    """Rank 1 never starts its part and goes; rank 0 must not wait for ever."""
    values = [[np.ones(3)] for _ in range(2)]
    with thread_group(2) as group:
        made = equip(group)
        nodes = [node_of("all_reduce", v, reduce="sum") for v in values]
        exchange(group.communicators, nodes, values)  # there is a ring
        first, second = group.communicators
        first.begin_step()
        outs, event = made[0].start(first, nodes[0], [DEVICE.to_device(values[0][0])])
        assert not event.done
        second.endpoint.close()
        with pytest.raises(CollectiveError, match=r"a collective by NCCL on rank 0 failed: rank 1 at .* was lost"):
            made[0].settle(first)
        assert outs[0].shape == (3,)
        assert made[0]._ring is None
        with pytest.raises(CollectiveError, match="was lost"):
            made[0].start(first, nodes[0], [DEVICE.to_device(values[0][0])])


def test_a_missed_deadline_aborts_the_ring(monkeypatch):
    values = [[np.ones(3)] for _ in range(2)]
    with thread_group(2) as group:
        made = equip(group)
        nodes = [node_of("all_reduce", v, reduce="sum") for v in values]
        exchange(group.communicators, nodes, values)
        first = group.communicators[0]
        first.begin_step()
        made[0].start(first, nodes[0], [DEVICE.to_device(values[0][0])])
        monkeypatch.setenv("FUTUREX_DEADLINE", "0.2")
        with pytest.raises(CollectiveError, match="on rank 0 missed its deadline"):
            made[0].settle(first)


def test_an_error_that_nccl_reports_later_is_raised():
    """The ranks start different collectives, which NCCL does not notice at once."""
    values = [[np.ones(3)], [np.ones(4)]]
    with thread_group(2) as group:
        made = equip(group)
        same = [[np.ones(2)]] * 2
        exchange(group.communicators, [node_of("all_reduce", v, reduce="sum") for v in same], same)

        def body(rank):
            communicator = group.communicators[rank]
            communicator.begin_step()
            node = node_of("all_reduce", values[rank], reduce="sum")
            _, event = made[rank].start(communicator, node, [DEVICE.to_device(values[rank][0])])
            event.synchronize()
            made[rank].settle(communicator)

        _, errors = everywhere(group.communicators, body)
    assert any("different collectives" in str(error) for error in errors)


# -- whole programs ----------------------------------------------------------------------------------------------------


def loss(params, x, y):
    h = np.tanh(x @ params["w1"] + params["b1"])
    return ((h @ params["w2"] - y) ** 2).mean()


def problem():
    rng = np.random.default_rng(0)
    params = {"w1": rng.normal(size=(6, 40)), "b1": np.zeros(40), "w2": rng.normal(size=(40, 1))}
    return params, (rng.normal(size=(64, 6)), rng.normal(size=(64, 1)))


@pytest.mark.parametrize("library", [fake_nccl, None], ids=["nccl", "host"])
def test_training_on_the_gpus_of_a_group(library):
    params, data = problem()
    options = {"batch_size": 16, "epochs": 2, "progress": False, "optimizer": fx.optim.adam(0.05)}
    expected = fx.fit(loss, params, data, **options).result(timeout=60)
    with thread_group(2) as group:
        made = equip(group, library)
        found = fx.fit(loss, params, data, on=group, device="gpu", **options).result(timeout=120)
        assert [each.reason for each in made] == [None if library else "NCCL is missing on rank 0"] * 2
        assert all((each._ring is None) is (library is None) for each in made)
    for one, two in zip(flatten(found)[0], flatten(expected)[0], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


def test_a_function_on_the_gpus_of_a_group():
    params, (x, y) = problem()
    slope = fx.value_and_grad(loss)
    with thread_group(2) as group:
        made = equip(group)
        value, grads = fx.futurize(slope, device="gpu").on(group)(params, x, y)
        expected, theirs = slope(params, x, y)
        np.testing.assert_allclose(float(value), float(expected), rtol=1e-12)
        for one, two in zip(flatten(grads)[0], flatten(theirs)[0], strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(two), rtol=1e-9)
    assert {each.reason for each in made} <= {None, "the ranks have not agreed yet"}


def test_devices_that_there_are_not():
    params, data = problem()
    with pytest.raises(ValueError, match="device='tpu' is not one of 'cpu', 'gpu'"):
        fx.fit(loss, params, data, device="tpu")
    with pytest.raises(ValueError, match="memory_limit=1000 is for device='cpu'"):
        fx.fit(loss, params, data, device="gpu", memory_limit=1000)


def test_types_and_identity_are_nccls():
    assert sorted(nccl.TYPES.values()) == sorted(f"NCCL_{name}" for name in fake_nccl.NAMES)
    assert len(nccl.Ring.identity(fake_nccl)) == nccl.IDENTITY
