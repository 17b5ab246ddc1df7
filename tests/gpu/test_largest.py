"""The largest elements on the device, and sums of gradients that send only those."""

import numpy as np
import pytest
from test_nccl import DEVICE, equip, exchange, node_of, thread_group

from futurex.kernels.cuda_ import emulation
from futurex.kernels.cupy_ import devices
from futurex.kernels.cupy_.largest import largest
from futurex.runtime.collectives.device_topk import codec_for

pytestmark = pytest.mark.skipif(
    emulation.compiler() is None and devices._missing() is not None, reason="no C++ compiler is on the path, and no GPU"
)
RNG = np.random.default_rng(0)
CASES = {
    "normal": RNG.normal(size=2000), "with ties": np.round(RNG.normal(size=300), 1), "all alike": np.ones(50),
    "zeros": np.zeros(7), "NaN and infinities": [np.nan, 1, -np.inf, 2, -3], "denormal": [1e-42, -3e-43, 0.0, 1e-45],
    "one": [-2.5],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_largest_are_numpys(name):
    x = np.asarray(CASES[name], np.float32)
    for k in {1, len(x) // 3 or 1, len(x)}:
        places, values = map(DEVICE.to_host, largest(DEVICE, DEVICE.to_device(x), k))
        assert len(set(places.tolist())) == k
        np.testing.assert_array_equal(values, x[places])
        key = np.where(np.isnan(x), np.inf, np.abs(x))
        np.testing.assert_array_equal(np.sort(key[places]), np.sort(key)[-k:])


def test_what_cannot_be_selected_is_refused():
    with pytest.raises(ValueError, match="4 of 3 elements"):
        largest(DEVICE, DEVICE.to_device(np.ones(3, np.float32)), 4)
    with pytest.raises(TypeError, match="not of float64"):
        largest(DEVICE, DEVICE.to_device(np.ones(3)), 1)


def test_sums_are_those_of_the_host_and_what_is_left_out_comes_later():
    """Every rank gets the same bits, and a step later what was too small before."""
    rng, ranks, name = np.random.default_rng(1), 3, "topk:0.05#a"
    steps = [
        [[rng.normal(size=(40, 50)).astype(np.float32), rng.normal(size=7).astype(np.float32)] for _ in range(ranks)]
        for _ in range(4)
    ]
    with thread_group(ranks) as group, thread_group(ranks) as other:
        equip(group)
        for values in steps:
            nodes = [node_of("all_reduce", each, reduce="sum", codec=name) for each in values]
            assert codec_for(nodes[0]) is not None
            results, _ = exchange(group.communicators, nodes, values)
            expected = on_hosts(other.communicators, nodes, values)
            for mine, theirs in zip(results, expected, strict=True):
                for result, reference, first in zip(mine, theirs, results[0], strict=True):
                    np.testing.assert_allclose(result, reference, rtol=1e-6, atol=1e-6)
                    np.testing.assert_array_equal(result, first)
            assert np.count_nonzero(results[0][0]) <= ranks * 100


def on_hosts(communicators, nodes, values):
    """The same sums by the host's codec."""
    from test_nccl import everywhere

    def body(rank):
        communicator = communicators[rank]
        communicator.begin_step()
        outs = [np.empty_like(value) for value in values[rank]]
        communicator.start("all_reduce", nodes[rank].attrs, values[rank], outs).result()
        return outs

    results, errors = everywhere(communicators, body)
    assert errors == [None] * len(errors), errors
    return results


def test_nan_and_infinities_do_not_stay_for_ever():
    values = [[np.full(2000, np.nan, np.float32)], [np.ones(2000, np.float32)]]
    nodes = [node_of("all_reduce", each, reduce="sum", codec="topk:0.01#b") for each in values]
    with thread_group(2) as group:
        equip(group)
        results, _ = exchange(group.communicators, nodes, values)
        assert np.isnan(results[0][0]).any()
        again = [[np.ones(2000, np.float32)] for _ in range(2)]
        results, _ = exchange(group.communicators, nodes, again)
        assert np.isfinite(results[0][0]).all()
